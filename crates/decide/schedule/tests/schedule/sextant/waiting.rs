//! Whether a candidate waits, until when, and where it stands.

use sextant_schedule::{Delay, NEVER, NextBatch, QueueSpec};

use super::bench::{Bench, MS, SLACK, spec};

/// The last request of those of [`Bench::fed`].
const NOW: u64 = 149 * MS;

/// A candidate of so many requests of a queue with a request a millisecond.
fn candidate(hold: f64, devices: (u16, u16), requests: u32) -> NextBatch {
    formed(
        Bench::new(spec(1.0, 4.0), hold, devices).fed(MS, NOW),
        requests,
    )
}

fn formed(mut bench: Bench, requests: u32) -> NextBatch {
    (0..requests).for_each(|_| bench.ask(NOW, SLACK));
    bench.form(NOW).unwrap()
}

fn starts(formed: NextBatch) -> bool {
    formed.ready_at == 0
}

#[test]
fn a_batch_starts_at_once_while_idle_devices_can_pay_for_it() {
    let starts = |hold, devices, rows| starts(candidate(hold, devices, rows));
    // 1.38 devices and their root, of which 4 / (4 + 1) is fixed cost: 2.04 idle ones.
    assert!(!starts(0.0, (2, 0), 1));
    assert!(starts(0.0, (3, 0), 1));
    // Of four rows 4 / (4 + 4): 1.28 idle ones.
    assert!(!starts(0.0, (1, 0), 4));
    assert!(starts(0.0, (2, 0), 4));
    // (3 + 1.73) 0.8 = 3.79 where three are busy.
    assert!(!starts(0.0, (6, 3), 1));
    assert!(starts(0.0, (7, 3), 1));
    // What is kept idle does not count.
    assert!(!starts(0.5, (4, 0), 1));
    assert!(starts(0.5, (5, 0), 1));
    assert!(!starts(1.0, (50, 0), 1));
}

#[test]
fn what_was_busy_of_late_counts_less_what_larger_batches_would_have_spared() {
    let with = |busy| Bench::new(spec(1.0, 4.0), 0.5, (20, busy)).fed(MS, NOW);
    // Ten of twenty devices, less (1 + 4) - 1.38 by the queue's batches of one row: 6.38. With
    // their root, times 0.8, that is 7.13 idle ones.
    assert!(!starts(formed(with(6).crowded(), 1)), "half of 14");
    assert!(starts(formed(with(5).crowded(), 1)), "half of 15");
    // Six are 6.76.
    assert!(starts(formed(with(6), 1)));
}

#[test]
fn what_left_together_is_what_larger_batches_are_compared_with() {
    // As above, but the last batch had sixteen rows: (15 x 1 + 16) / 16 = 1.94 at a time, which
    // keep 3.06 devices busy, so that 8.31 are counted, and 8.96 have to be idle.
    let with = |busy| {
        let mut bench = Bench::new(spec(1.0, 4.0), 0.5, (20, busy)).fed(MS, NOW);
        (0..16).for_each(|_| bench.ask(NOW, 30 * MS));
        let all = bench.form(NOW).unwrap();
        assert_eq!(bench.queue.take(&all, Delay::default()).1, 16);
        bench.crowded()
    };
    assert!(!starts(formed(with(3), 1)), "half of 17");
    assert!(starts(formed(with(2), 1)), "half of 18");
}

#[test]
fn nobody_is_waited_for_eight_gaps_after_the_last() {
    for devices in [(1, 0), (1, 1)] {
        let mut bench = Bench::new(spec(1.0, 4.0), 0.0, devices).fed(MS, NOW);
        bench.ask(NOW, SLACK);
        assert!(!starts(bench.form(NOW + 8 * MS - 1).unwrap()));
        assert!(starts(bench.form(NOW + 8 * MS).unwrap()));
    }
}

#[test]
fn what_cannot_grow_does_not_wait() {
    let one = |spec: QueueSpec| Bench::new(spec, 1.0, (1, 1)).fed(MS, NOW);
    assert!(starts(formed(one(spec(1.0, 4.0)), 16)), "a full batch");
    assert!(!starts(formed(one(spec(1.0, 4.0)), 15)));
    let single = QueueSpec {
        batched: false,
        ..spec(1.0, 4.0)
    };
    assert!(starts(formed(one(single), 1)), "one that runs alone");
    let mut patient = one(spec(1.0, 4.0));
    patient.ask(NOW, NEVER);
    let formed = patient.form(NOW).unwrap();
    assert!(starts(formed), "one without a deadline");
    assert_eq!((formed.latest, formed.rank), (NEVER, NEVER));
}

