//! Several queues, pools and tenants.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_baselines::Policy;
use sextant_schedule::{
    Action, BatchId, DropReason, LatencyTable, NEVER, Nanos, PoolIx, QueueSpec, Request,
    RequestQueue,
};

use crate::small::{Small, batch, batches, drops, spec};
use sextant_types::index::{DeviceIx, QueueIx};

const MS: Nanos = 1_000_000;

fn slower(times: u64) -> QueueSpec {
    let nanos = (1..=8).map(|rows| times * (100 + 10 * rows));
    QueueSpec {
        latency: LatencyTable::new(nanos.collect()).unwrap(),
        ..spec(8)
    }
}

#[test]
fn a_higher_priority_goes_first_whatever_the_deadlines() {
    let important = QueueSpec {
        priority: 101,
        ..spec(8)
    };
    for policy in [Policy::Eager, Policy::EagerWeak] {
        let mut small = Small::of(policy, 1, &[spec(8), important.clone()]);
        let running = small.occupy(0, 0);
        small.request(0, 0, 1, 500);
        small.request(1, 1, 2, 3_000_000);
        assert_eq!(batch(&small.result(200, running)).requests, [2]);
    }
}

#[test]
fn a_queue_on_two_pools_takes_the_faster_and_then_whichever_can_meet_it() {
    let mut small = Small::of(Policy::Eager, 1, &[spec(8)]);
    small.up(7, PoolIx::new(3), 1);
    small.load(PoolIx::new(3), 0, &slower(4));
    assert_eq!(
        batch(&small.request(0, 0, 1, 9_000)).device,
        DeviceIx::new(0)
    );
    // One row takes 440 ns on the slower pool: the first waits for the faster one.
    assert_eq!(small.request(1, 0, 2, 400), []);
    let third = small.request(2, 0, 3, 9_000);
    assert_eq!(batch(&third).device, DeviceIx::new(7));
    assert_eq!(
        batch(&third).requests,
        [3],
        "what only the other can meet stays for it"
    );
}

#[test]
fn waiting_work_counts_where_it_can_be_done() {
    let mut small = Small::of(Policy::Eager, 1, &[spec(1)]);
    small.up(1, PoolIx::new(1), 1);
    small.load(PoolIx::new(1), 0, &spec(1));
    for payload in 0..6 {
        small.request(0, 0, payload, NEVER);
    }
    let queued = [0, 1].map(|pool| small.scheduler.load(PoolIx::new(pool)).queued);
    assert_eq!(queued, [220, 220], "four wait for two pools");
    let mut actions = Vec::new();
    small
        .scheduler
        .on_unloaded(0, PoolIx::new(1), QueueIx::new(0), &mut actions);
    assert_eq!(actions, [], "the other pool still takes them");
    let queued = [0, 1].map(|pool| small.scheduler.load(PoolIx::new(pool)).queued);
    assert_eq!(queued, [440, 0]);
    small
        .scheduler
        .on_unloaded(0, PoolIx::new(0), QueueIx::new(0), &mut actions);
    assert_eq!(drops(&actions).len(), 4);
    assert!(
        drops(&actions)
            .iter()
            .all(|(_, reason)| *reason == DropReason::Gone)
    );
}

#[test]
fn what_fits_no_batch_or_no_queue_is_refused_at_once() {
    let small_queue = QueueSpec {
        max_waiting_rows: 3,
        ..spec(8)
    };
    let mut small = Small::of(Policy::Eager, 1, &[spec(2), small_queue]);
    let large = Request {
        payload: 1,
        rows: 3,
        deadline: NEVER,
    };
    assert_eq!(
        drops(&small.rows(0, 0, large)),
        [(1, DropReason::Infeasible)]
    );
    assert_eq!(
        drops(&small.request(0, 9, 2, NEVER)),
        [(2, DropReason::Gone)]
    );
    small.occupy(0, 1);
    for payload in 3..6 {
        assert_eq!(small.request(0, 1, payload, NEVER), []);
    }
    assert_eq!(
        drops(&small.request(0, 1, 6, NEVER)),
        [(6, DropReason::QueueFull)]
    );
}

