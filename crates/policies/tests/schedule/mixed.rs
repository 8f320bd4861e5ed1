//! Several queues, pools and tenants.

use sextant_policies::schedule::{
    DropReason, LatencyTable, NEVER, Nanos, Policy, QueueSpec, Request,
};

use crate::small::{Small, batch, drops, spec};

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
    small.up(7, 3, 1);
    small.load(3, 0, &slower(4));
    assert_eq!(batch(&small.request(0, 0, 1, 9_000)).worker, 0);
    // One row takes 440 ns on the slower pool: the first waits for the faster one.
    assert_eq!(small.request(1, 0, 2, 400), []);
    let third = small.request(2, 0, 3, 9_000);
    assert_eq!(batch(&third).worker, 7);
    assert_eq!(
        batch(&third).requests,
        [3],
        "what only the other can meet stays for it"
    );
}

#[test]
fn waiting_work_counts_where_it_can_be_done() {
    let mut small = Small::of(Policy::Eager, 1, &[spec(1)]);
    small.up(1, 1, 1);
    small.load(1, 0, &spec(1));
    for payload in 0..6 {
        small.request(0, 0, payload, NEVER);
    }
    let queued = [0, 1].map(|pool| small.scheduler.load(pool).queued);
    assert_eq!(queued, [220, 220], "four wait for two pools");
    let mut actions = Vec::new();
    small.scheduler.on_unloaded(0, 1, 0, &mut actions);
    assert_eq!(actions, [], "the other pool still takes them");
    let queued = [0, 1].map(|pool| small.scheduler.load(pool).queued);
    assert_eq!(queued, [440, 0]);
    small.scheduler.on_unloaded(0, 0, 0, &mut actions);
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
            let next = crate::small::batches(&actions).remove(0);
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

/// A fast device, and a slower one at a tenth of its price.
fn fast_and_cheap(policy: Policy) -> Small {
    let mut small = Small::of(policy, 1, &[spec(8)]);
    small.up(7, 3, 1);
    let cheap = QueueSpec {
        price: 0.1,
        ..slower(4)
    };
    small.load(3, 0, &cheap);
    small
}

#[test]
fn what_the_cheaper_pool_can_run_in_time_is_left_to_it() {
    for policy in [Policy::Eager, Policy::Sextant] {
        let mut small = fast_and_cheap(policy);
        let first = batch(&small.request(0, 0, 1, NEVER));
        assert_eq!(first.worker, 7, "{policy}: light load");
        assert_eq!(small.request(10, 0, 2, 9_000), [], "{policy}: it waits");
        assert_eq!(batch(&small.result(440, first.id)).worker, 7, "{policy}");
    }
}

#[test]
fn what_the_cheaper_pool_cannot_run_in_time_goes_to_the_dearer_one() {
    for policy in [Policy::Eager, Policy::EagerWeak] {
        let mut small = fast_and_cheap(policy);
        let first = batch(&small.request(0, 0, 1, NEVER));
        assert_eq!(first.worker, 7);
        assert_eq!(batch(&small.request(0, 0, 2, 300)).worker, 0, "{policy}");
        let mut small = fast_and_cheap(policy);
        small.request(0, 0, 1, NEVER);
        assert_eq!(small.request(0, 0, 2, 2_000), [], "{policy}");
        // It runs for 440 ns on the cheaper one, which is still busy.
        let next = small.scheduler.next_timer().unwrap();
        assert!((1_500..=1_600).contains(&next), "{policy}: {next}");
        assert_eq!(batch(&small.timer(next)).worker, 0, "{policy}");
    }
}
