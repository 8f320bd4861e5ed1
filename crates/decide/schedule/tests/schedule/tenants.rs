//! Start-time fair queueing event by event. A batch of n rows takes 100 + 10 n ns.

use sextant_baselines::Policy;
use sextant_schedule::{Backlog, BatchId, NEVER, Nanos, PoolIx, QueueSpec};

use crate::small::{Small, batch, batches, drops, spec};
use sextant_types::index::{QueueIx, TenantIx};

const SECOND: Nanos = 1_000_000_000;

fn of(tenant: u32, max_rows: u32) -> QueueSpec {
    QueueSpec {
        tenant: TenantIx::new(tenant),
        ..spec(max_rows)
    }
}

/// One slot for so many tenants of one queue each, of the same weight and priority.
fn tenants(count: u32) -> Small {
    let specs: Vec<QueueSpec> = (0..count).map(|tenant| of(tenant, 8)).collect();
    Small::of(Policy::Eager, 1, &specs)
}

fn backlogs(small: &Small) -> Vec<Backlog> {
    let mut all = Vec::new();
    small
        .scheduler
        .backlogs(PoolIx::new(0), &mut |it| all.push(it));
    all
}

fn lags(small: &Small) -> Vec<Nanos> {
    backlogs(small).iter().map(|it| it.lag).collect()
}

/// Runs a lone request of a queue without a target, from `now` on; tells when it has ended.
fn run(small: &mut Small, now: Nanos, queue: QueueIx) -> Nanos {
    let running = small.occupy(now, queue.get());
    assert_eq!(small.result(now + 110, running), []);
    now + 110
}

#[test]
fn a_backlog_says_what_waits_and_what_may_go_together() {
    let wide = QueueSpec {
        slots: 2,
        weight: 3.0,
        priority: 101,
        ..of(7, 8)
    };
    let mut small = Small::of(Policy::Eager, 3, &[of(0, 4), wide, of(7, 2)]);
    small.occupy(0, 0);
    small.occupy(0, 1);
    for payload in 0..5 {
        small.request(0, 0, payload, NEVER);
    }
    let [first, second] = backlogs(&small)[..] else {
        panic!("two tenants");
    };
    // Of five rows four take 140 ns, and one 110.
    assert_eq!(
        (first.tenant.get(), first.priority, first.weight),
        (0, 100, 1.0)
    );
    assert_eq!((first.work, first.batch, first.lag), (250, 140, 110));
    // The larger batch of its two queues, on two slots.
    assert_eq!(
        (second.tenant.get(), second.work, second.batch),
        (7, 0, 2 * 180)
    );
}

#[test]
fn a_batch_moves_its_tenant_on_by_its_work_over_the_weight() {
    let heavy = QueueSpec {
        weight: 2.0,
        slots: 2,
        ..of(1, 8)
    };
    let light = QueueSpec {
        weight: 0.25,
        ..of(2, 8)
    };
    for (queue, lag) in [(0, 110), (1, 110), (2, 440)] {
        let mut small = Small::of(Policy::Eager, 2, &[of(0, 8), heavy.clone(), light.clone()]);
        small.occupy(0, queue);
        assert_eq!(lags(&small)[queue as usize], lag, "110 ns on each slot");
    }
}

#[test]
fn virtual_time_is_the_least_start_of_those_who_wait_or_begin() {
    // Alone, it is the start of the batch that began last.
    let mut small = tenants(2);
    let now = run(&mut small, 0, QueueIx::new(0));
    run(&mut small, now, QueueIx::new(0));
    assert_eq!(lags(&small), [110, 0]);
    // Who waits since the beginning holds it at 0.
    let mut small = tenants(2);
    let running = small.occupy(0, 0);
    small.request(0, 0, 1, NEVER);
    small.request(1, 1, 2, NEVER);
    assert_eq!(batch(&small.result(110, running)).requests, [1]);
    assert_eq!(lags(&small), [220, 0]);
    // One of another priority has a time of its own.
    let lower = QueueSpec {
        priority: 99,
        ..of(1, 8)
    };
    let mut small = Small::of(Policy::Eager, 1, &[of(0, 8), lower]);
    let running = small.occupy(0, 0);
    small.request(0, 0, 1, NEVER);
    small.request(1, 1, 2, NEVER);
    assert_eq!(batch(&small.result(110, running)).requests, [1]);
    assert_eq!(lags(&small), [110, 0]);
}

#[test]
fn nobody_saves_up_shares_while_it_is_idle() {
    let mut small = Small::of(Policy::Eager, 1, &[of(0, 8), of(1, 1)]);
    let mut now = 0;
    for _ in 0..3 {
        now = run(&mut small, now, QueueIx::new(0));
    }
    // Virtual time is 220: two batches of one row begin at 220 and 330.
    let first = small.occupy(now, 1);
    small.request(now, 1, 1, NEVER);
    small.request(now, 1, 2, NEVER);
    let second = batch(&small.result(now + 110, first));
    assert_eq!(second.requests, [1]);
    // What waits holds the time at its tag.
    assert_eq!(lags(&small)[1], 110);
    let third = batch(&small.result(now + 220, second.id));
    assert_eq!(third.requests, [2]);
    assert_eq!(lags(&small), [0, 110]);
}

