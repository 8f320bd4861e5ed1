//! What is given up at the head of a batch. While the rate is unknown, a dropped request is charged
//! alpha + beta x -ln(0.008) = 1 + 4 x 4.83 = 20.3 ms.

use sextant_schedule::{DropReason, NEVER, PoolIx};

use super::bench::{Bench, MS, spec};

/// One busy device of `slots` with `later` requests behind a first one whose deadline leaves room for a
/// batch of `rows`.
fn queue(later: u32, rows: u64, (slots, busy): (u16, u16)) -> Bench {
    let mut bench = Bench::new(spec(1.0, 4.0), 0.0, (slots, busy));
    bench.ask(0, (rows + 4) * MS);
    (0..later).for_each(|_| bench.ask(0, 100 * MS));
    bench
}

/// How many requests are shed, and the rows of the batch.
fn shed(mut bench: Bench) -> (usize, u32) {
    let formed = bench.form(0).unwrap();
    let all_shed = bench.dropped.iter().all(|it| it.1 == DropReason::Shed);
    assert!(all_shed, "{:?}", bench.dropped);
    (bench.dropped.len(), formed.rows)
}

#[test]
fn a_head_is_dropped_where_the_rest_costs_less_for_each_request() {
    // One row alone takes 5 ms. Nine after a drop: (13 + 20.3) / 10 = 3.33 ms for each of ten.
    assert_eq!(shed(queue(9, 1, (1, 1))), (1, 9));
    // Two together take 3 ms each, less than that.
    assert_eq!(shed(queue(9, 2, (1, 1))), (0, 2));
    // Fifteen after a drop: (19 + 20.3) / 16 = 2.46 ms for each of sixteen.
    assert_eq!(shed(queue(15, 2, (1, 1))), (1, 15));
    assert_eq!(shed(queue(15, 3, (1, 1))), (0, 3));
    // (8 + 20.3) / 5 = 5.66 ms of four, (9 + 20.3) / 6 = 4.89 ms of five.
    assert_eq!(shed(queue(4, 1, (1, 1))), (0, 1));
    assert_eq!(shed(queue(5, 1, (1, 1))), (1, 5));
}

#[test]
fn nothing_is_dropped_beside_another_idle_device() {
    assert_eq!(shed(queue(9, 1, (1, 0))), (1, 9));
    assert_eq!(shed(queue(9, 1, (2, 1))), (1, 9));
    assert_eq!(shed(queue(9, 1, (2, 0))), (0, 1));
    assert_eq!(shed(queue(9, 1, (3, 1))), (0, 1));
    // Nor beside batches without a deadline.
    let mut shared = queue(9, 1, (1, 1));
    shared.fleet.pool_mut(PoolIx::new(0)).share(0, 10 * MS);
    assert_eq!(shed(shared), (0, 1));
}

#[test]
fn nothing_is_dropped_where_all_run_together_or_the_batch_is_full() {
    assert_eq!(shed(queue(9, 10, (1, 1))), (0, 10));
    assert_eq!(shed(queue(40, 16, (1, 1))), (0, 16));
    assert_eq!(shed(queue(0, 1, (1, 1))), (0, 1));
}

#[test]
fn a_queue_that_has_had_its_part_pays_more_while_devices_suffice() {
    let after_a_loss = |crowded: bool, later: u32| {
        let mut bench = Bench::new(spec(1.0, 4.0), 0.0, (1, 1));
        if crowded {
            // A fifteenth of a second counts a sixteenth, whose fourth root is a half.
            bench.fleet.pool_mut(PoolIx::new(0)).observe(1000 * MS / 15);
        }
        bench.ask(0, 100 * MS);
        bench.queue.clear(bench.delay);
        bench.ask(0, 5 * MS);
        (0..later).for_each(|_| bench.ask(0, 100 * MS));
        shed(bench)
    };
    // Ten in a hundred times a hundred: 3.16 times as much, 64.2 ms. (19 + 64.2) / 16 = 5.2 ms.
    assert_eq!(after_a_loss(false, 15), (0, 1));
    // Twice as much, 40.6 ms: (13 + 40.6) / 10 = 5.36 ms, (15 + 40.6) / 12 = 4.63 ms.
    assert_eq!(after_a_loss(true, 9), (0, 1));
    assert_eq!(after_a_loss(true, 11), (1, 11));
}