#[test]
fn a_request_without_a_deadline_is_not_kept_waiting_for_ever_by_others() {
    let second = QueueSpec {
        latency: LatencyTable::linear(10.0, 100.0, 1).unwrap(),
        ..spec(1)
    };
    for policy in [
        Policy::Sextant,
        Policy::Symphony,
        Policy::Eager,
        Policy::EagerWeak,
    ] {
        let mut small = Small::of(policy, 1, &[second.clone(), second.clone()]);
        let mut running = small.occupy(0, 0);
        small.request(0, 0, 1, NEVER);
        let (mut now, mut patient) = (0, None);
        for payload in 10..100 {
            small.request(now, 1, payload, now + 300 * MS);
            now += 110 * MS;
            let next = batch(&small.result(now, running));
            if next.requests == [1] {
                patient = Some(now);
                break;
            }
            running = next.id;
        }
        let within = 4_500 * MS..6_000 * MS;
        assert!(
            patient.is_some_and(|at| within.contains(&at)),
            "{policy}: {patient:?}"
        );
    }
}

#[test]
fn a_request_without_a_deadline_gets_a_place_in_a_queue_that_others_fill() {
    for policy in [
        Policy::Sextant,
        Policy::Symphony,
        Policy::Eager,
        Policy::EagerWeak,
    ] {
        let ten = QueueSpec {
            latency: LatencyTable::linear(10.0, 100.0, 2).unwrap(),
            ..spec(2)
        };
        let mut small = Small::of(policy, 1, &[ten]);
        let mut running = small.occupy(0, 0);
        small.request(0, 0, 1, NEVER);
        let (mut now, mut patient) = (0, None);
        for payload in 10..100 {
            for part in 0..3 {
                small.request(now + part, 0, 10 * payload + part, now + 340 * MS);
            }
            now += 120 * MS;
            let actions = small.result(now, running);
            let next = batches(&actions).remove(0);
            assert!(next.requests.len() <= 2);
            if next.requests.contains(&1) {
                assert_eq!(next.requests.len(), 2, "{policy}: it runs beside others");
                patient = Some(now);
                break;
            }
            running = next.id;
        }
        let within = 4_900 * MS..5_500 * MS;
        assert!(
            patient.is_some_and(|at| within.contains(&at)),
            "{policy}: {patient:?}"
        );
    }
}

/// A queue's rate when it has had requests every five milliseconds, of which one in ten has a deadline or none has.
fn rate(deadlines: bool, patient: bool) -> (f64, Nanos) {
    let mut queue = RequestQueue::default();
    for number in 0..400 {
        let (now, is_due) = (5 * number * MS, number % 10 == 0);
        let deadline = match deadlines && is_due {
            true => now + 500 * MS,
            false => NEVER,
        };
        if deadline != NEVER || patient {
            let request = Request {
                payload: number,
                rows: 1,
                deadline,
            };
            queue.push(now, request);
            queue.clear();
        }
    }
    (queue.rate() * MS as f64, queue.last_arrival())
}

#[test]
fn beside_requests_with_deadlines_those_without_are_not_waited_for() {
    let (alone, last) = rate(true, false);
    assert!((0.018..0.022).contains(&alone), "one in 50 ms: {alone}");
    let (beside, last_beside) = rate(true, true);
    assert!((0.018..0.022).contains(&beside), "{beside}");
    assert_eq!((last, last_beside), (1_950 * MS, 1_950 * MS));
    let (patient, last) = rate(false, true);
    assert!(
        (0.18..0.22).contains(&patient),
        "one in 5 ms where nobody has one: {patient}"
    );
    assert_eq!(last, 1_995 * MS);
}

/// A fast device, and a slower one at a tenth of its price.
fn fast_and_cheap(policy: Policy) -> Small {
    let mut small = Small::of(policy, 1, &[spec(8)]);
    small.up(7, PoolIx::new(3), 1);
    let cheap = QueueSpec {
        price: 0.1,
        ..slower(4)
    };
    small.load(PoolIx::new(3), 0, &cheap);
    small
}

#[test]
fn what_the_cheaper_pool_can_run_in_time_is_left_to_it() {
    for policy in [Policy::Eager, Policy::Sextant] {
        let mut small = fast_and_cheap(policy);
        let first = batch(&small.request(0, 0, 1, NEVER));
        assert_eq!(first.device, DeviceIx::new(7), "{policy}: light load");
        assert_eq!(small.request(10, 0, 2, 9_000), [], "{policy}: it waits");
        assert_eq!(
            batch(&small.result(440, first.id)).device,
            DeviceIx::new(7),
            "{policy}"
        );
    }
}