#[test]
fn what_leaves_is_forgotten_and_nothing_else_is() {
    let unload = |small: &mut Small, queue| {
        let mut actions = Vec::new();
        small
            .scheduler
            .on_unloaded(200, PoolIx::new(0), queue, &mut actions);
        drops(&actions).len()
    };
    let mut small = Small::of(Policy::Eager, 1, &[of(0, 8), of(1, 8), of(1, 8)]);
    small.occupy(0, 1);
    small.request(0, 0, 1, NEVER);
    small.request(0, 2, 2, NEVER);
    assert_eq!(unload(&mut small, QueueIx::new(2)), 1);
    let left = |small: &Small| -> Vec<(u32, Nanos, Nanos)> {
        let all = backlogs(small);
        all.iter()
            .map(|it| (it.tenant.get(), it.work, it.lag))
            .collect()
    };
    assert_eq!(left(&small), [(0, 110, 0), (1, 0, 110)]);
    assert_eq!(unload(&mut small, QueueIx::new(0)), 1);
    assert_eq!(left(&small), [(1, 0, 110)], "its priority goes on");
    assert_eq!(unload(&mut small, QueueIx::new(1)), 0);
    assert_eq!(left(&small), []);
}

#[test]
fn a_tenant_keeps_what_it_has_had_unless_its_priority_changes() {
    let loaded = |priority| {
        let mut small = Small::of(Policy::Eager, 1, &[of(0, 8), of(0, 8)]);
        run(&mut small, 0, QueueIx::new(0));
        let again = QueueSpec {
            priority,
            ..of(0, 8)
        };
        small.load(PoolIx::new(0), 1, &again);
        lags(&small)
    };
    assert_eq!(loaded(100), [110]);
    assert_eq!(loaded(101), [0]);
}

/// The first tenant has had a batch, which runs until 110. Then three rows of it wait, and a row of
/// another, by these deadlines: which of the two queues goes first.
fn first(deadlines: (Nanos, Nanos), others: QueueSpec) -> usize {
    let mut small = Small::of(Policy::Eager, 1, &[of(0, 8), others]);
    let running = small.occupy(0, 0);
    for payload in 0..3 {
        assert_eq!(small.request(0, 0, payload, deadlines.0), []);
    }
    assert_eq!(small.request(0, 1, 9, deadlines.1), []);
    let started = batches(&small.result(110, running));
    usize::from(started[0].requests[0] == 9)
}

#[test]
fn a_pool_is_contended_when_more_waits_than_half_of_the_least_room() {
    // 130 ns and 110 ns wait. A deadline of 590 leaves 480 ns beside the own run of 110 ns.
    assert_eq!(first((590, 600), of(1, 8)), 0);
    assert_eq!(first((589, 600), of(1, 8)), 1);
    // The least room is that of the second one here, whose deadline comes last all the same.
    let slower = QueueSpec {
        latency: spec(8).latency,
        ..of(1, 8)
    };
    assert_eq!(first((591, 1000), slower), 0);
}

#[test]
fn who_is_ahead_by_more_than_an_eighth_of_the_room_goes_after() {
    // The first one's tag is 110, the other's 0: a room of 880 ns is eight times as much.
    assert_eq!(first((500, 990), of(1, 8)), 0);
    assert_eq!(first((500, 989), of(1, 8)), 1);
    // One of a lower priority goes after, whatever it has had.
    let lower = QueueSpec {
        priority: 99,
        ..of(1, 8)
    };
    assert_eq!(first((500, 600), lower), 0);
    // Another queue of the same tenant has had the same.
    assert_eq!(first((500, 600), of(0, 8)), 0);
}

#[test]
fn what_a_query_leaves_counts_at_once() {
    // Three rows of the first tenant, whose tag is 110, and a row of another with a room of 2000 ns.
    let first = |count: u32, more: bool| {
        let mut small = tenants(count);
        let running = small.occupy(0, 0);
        (0..3).for_each(|payload| drop(small.request(0, 0, payload, 500)));
        small.request(0, 1, 8, 2110);
        if more {
            small.request(0, 1, 9, 600);
        }
        let started = batches(&small.result(110, running));
        started[0].requests[0]
    };
    for count in [2, 3] {
        assert_eq!(first(count, false), 0);
        // With 490 ns another one may be ahead by 61 ns.
        assert_eq!(first(count, true), 9);
    }
}