#[test]
fn the_rows_of_what_is_dropped_count() {
    // Two rows alone take 3 ms each. After a drop of them thirteen: (17 + 2 x 20.3) / 15 = 3.84 ms.
    let with = |first: u32, later: u32| {
        let mut bench = Bench::new(spec(1.0, 4.0), 0.0, (1, 1));
        bench.rows(0, first, u64::from(first + 4) * MS);
        (0..later).for_each(|_| bench.ask(0, 100 * MS));
        shed(bench)
    };
    assert_eq!(with(2, 13), (0, 2));
    assert_eq!(with(1, 13), (1, 13));
    // A request that its head's deadline leaves no room for is not what a batch begins with.
    let mut bench = Bench::new(spec(1.0, 4.0), 0.0, (1, 1));
    bench.ask(0, 5 * MS);
    bench.rows(0, 4, 8 * MS);
    (0..10).for_each(|_| bench.ask(0, 100 * MS));
    // Both heads: (14 + 5 x 20.3) / 15 = 7.7 ms; the first alone leaves four rows: (8 + 20.3) / 5 = 5.7 ms.
    assert_eq!(shed(bench), (0, 1));
}

#[test]
fn the_heads_are_dropped_with_which_the_rest_costs_least() {
    // A fixed cost of 0.5 ms: a dropped request is charged 3.41 ms. Each head leaves room for itself and
    // those before it alone.
    let with = |heads: u64, later: u32| {
        let mut bench = Bench::new(spec(1.0, 0.5), 0.0, (1, 1));
        for head in 0..heads {
            bench.ask(0, (2 + head) * MS);
        }
        (0..later).for_each(|_| bench.ask(0, 100 * MS));
        shed(bench)
    };
    // The first alone takes 1.5 ms; (14.5 + 3.41) / 15 = 1.19 ms.
    assert_eq!(with(1, 14), (1, 14));
    // One of two: (2.5 + 3.41) / 3 = 1.97 ms. Both: (13.5 + 6.83) / 15 = 1.36 ms.
    assert_eq!(with(2, 13), (2, 13));
    // Three: (12.5 + 10.24) / 15 = 1.52 ms, and (13.5 + 10.24) / 16 = 1.48 ms.
    assert_eq!(with(3, 12), (0, 1));
    assert_eq!(with(3, 13), (3, 13));
}

#[test]
fn a_drop_costs_what_it_may_save_at_the_rate_of_the_queue() {
    // Batches of 10.5 rows: 1 + 4 x -ln(0.008 x 10.5) / 10.5 = 1.94 ms.
    const NOW: u64 = 149 * MS;
    let with = |rows: u64, later: u32| {
        let mut bench = Bench::new(spec(1.0, 4.0), 0.0, (1, 1)).fed(MS, NOW);
        bench.ask(NOW, (rows + 4) * MS);
        (0..later).for_each(|_| bench.ask(NOW, 100 * MS));
        let formed = bench.form(NOW).unwrap();
        (bench.dropped.len(), formed.rows)
    };
    // Twelve rows take 1.333 ms each: (19 + 1.94) / 16 = 1.309 ms, (18 + 1.94) / 15 = 1.329 ms.
    assert_eq!(with(12, 15), (1, 15));
    assert_eq!(with(12, 14), (1, 14));
    // Thirteen take 1.308 ms each.
    assert_eq!(with(13, 15), (0, 13));
}

#[test]
fn what_has_expired_is_not_shed() {
    let mut bench = Bench::new(spec(1.0, 4.0), 0.0, (1, 1));
    bench.ask(0, 6 * MS);
    bench.ask(0, NEVER);
    let formed = bench.form(2 * MS).unwrap();
    assert_eq!(bench.dropped, [(0, DropReason::Expired)]);
    assert_eq!(formed.rows, 1);
    // Nothing that can be met is left.
    let mut bench = Bench::new(spec(1.0, 4.0), 0.0, (1, 1));
    bench.ask(0, 6 * MS);
    assert_eq!(bench.form(2 * MS), None);
    assert_eq!(bench.dropped, [(0, DropReason::Expired)]);
}

#[test]
fn a_batch_is_not_dropped_for_the_sake_of_nobody() {
    const NOW: u64 = 149 * MS;
    let mut bench = Bench::new(spec(1.0, 4.0), 0.0, (1, 1)).fed(MS, NOW);
    bench.ask(NOW, 5 * MS);
    bench.ask(NOW, 6 * MS);
    bench.rows(NOW, 12, 16 * MS);
    // The first cannot be met any more, nor can the twelve rows of the last, which would take 16 ms.
    let formed = bench.form(NOW + MS).unwrap();
    assert_eq!(bench.dropped, [(0, DropReason::Expired)]);
    assert_eq!(formed.rows, 1);
}
