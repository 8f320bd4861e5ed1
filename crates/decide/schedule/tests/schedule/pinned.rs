//! Small experiments with `sextant` whose figures are pinned exactly.
//!
//! Integer arithmetic makes the workloads and the run times, so that they are the same on every machine. Any change in
//! what `sextant` does changes a figure: a condition, a coefficient, the order of equal candidates, a timer. If a
//! figure changes, find out why, and whether goodput, fairness and idle time are better for it (`cargo bench -p
//! sextant-controller`, the simulator's experiments), before the number is renewed. The tests print the new value in
//! the form that it must have here.

mod trial;

use sextant_baselines::{Options, Policy};
use sextant_schedule::{Delay, LatencyTable, NEVER, Nanos, QueueSpec};

use sextant_types::index::TenantIx;
use trial::{Stream, Trial, play};

const US: Nanos = 1_000;
const MS: Nanos = 1_000_000;

/// A batch of n rows, of at most `most`, takes `beta + alpha n` us.
fn spec(alpha: Nanos, beta: Nanos, most: u32) -> QueueSpec {
    let nanos = (1..=u64::from(most)).map(|rows| (beta + alpha * rows) * US);
    QueueSpec {
        max_rows: most,
        planned_rows: u32::MAX,
        batched: true,
        slots: 1,
        latency: LatencyTable::new(nanos.collect()).unwrap(),
        max_waiting_rows: 256,
        tenant: TenantIx::new(0),
        priority: 100,
        weight: 1.0,
        price: 1.0,
    }
}

/// A request of one row every `gap` us, to be answered within `target` ms.
fn stream(spec: QueueSpec, gap: Nanos, target: Nanos) -> Stream {
    Stream {
        spec,
        gap: gap * US,
        target: target * MS,
        rows: 1,
    }
}

fn trial(devices: (u32, u16), streams: Vec<Stream>) -> Trial {
    Trial {
        options: Options::of(Policy::Sextant),
        devices,
        streams,
        until: 1500 * MS,
        changes: false,
    }
}

fn of_tenant(tenant: u32, weight: f32, of: Stream) -> Stream {
    let spec = QueueSpec {
        tenant: TenantIx::new(tenant),
        weight,
        ..of.spec
    };
    Stream { spec, ..of }
}

/// Four devices' work of three queues, of which the second has nearly no fixed cost.
fn three_kinds() -> Vec<Stream> {
    vec![
        stream(spec(1000, 4000, 16), 1000, 60),
        stream(spec(2000, 200, 8), 2000, 30),
        stream(spec(500, 9000, 32), 700, 100),
    ]
}

#[test]
fn one_queue_on_one_device_near_what_it_can_do() {
    let one = vec![stream(spec(1000, 4000, 16), 1700, 60)];
    let got = play(&trial((1, 1), one));
    assert_eq!(
        got,
        "115 batches, 1046 answered, 0 expired, 174 shed, 0 refused; \
         starts 81953095, windows 85281752, devices 0; 562 timers, 367275374; lags 23587000"
    );
}

#[test]
fn one_queue_on_one_device_that_cannot_serve_all() {
    let one = vec![stream(spec(1000, 4000, 16), 900, 40)];
    let got = play(&trial((1, 1), one));
    assert_eq!(
        got,
        "97 batches, 1173 answered, 0 expired, 1132 shed, 0 refused; \
         starts 71119479, windows 71255719, devices 0; 1862 timers, 1432441739; lags 53083000"
    );
}

/// Plays the three kinds on so many devices of one slot.
fn three_kinds_on(devices: u32, expected: &str) {
    assert_eq!(play(&trial((devices, 1), three_kinds())), expected);
}

#[test]
fn three_kinds_of_queues_on_four_devices() {
    three_kinds_on(
        4,
        "518 batches, 5073 answered, 133 expired, 654 shed, 277 refused; \
         starts 341928044, windows 352230079, devices 840; 1719 timers, 1232872111; lags 105605700",
    );
}

#[test]
fn three_kinds_of_queues_on_ten_devices() {
    three_kinds_on(
        10,
        "1625 batches, 6137 answered, 0 expired, 0 shed, 0 refused; \
         starts 1172389054, windows 1247729362, devices 5997; 1595 timers, 971488352; lags 52167100",
    );
}

#[test]
fn three_kinds_of_queues_with_most_devices_idle() {
    three_kinds_on(
        24,
        "3147 batches, 6137 answered, 0 expired, 0 shed, 0 refused; \
         starts 2277497756, windows 2466353981, devices 22216; 1872 timers, 1068601573; lags 51668700",
    );
}

#[test]
fn half_and_all_of_the_spare_devices_kept_idle() {
    let with = |hold: f64| {
        let options = Options {
            hold,
            ..Options::of(Policy::Sextant)
        };
        play(&Trial {
            options,
            ..trial((16, 1), three_kinds())
        })
    };
    assert_eq!(
        with(0.5),
        "1990 batches, 6137 answered, 0 expired, 0 shed, 0 refused; \
         starts 1395509148, windows 1490462966, devices 9049; 1555 timers, 937634545; lags 41421300"
    );
    assert_eq!(
        with(1.0),
        "702 batches, 6137 answered, 0 expired, 0 shed, 0 refused; \
         starts 335901747, windows 366376617, devices 3218; 1280 timers, 846132904; lags 108476200"
    );
}

