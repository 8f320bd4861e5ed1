//! How much earlier candidates are offered, and what those that missed much are moved forward by.

use super::bench::{Bench, MS, spec};
use sextant_schedule::PoolIx;

fn early(devices: (u16, u16)) -> u64 {
    let mut bench = Bench::new(spec(1.0, 4.0), 0.0, devices);
    if devices.1 == 0 {
        bench.fleet.pool_mut(PoolIx::new(0)).observe(0);
    }
    bench.eagerness().early
}

#[test]
fn candidates_are_offered_earlier_where_devices_are_scarce() {
    // A device of twelve is free each millisecond.
    assert_eq!(early((12, 12)), 4 * MS);
    assert_eq!(early((12, 11)), 4 * MS, "but for the one at hand");
    // Two more, of the root of nine: a third of the reserve is missing.
    assert!(early((12, 9)).abs_diff(2 * MS) <= 1);
    assert_eq!(early((12, 6)), MS);
    assert_eq!(early((1, 1)), 48 * MS);
    assert_eq!(early((4, 0)), 0, "nothing ran yet");
}

#[test]
fn an_idle_device_is_worth_the_share_of_time_in_which_there_is_none() {
    let bench = Bench::new(spec(1.0, 4.0), 0.0, (12, 2));
    assert_eq!(bench.eagerness().worth, 0.0);
    assert_eq!(bench.crowded().eagerness().worth, 0.5);
    // Six of twelve by the last second: two of the root of six are there, 0.45 of it with one more.
    let reserve = 6.0_f64.sqrt();
    let bench = Bench::new(spec(1.0, 4.0), 0.0, (12, 2)).crowded();
    assert_eq!(bench.eagerness().early, MS);
    let mut bench = Bench::new(spec(1.0, 4.0), 0.0, (8, 5)).crowded();
    bench.occupy(1, 12 * MS);
    // Six of eight are busy, one beyond the one at hand is idle.
    let due = 1.5 * (1.0 + 3.0 * (1.0 - 1.0 / reserve)) * MS as f64;
    assert!(bench.eagerness().early.abs_diff(due as u64) <= 1);
}

/// How far a queue's candidate is ahead of its latest start, ns.
fn ahead(bench: &mut Bench, now: u64) -> u64 {
    bench.ask(now, 1000 * MS);
    let formed = bench.form(now).unwrap();
    assert_eq!(formed.latest, now + 995 * MS);
    formed.latest - formed.rank
}

fn lose(bench: &mut Bench, count: u32) {
    (0..count).for_each(|_| bench.ask(0, 1000 * MS));
    bench.queue.clear(bench.delay);
}

fn about(got: u64, misses: f64) {
    let due = misses * 300_000.0;
    // Sums of thousandths are rounded.
    assert!((got as f64 - due).abs() < 600.0, "{got} of {due}");
}

#[test]
fn a_queue_goes_ahead_for_each_miss_beyond_its_part() {
    let mut bench = Bench::new(spec(1.0, 4.0), 0.0, (1, 1));
    assert_eq!(ahead(&mut bench, 0), 0);
    bench.queue.clear(bench.delay);
    // It may miss eight in a thousand: of 6 that came and one that comes now 5 were lost before.
    let mut bench = Bench::new(spec(1.0, 4.0), 0.0, (1, 1));
    lose(&mut bench, 5);
    about(ahead(&mut bench, 0), 5.0 - 6.0 * 0.008);
    // Times the weight.
    let mut heavy = spec(1.0, 4.0);
    heavy.weight = 3.0;
    let mut bench = Bench::new(heavy, 0.0, (1, 1));
    lose(&mut bench, 5);
    about(ahead(&mut bench, 0), 3.0 * (5.0 - 6.0 * 0.008));
}

#[test]
fn no_more_than_twenty_misses_count_and_forty_are_remembered() {
    let mut bench = Bench::new(spec(1.0, 4.0), 0.0, (1, 1));
    (0..4).for_each(|_| lose(&mut bench, 50));
    about(ahead(&mut bench, 0), 20.0);
    // Each request pays back eight in a thousand: 2,600 pay 20.8 of 40.
    for _ in 1..2600 {
        let formed = bench.form(0).unwrap();
        bench.queue.take(&formed, bench.delay);
        bench.ask(0, 1000 * MS);
    }
    let formed = bench.form(0).unwrap();
    about(formed.latest - formed.rank, 40.0 - 20.8);
}

#[test]
fn an_idle_queue_saves_up_ten_misses() {
    let mut bench = Bench::new(spec(1.0, 4.0), 0.0, (1, 1));
    for _ in 0..2000 {
        bench.ask(0, 1000 * MS);
        let formed = bench.form(0).unwrap();
        bench.queue.take(&formed, bench.delay);
    }
    // Each of the twelve that are lost comes first, when ten are saved already.
    lose(&mut bench, 12);
    about(ahead(&mut bench, 0), 2.0 - 0.008);
}
