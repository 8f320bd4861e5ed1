//! Work-conserving dispatch, and what every policy shares with it on a busy device.

use sextant_baselines::{Options, Policy};
use sextant_schedule::{DropReason, NEVER, PoolIx, QueueSpec};

use crate::small::{Small, batch, batches, drops, spec};

#[test]
fn a_lone_request_on_an_idle_device_starts_at_once() {
    let at_once = Options {
        hold: 0.0,
        ..Options::of(Policy::Sextant)
    };
    for options in [
        at_once,
        Options::of(Policy::Eager),
        Options::of(Policy::EagerWeak),
    ] {
        let mut small = Small::new(&options, 1, &[spec(32)]);
        let first = batch(&small.request(5, 0, 1, 50_000));
        assert_eq!(
            (first.requests, first.earliest),
            (vec![1], 5),
            "{options:?}"
        );
    }
}

#[test]
fn batches_grow_while_the_device_is_busy() {
    let mut small = Small::of(Policy::Eager, 1, &[spec(4)]);
    let first = small.occupy(0, 0);
    for payload in 1..=6 {
        assert_eq!(small.request(payload, 0, payload, NEVER), []);
    }
    let second = batch(&small.result(110, first));
    assert_eq!(second.requests, [1, 2, 3, 4]);
    assert_eq!(batch(&small.result(250, second.id)).requests, [5, 6]);
}

#[test]
fn a_batch_stops_growing_where_its_earliest_deadline_would_be_missed() {
    let mut small = Small::of(Policy::Eager, 1, &[spec(8)]);
    let first = small.occupy(0, 0);
    // Two rows take 120 ns, three 130: the first deadline leaves room for two.
    for payload in 1..=4 {
        small.request(0, 0, payload, if payload == 1 { 325 } else { 900 });
    }
    assert_eq!(batch(&small.result(200, first)).requests, [1, 2]);
}

#[test]
fn what_cannot_be_met_is_refused_at_once_or_when_it_becomes_impossible() {
    let mut small = Small::of(Policy::Eager, 1, &[spec(8)]);
    let refused = small.request(0, 0, 0, 109);
    assert_eq!(drops(&refused), [(0, DropReason::Infeasible)]);
    small.occupy(0, 0);
    assert_eq!(small.request(0, 0, 2, 150), []);
    // It takes 110 ns, so 40 is its last moment.
    assert_eq!(drops(&small.timer(41)), [(2, DropReason::Expired)]);
    assert_eq!(small.scheduler.next_timer(), None);
}

#[test]
fn a_variant_with_many_threads_is_not_overtaken_for_ever() {
    let wide = QueueSpec {
        slots: 2,
        ..spec(1)
    };
    let mut small = Small::of(Policy::Eager, 2, &[spec(1), wide]);
    let narrow = small.occupy(0, 0);
    assert_eq!(small.request(1, 1, 1, NEVER), [], "needs both slots");
    assert_eq!(small.request(2, 0, 2, NEVER), [], "must not overtake");
    assert_eq!(batch(&small.result(3, narrow)).requests, [1]);
}

#[test]
fn the_load_counts_running_and_waiting_work() {
    let mut small = Small::of(Policy::Eager, 1, &[spec(8)]);
    let load = small.scheduler.load(PoolIx::new(0));
    assert_eq!(
        (load.slots, load.idle, load.busy_until, load.queued),
        (1, 1, 0, 0)
    );
    small.occupy(0, 0);
    assert_eq!(
        small.scheduler.load(PoolIx::new(0)).busy_until,
        110,
        "one row takes 110 ns"
    );
    small.request(10, 0, 1, NEVER);
    let load = small.scheduler.load(PoolIx::new(0));
    assert_eq!((load.idle, load.busy_until, load.queued), (0, 110, 110));
}

#[test]
fn the_weak_order_forgets_the_deadline_once_the_plan_has_passed() {
    let first_of = |policy| {
        let mut small = Small::of(policy, 1, &[spec(8), spec(8)]);
        let running = small.occupy(0, 0);
        // Both are past their frontrun when the last of them comes, so that the weak order is that
        // of the moments at which they were last looked at.
        small.request(230, 0, 1, 348);
        small.request(232, 1, 2, 343);
        batches(&small.result(232, running))[0].requests.clone()
    };
    assert_eq!(first_of(Policy::Eager), [2]);
    assert_eq!(first_of(Policy::EagerWeak), [1]);
}

#[test]
fn the_timeout_closes_a_batch_at_a_preferred_size_or_when_its_first_has_waited() {
    let options = Options {
        preferred_rows: vec![2],
        max_queue_delay: 70,
        ..Options::of(Policy::Timeout)
    };
    let mut small = Small::new(&options, 1, &[spec(8)]);
    assert_eq!(small.request(0, 0, 1, 5_000), []);
    let pair = batch(&small.request(20, 0, 2, 5_000));
    assert_eq!((pair.requests, pair.earliest), (vec![1, 2], 20));
    assert_eq!(small.result(140, pair.id), []);
    assert_eq!(small.request(150, 0, 3, 5_000), []);
    assert_eq!(batch(&small.timer(220)).requests, [3]);
    // It knows no run times: only what has passed is given up.
    assert_eq!(small.request(230, 0, 4, 340), []);
    assert_eq!(small.late_timer(300), [], "the device is busy");
    assert_eq!(drops(&small.timer(340)), [(4, DropReason::Expired)]);
}