#[test]
fn a_candidate_is_ready_when_a_row_more_could_join_for_the_last_time() {
    // Without a known rate nothing is added for rivals.
    let mut bench = Bench::new(spec(1.0, 4.0), 1.0, (1, 1));
    bench.ask(0, SLACK);
    bench.ask(0, SLACK);
    let formed = bench.form(0).unwrap();
    assert_eq!((formed.ready_at, formed.latest), (17 * MS, 18 * MS));
    assert_eq!((formed.rank, formed.rows), (18 * MS, 2));
    // Two rows that run for 6 ms; alone the first could start until 19 ms.
    assert_eq!(formed.until, 19 * MS + 1);
    // Three rows have to be sent.
    bench.delay = Delay {
        control: 1000,
        data_per_row: 100,
        response: 0,
    };
    let formed = bench.form(0).unwrap();
    assert_eq!(formed.ready_at, 17 * MS - 1300);
    assert_eq!(formed.latest, 18 * MS);
    assert_eq!(formed.until, 19 * MS + 1 - 1200);
}

#[test]
fn what_the_pool_is_early_by_for_rivals_is_put_back_where_there_are_none() {
    let late = |devices| {
        let formed = candidate(1.0, devices, 1);
        formed.ready_at as i64 - (NOW + 18 * MS) as i64
    };
    // Three times 12 ms on one device, of which the queue has all.
    assert_eq!(late((1, 1)), 36 * MS as i64);
    // Of ten busy devices half, 3 x 1.2 ms: five for batches of one row.
    assert_eq!(late((10, 10)), 18 * MS as i64 / 10);
    // Of twelve, nine busy: two beyond the one at hand, of a reserve of three: a third.
    let got = late((12, 9));
    let due = (3.0 * 1e6 / 3.0 * 5.0 / 9.0) as i64;
    assert!((got - due).abs() <= 1, "{got} of {due}");
    // More than the reserve.
    assert_eq!(late((13, 9)), 0);
}

#[test]
fn whether_to_wait_is_decided_again_each_quarter_of_a_second() {
    let mut bench = Bench::new(spec(1.0, 4.0), 1.0, (1, 1));
    bench.ask(0, 2000 * MS);
    let mut until = |now| bench.form(now).unwrap().until;
    assert_eq!(until(0), 250 * MS);
    assert_eq!(until(100 * MS), 250 * MS, "a time once set is kept");
    assert_eq!(until(250 * MS - 1), 250 * MS);
    assert_eq!(until(250 * MS), 500 * MS);
    // Once it is ready that is decided.
    assert_eq!(until(1994 * MS), 1995 * MS + 1);
}

#[test]
fn a_candidate_that_is_just_ready_is_not_decided_again() {
    let mut bench = Bench::new(spec(300.0, 100.0), 1.0, (1, 1));
    bench.ask(0, 1000 * MS);
    // Two rows take 700 ms, one 400 ms.
    assert_eq!(bench.form(300 * MS - 1).unwrap().until, 550 * MS - 1);
    let mut bench = Bench::new(spec(300.0, 100.0), 1.0, (1, 1));
    bench.ask(0, 1000 * MS);
    let formed = bench.form(300 * MS).unwrap();
    assert_eq!((formed.ready_at, formed.until), (300 * MS, 600 * MS + 1));
}

/// A queue with a request each 4 ms on one busy device with runs of `run`, and the last of them at 104 ms:
/// when it is formed again if nothing happens after `later`.
fn until(spec: QueueSpec, run: u64, later: u64) -> u64 {
    let mut bench = Bench::new(spec, 1.0, (1, 0));
    bench.occupy(1, run);
    let mut bench = bench.fed(4 * MS, 104 * MS);
    bench.ask(104 * MS, SLACK);
    bench.form(104 * MS + later).unwrap().until - 104 * MS
}

#[test]
fn a_candidate_that_rivals_defer_is_looked_at_when_it_has_to_start() {
    // Ready 36 ms after 18 ms; one row has to start by 19 ms, and it is quiet from 32 ms on.
    assert_eq!(until(spec(1.0, 4.0), 12 * MS, 0), 19 * MS);
    assert_eq!(until(spec(1.0, 4.0), 12 * MS, 19 * MS - 1), 19 * MS);
    assert_eq!(until(spec(1.0, 4.0), 12 * MS, 19 * MS), 19 * MS + 1);
    // Ready 3 ms after 14 ms, just when one row has to start.
    assert_eq!(until(spec(3.0, 4.0), MS, 0), 17 * MS + 1);
    assert_eq!(until(spec(3.0, 4.0), MS + 1, 0), 17 * MS);
}

#[test]
fn waiting_is_worth_the_overlap_for_each_row() {
    for rows in [1, 2, 8, 16] {
        let formed = candidate(0.0, (1, 1), rows);
        assert_eq!((formed.rows, formed.worth), (rows, 4.0 / rows as f32));
    }
}
