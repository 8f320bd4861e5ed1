//! Autoscalers in use, against numbers computed by hand from their documentation.

use sextant_scaling::autoscale::{
    Autoscaler, Hpa, KedaQueue, Kpa, Observation, Policy, Service, Setting,
};

/// 160 ms a request: one replica at its target of 0.8 takes 5 requests a second.
const SETTING: Setting = Setting {
    processors: 100,
    target_ms: 720.0,
    service: Service {
        mean_s: 0.16,
        deviation_s: 0.0,
    },
};

fn seen(desired: u32) -> Observation<'static> {
    Observation {
        desired,
        running: desired,
        busy: false,
        mean_latency_ms: 200.0,
        arrivals: &[],
        concurrency: &[],
        waiting: 0,
    }
}

/// What a job gets that has `desired` replicas at each tick up to `until_s`: when, s, and how many. What
/// it is given it has at the next tick.
fn play<'a>(
    policy: &mut dyn Autoscaler,
    desired: u32,
    until_s: u32,
    at: impl Fn(u32, u32) -> Observation<'a>,
) -> Vec<(u32, u32)> {
    let (mut desired, mut changes) = (desired, Vec::new());
    for now_s in (10..=until_s).step_by(10) {
        for change in policy.decide(now_s, &[at(now_s, desired)]) {
            desired = change.target;
            changes.push((now_s, desired));
        }
    }
    changes
}

/// Requests in each of two ticks.
fn load(per_tick: u32, desired: u32) -> Observation<'static> {
    let arrivals: &[u32] = match per_tick {
        100 => &[100, 100],
        200 => &[200, 200],
        300 => &[300, 300],
        545 => &[999, 545, 545],
        560 => &[560, 560],
        _ => &[],
    };
    Observation {
        arrivals,
        ..seen(desired)
    }
}

#[test]
fn hpa_grows_by_four_or_to_twice_within_fifteen_seconds() {
    let mut hpa = Hpa::new(&SETTING);
    // 30 a second want 6 replicas. At 30 s the period since 20 s has had its four.
    let grown = play(&mut hpa, 1, 100, |_, desired| load(300, desired));
    assert_eq!(grown, [(20, 5), (50, 6)]);
    // 56 a second want 12: twice 5 is more than 5 and 4.
    let mut hpa = Hpa::new(&SETTING);
    let grown = play(&mut hpa, 5, 100, |_, desired| load(560, desired));
    assert_eq!(grown, [(20, 10), (50, 12)]);
}

#[test]
fn hpa_leaves_what_is_off_by_a_tenth() {
    // 10.9 and 11.2 times the target of one, by the last two ticks alone.
    let mut hpa = Hpa::new(&SETTING);
    assert_eq!(play(&mut hpa, 10, 100, |_, now| load(545, now)), []);
    let mut hpa = Hpa::new(&SETTING);
    assert_eq!(play(&mut hpa, 10, 100, |_, now| load(560, now)), [(20, 12)]);
}

#[test]
fn hpa_takes_away_what_nothing_called_for_in_five_minutes() {
    let mut hpa = Hpa::new(&SETTING);
    let shrunk = play(&mut hpa, 6, 600, |now_s, desired| match now_s {
        200 => load(200, desired),
        _ => load(100, desired),
    });
    // The six of the beginning count until 320 s, the four of 200 s until 500 s.
    assert_eq!(shrunk, [(320, 4), (500, 2)]);
}

#[test]
fn kpa_goes_by_the_mean_of_a_minute() {
    let at = |running: u32, concurrency: &'static [f64]| {
        let seen = Observation {
            concurrency,
            ..seen(running)
        };
        let changes = Kpa::default().decide(60, &[seen]);
        changes.first().map(|change| change.target)
    };
    // 2 / 0.7 and 3.4 / 0.7.
    assert_eq!(at(3, &[2.0; 6]), None);
    assert_eq!(at(3, &[3.4; 6]), Some(5));
    // 1.5 / 0.7; the last tick calls for 6, less than twice as many as serve.
    assert_eq!(at(4, &[50.0, 1.0, 1.0, 1.0, 1.0, 1.0, 4.0]), Some(3));
    // Not less than half, and not less than one.
    assert_eq!(at(10, &[0.0; 6]), Some(5));
    assert_eq!(at(1, &[0.0; 6]), None);
}

#[test]
fn kpa_panics_for_a_minute_and_takes_nothing_away_meanwhile() {
    let mut kpa = Kpa::default();
    let changes = play(&mut kpa, 2, 140, |now_s, desired| Observation {
        concurrency: match now_s {
            // 6 / 0.7 is more than twice 2.
            60 => &[1.0, 1.0, 1.0, 1.0, 1.0, 6.0],
            ..60 => &[1.0],
            _ => &[0.5; 6],
        },
        ..seen(desired)
    });
    // After it half of nine at most are taken away, then half of four.
    assert_eq!(changes, [(60, 9), (130, 4), (140, 2)]);
}

#[test]
fn keda_reads_the_queue_every_thirty_seconds_and_empties_slowly() {
    let mut keda = KedaQueue::default();
    let changes = play(&mut keda, 1, 600, |now_s, desired| Observation {
        waiting: match now_s {
            ..=30 => 23,
            31..90 => 100,
            _ => 0,
        },
        ..seen(desired)
    });
    // 23 / 5; at 50 s the queue has not been read again. 100 / 5, twice as many at a time; the last
    // sync that desired them is at 80 s.
    assert_eq!(changes, [(30, 5), (60, 10), (80, 20), (380, 1)]);
}

#[test]
fn they_go_by_their_names() {
    for name in ["hpa", "kpa", "keda-queue"] {
        let policy = name.parse::<Policy>().expect(name);
        assert_eq!(policy.name(), name);
        assert!(policy.build(&SETTING).decide(10, &[seen(1)]).is_empty());
    }
}