#[test]
fn what_the_cheaper_pool_cannot_run_in_time_goes_to_the_dearer_one() {
    for policy in [Policy::Eager, Policy::EagerWeak] {
        let mut small = fast_and_cheap(policy);
        let first = batch(&small.request(0, 0, 1, NEVER));
        assert_eq!(first.device, DeviceIx::new(7));
        assert_eq!(
            batch(&small.request(0, 0, 2, 300)).device,
            DeviceIx::new(0),
            "{policy}"
        );
        let mut small = fast_and_cheap(policy);
        small.request(0, 0, 1, NEVER);
        assert_eq!(small.request(0, 0, 2, 2_000), [], "{policy}");
        // It runs for 440 ns on the cheaper one, which is still busy.
        let next = small.scheduler.next_timer().unwrap();
        assert!((1_500..=1_600).contains(&next), "{policy}: {next}");
        assert_eq!(
            batch(&small.timer(next)).device,
            DeviceIx::new(0),
            "{policy}"
        );
    }
}

/// Poisson requests of one row on four cheap devices and two that are dear and four times as fast.
struct MixedLoad {
    small: Small,
    run: [LatencyTable; 2],
    /// By device: until when it is busy, and with what. The dear ones come first.
    devices: [(Nanos, Option<BatchId>); 6],
    deadlines: Vec<Nanos>,
    /// Requests that were dropped although a dear device was idle at their last moment there.
    left: Vec<u64>,
}

impl MixedLoad {
    const DEAR: usize = 2;
    const SLACK: Nanos = 110 * MS;

    fn new(policy: Policy) -> Self {
        let run = [1.0, 4.0].map(|by| LatencyTable::linear(5.0 * by, 18.0 * by, 8).unwrap());
        let on = |pool: usize, price: f32| QueueSpec {
            latency: run[pool].clone(),
            price,
            ..spec(8)
        };
        let mut small = Small::of(policy, 1, &[on(0, 10.0)]);
        small.up(1, PoolIx::new(0), 1);
        (2..6).for_each(|device| small.up(device, PoolIx::new(1), 1));
        small.load(PoolIx::new(1), 0, &on(1, 1.0));
        Self {
            small,
            run,
            devices: [(0, None); 6],
            deadlines: Vec::new(),
            left: Vec::new(),
        }
    }

    fn serve(mut self, random: &mut ChaCha8Rng, count: usize) -> Vec<u64> {
        let mut arrival: Nanos = 0;
        while self.deadlines.len() < count {
            let end = self.next_end();
            let timer = self.small.scheduler.next_timer().unwrap_or(NEVER);
            let now = end.map_or(NEVER, |(at, _)| at).min(timer).min(arrival);
            let actions = match end {
                Some((at, device)) if at == now => {
                    let id = self.devices[device].1.take().unwrap();
                    self.small.result(now, id)
                }
                _ if timer == now => self.small.timer(now),
                _ => {
                    let payload = self.deadlines.len() as u64;
                    self.deadlines.push(now + Self::SLACK);
                    let gap_ms = -27.0 * (1.0 - random.random::<f64>()).ln();
                    arrival = now + (gap_ms * MS as f64) as Nanos;
                    self.small.request(now, 0, payload, now + Self::SLACK)
                }
            };
            self.carry_out(now, &actions);
        }
        self.left
    }

    /// When the next batch ends, and on which device.
    fn next_end(&self) -> Option<(Nanos, usize)> {
        let busy = self.devices.iter().enumerate();
        let ends = busy.filter_map(|(device, (until, batch))| batch.map(|_| (*until, device)));
        ends.min()
    }

    fn carry_out(&mut self, now: Nanos, actions: &[Action<u64>]) {
        for started in batches(actions) {
            let device = started.device.get() as usize;
            let run = &self.run[usize::from(device >= Self::DEAR)];
            let until = now + run.of(started.requests.len() as u32);
            self.devices[device] = (until, Some(started.id));
        }
        for (payload, _) in drops(actions) {
            let last = self.deadlines[payload as usize] - self.run[0].of(1);
            let was_idle =
                |(until, batch): &(Nanos, Option<BatchId>)| batch.is_none() && *until < last;
            if self.devices[..Self::DEAR].iter().any(was_idle) {
                self.left.push(payload);
            }
        }
    }
}

#[test]
fn nothing_is_given_up_beside_an_idle_device_that_could_run_it() {
    for policy in [Policy::Sextant, Policy::Symphony, Policy::Eager] {
        for seed in 0..4 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let left = MixedLoad::new(policy).serve(&mut random, 10_000);
            assert_eq!(left, [], "{policy}, seed {seed}");
        }
    }
}