#[test]
fn who_waits_no_more_does_not_limit_the_others() {
    // As in the test before the last, but a third tenant had 100 ns to spare until it could not be met.
    let mut small = tenants(3);
    let running = small.occupy(0, 0);
    (0..3).for_each(|payload| drop(small.request(0, 0, payload, 500)));
    small.request(0, 1, 8, 990);
    small.request(0, 2, 9, 210);
    assert_eq!(drops(&small.timer(101)).len(), 1);
    assert_eq!(batch(&small.result(110, running)).requests, [0, 1, 2]);
    // Nor does one of another priority that waits.
    let lower = QueueSpec {
        priority: 99,
        ..of(2, 8)
    };
    let mut small = Small::of(Policy::Eager, 1, &[of(0, 8), of(1, 8), lower]);
    let running = small.occupy(0, 0);
    (0..3).for_each(|payload| drop(small.request(0, 0, payload, 500)));
    small.request(0, 1, 8, 990);
    small.request(0, 2, 9, 230);
    let started = batches(&small.result(110, running));
    assert_eq!(started[0].requests, [0, 1, 2]);
}

#[test]
fn the_least_room_counts_for_a_second() {
    // A room of 390 ns at first, then one of 490: 240 ns wait, more than half of the former.
    let first = |later: Nanos| {
        let mut small = tenants(2);
        let running = batch(&small.request(0, 0, 0, 500)).id;
        small.result(110, running);
        let running = small.occupy(later, 0);
        for payload in 1..4 {
            small.request(later, 0, payload, later + 600);
        }
        small.request(later, 1, 9, later + 800);
        let started = batches(&small.result(later + 110, running));
        usize::from(started[0].requests[0] == 9)
    };
    assert_eq!(first(SECOND), 1);
    assert_eq!(first(SECOND + 1), 0);
}

/// A tenant of which `rows` rows wait behind a batch, beside another one whose queries have `room` and of
/// whom nothing waits: how many rows its next batch has, `later` after the other's query.
fn rows_beside(room: Nanos, rows: u64, later: Nanos, other: &QueueSpec) -> usize {
    let small = Small::of(Policy::Eager, 1, &[of(0, 64), other.clone()]);
    rows_on(small, room, rows, later)
}

fn rows_on(mut small: Small, room: Nanos, rows: u64, later: Nanos) -> usize {
    let now = run(&mut small, 0, QueueIx::new(0));
    let quick = batch(&small.request(now, 1, 1, now + 110 + room)).id;
    small.result(now + 110, quick);
    let running: BatchId = small.occupy(now + 110, 0);
    if small.scheduler.load(PoolIx::new(0)).idle > 0 {
        small.occupy(now + 110, 0);
    }
    for payload in 0..rows {
        small.request(now + 110, 0, payload, NEVER);
    }
    let next = batch(&small.result(now + later, running));
    next.requests.len()
}

#[test]
fn a_batch_takes_half_of_the_room_of_who_is_due_next() {
    let equal = of(1, 64);
    // Fifty rows take 600 ns: no more than half of the room, and one nanosecond more.
    assert_eq!(rows_beside(1200, 50, 300, &equal), 50);
    assert_eq!(rows_beside(1198, 50, 300, &equal), 49);
    assert_eq!(rows_beside(1000, 50, 300, &equal), 40);
    // Four times the fixed cost of 100 ns is always allowed.
    assert_eq!(rows_beside(700, 50, 300, &equal), 30);
    assert_eq!(rows_beside(10, 50, 300, &equal), 30);
    assert_eq!(rows_beside(1000, 20, 300, &equal), 20);
}

#[test]
fn a_room_counts_for_batches_for_a_second_after_the_query() {
    let equal = of(1, 64);
    assert_eq!(rows_beside(1000, 50, SECOND, &equal), 40);
    assert_eq!(rows_beside(1000, 50, SECOND + 1, &equal), 50);
}

#[test]
fn batches_are_short_for_who_is_due_next_alone() {
    let with = |priority, weight| QueueSpec {
        priority,
        weight,
        ..of(1, 64)
    };
    assert_eq!(rows_beside(1000, 50, 300, &with(101, 1.0)), 40);
    assert_eq!(rows_beside(1000, 50, 300, &with(99, 1.0)), 50);
    // By its weight it has had more than the first one, and comes after it.
    assert_eq!(rows_beside(1000, 50, 300, &with(100, 0.1)), 50);
    assert_eq!(
        rows_beside(1000, 50, 300, &of(0, 64)),
        50,
        "the same tenant"
    );
}

#[test]
fn what_waits_is_compared_with_the_room_on_all_slots() {
    // Two slots do 600 ns in 300 ns each; where a batch must be short it may take 400 ns.
    let two = || Small::of(Policy::Eager, 2, &[of(0, 64), of(1, 64)]);
    assert_eq!(rows_on(two(), 600, 50, 300), 50);
    assert_eq!(rows_on(two(), 598, 50, 300), 30);
}