#[test]
fn requests_of_several_rows_over_a_network() {
    let options = Options {
        delay: Delay {
            control: 300 * US,
            data_per_row: 50 * US,
            response: 400 * US,
        },
        ..Options::of(Policy::Sextant)
    };
    let rows = |it: Stream| Stream {
        rows: 3,
        gap: 2 * it.gap,
        ..it
    };
    let got = play(&Trial {
        options,
        ..trial((4, 1), three_kinds().into_iter().map(rows).collect())
    });
    assert_eq!(
        got,
        "472 batches, 2424 answered, 43 expired, 427 shed, 161 refused; \
         starts 332177849, windows 341797419, devices 712; 1360 timers, 1029049080; lags 61303200"
    );
}

#[test]
fn a_queue_that_comes_in_bursts_after_quiet_times() {
    let seldom = vec![
        stream(spec(1000, 30_000, 16), 150_000, 500),
        stream(spec(2000, 20_000, 8), 15_000, 200),
    ];
    let got = play(&trial((3, 1), seldom));
    assert_eq!(
        got,
        "95 batches, 153 answered, 0 expired, 0 shed, 0 refused; \
         starts 67426747, windows 87939585, devices 46; 63 timers, 32961609; lags 6071000"
    );
}

#[test]
fn queues_that_run_alone_or_wait_without_a_target() {
    let single = QueueSpec {
        batched: false,
        ..spec(1000, 4000, 16)
    };
    let streams = vec![
        stream(single, 12_000, 60),
        stream(spec(1000, 4000, 16), 4000, 60),
        Stream {
            target: NEVER,
            ..stream(spec(1000, 4000, 16), 9000, 0)
        },
    ];
    let got = play(&trial((2, 1), streams));
    assert_eq!(
        got,
        "404 batches, 920 answered, 0 expired, 0 shed, 0 refused; \
         starts 296092986, windows 230097816, devices 201; 391 timers, 206510617; lags 8679000"
    );
}

#[test]
fn batches_that_take_several_slots_of_a_device() {
    let wide = QueueSpec {
        slots: 2,
        ..spec(1000, 4000, 16)
    };
    let streams = vec![
        stream(wide, 2500, 60),
        stream(spec(1000, 4000, 16), 2500, 60),
    ];
    let got = play(&trial((2, 3), streams));
    assert_eq!(
        got,
        "488 batches, 1729 answered, 0 expired, 0 shed, 0 refused; \
         starts 344204119, windows 369189559, devices 179; 666 timers, 392771771; lags 34174000"
    );
}

#[test]
fn devices_and_queues_that_come_and_go() {
    let changing = |streams| {
        play(&Trial {
            changes: true,
            ..trial((4, 1), streams)
        })
    };
    assert_eq!(
        changing(three_kinds()),
        "567 batches, 4686 answered, 204 expired, 486 shed, 761 refused; \
         starts 406438984, windows 421116613, devices 945; 1767 timers, 1188290402; lags 101290900"
    );
    let tenants = three_kinds().into_iter().zip(0..);
    let tenants = tenants.map(|(it, at)| of_tenant(at, 1.0, it)).collect();
    assert_eq!(
        changing(tenants),
        "674 batches, 4607 answered, 162 expired, 689 shed, 679 refused; \
         starts 484715665, windows 501209403, devices 1131; 1974 timers, 1316525063; lags 336499200"
    );
}

#[test]
fn tenants_of_different_weights_that_ask_for_more_than_there_is() {
    let ask = |gap, target| stream(spec(1000, 4000, 16), gap, target);
    let streams = vec![
        of_tenant(0, 1.0, ask(900, 60)),
        of_tenant(1, 3.0, ask(900, 80)),
        of_tenant(2, 0.5, ask(12_000, 50)),
        of_tenant(2, 0.5, stream(spec(500, 8000, 8), 30_000, 90)),
    ];
    let got = play(&trial((2, 1), streams));
    assert_eq!(
        got,
        "205 batches, 2346 answered, 57 expired, 2467 shed, 9 refused; \
         starts 153959087, windows 156319049, devices 104; 3084 timers, 2443991021; lags 206644852"
    );
}

#[test]
fn tenants_of_different_priorities_and_one_without_targets() {
    let of = |id, priority, it: Stream| {
        let it = of_tenant(id, 1.0, it);
        let spec = QueueSpec {
            priority,
            ..it.spec
        };
        Stream { spec, ..it }
    };
    let ask = |gap, target| stream(spec(1000, 4000, 16), gap, target);
    let patient = Stream {
        target: NEVER,
        ..ask(1500, 0)
    };
    let streams = vec![
        of(0, 101, ask(9000, 30)),
        of(1, 100, ask(2000, 60)),
        of(2, 100, patient),
        of(3, 99, ask(6000, 200)),
    ];
    let got = play(&trial((1, 1), streams));
    assert_eq!(
        got,
        "201 batches, 1092 answered, 505 expired, 521 shed, 815 refused; \
         starts 178162295, windows 123756859, devices 0; 2153 timers, 1849773194; lags 653163000"
    );
}

#[test]
fn tenants_whose_devices_suffice() {
    let streams = three_kinds().into_iter().zip(0..);
    let streams = streams.map(|(it, at)| of_tenant(at, 1.0, it)).collect();
    let got = play(&trial((6, 1), streams));
    assert_eq!(
        got,
        "1065 batches, 5930 answered, 47 expired, 160 shed, 0 refused; \
         starts 771783399, windows 807497952, devices 2782; 1431 timers, 911890164; lags 244320700"
    );
}
