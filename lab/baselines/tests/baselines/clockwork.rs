//! Clockwork: batch queues, the order of strategies, growth, the look-ahead, early rejection.

use sextant_baselines::{Options, Policy};
use sextant_schedule::{DropReason, NEVER, PoolIx};

use crate::world::{MS, World, spec};
use sextant_types::index::{DeviceIx, QueueIx};

fn options() -> Options {
    Options::of(Policy::Clockwork)
}

/// A device that is busy with queue 0 for 9 ms. A batch of queue 1 or 2 takes 5 ms and 1 ms for each row.
fn busy() -> World {
    let specs = [spec(4.0, 5.0, 32), spec(1.0, 5.0, 32), spec(1.0, 5.0, 32)];
    let mut world = World::with(&options(), 1, &specs);
    world.request(QueueIx::new(0), NEVER);
    assert_eq!(world.log[0].end, 9 * MS);
    world
}

#[test]
fn sixteen_that_wait_grow_into_one_batch() {
    let mut world = busy();
    world.requests(16, QueueIx::new(1), 100 * MS);
    world.pass(8 * MS);
    assert_eq!(world.log[1].rows(), 16);
}

#[test]
fn a_batch_has_a_size_that_was_compiled() {
    let mut world = busy();
    world.requests(15, QueueIx::new(1), 200 * MS);
    world.drain();
    let rows: Vec<u32> = world.log[1..].iter().map(|sent| sent.rows()).collect();
    assert_eq!(rows, [8, 4, 2, 1]);
}

#[test]
fn any_size_may_be_allowed() {
    let batch_sizes = vec![];
    let options = Options {
        batch_sizes,
        ..options()
    };
    let mut world = World::with(&options, 1, &[spec(1.0, 5.0, 32)]);
    world.requests(14, QueueIx::new(0), 200 * MS);
    world.drain();
    let rows: Vec<u32> = world.log.iter().map(|sent| sent.rows()).collect();
    assert_eq!(rows, [1, 13]);
}

#[test]
fn a_tight_request_is_not_in_the_large_batch() {
    let mut world = busy();
    // The device is free from 9 ms on. The tight request alone would end at 15 ms; a batch of sixteen ends at 30 ms.
    let tight = world.request(QueueIx::new(1), 20 * MS);
    let rest: Vec<u64> = world.requests(16, QueueIx::new(1), 60 * MS);
    world.pass(5 * MS);
    assert_eq!(world.log[1].payloads(), rest, "found {:?}", world.log[1]);
    world.drain();
    assert_eq!(world.dropped, [(tight, DropReason::Expired)]);
}

#[test]
fn the_strategy_that_must_start_first_goes_first() {
    let mut world = busy();
    let late = world.request(QueueIx::new(1), 80 * MS);
    let soon = world.request(QueueIx::new(2), 40 * MS);
    world.drain();
    assert_eq!(world.log[1].payloads(), [soon]);
    assert_eq!(world.log[2].payloads(), [late]);
}

#[test]
fn what_has_no_deadline_goes_last_and_in_turn() {
    let mut world = busy();
    let patient: Vec<u64> = [2, 1]
        .map(|queue| world.request(QueueIx::new(queue), NEVER))
        .to_vec();
    let urgent = world.request(QueueIx::new(1), 500 * MS);
    world.drain();
    assert_eq!(world.log[1].payloads(), [urgent, patient[1]]);
    assert_eq!(world.log[2].payloads(), [patient[0]]);
    let mut world = busy();
    let patient = [2, 1].map(|queue| {
        world.pass(world.now + 1);
        world.request(QueueIx::new(queue), NEVER)
    });
    world.drain();
    assert_eq!(world.log[1].payloads(), [patient[0]]);
}

#[test]
fn a_device_has_less_than_the_look_ahead_before_it() {
    let mut world = busy();
    world.request(QueueIx::new(1), 100 * MS);
    world.pass(4 * MS - 1);
    assert_eq!(world.log.len(), 1, "more than 5 ms are left");
    world.pass(4 * MS);
    assert_eq!(world.log.len(), 2, "5 ms are left");
    assert_eq!(world.log[1].start, 9 * MS);
    assert_eq!(world.log[1].latest, 94 * MS);
}

#[test]
fn a_stuck_device_gets_no_more_than_the_look_ahead() {
    let specs = [spec(1.0, 1.0, 32)];
    let mut world = World::with(&options(), 1, &specs);
    world.percent = vec![10_000];
    (0..20).for_each(|_| {
        world.request(QueueIx::new(0), NEVER);
        world.pass(world.now + 3 * MS);
    });
    let behind: u64 = world.log[1..].iter().map(|sent| sent.expected).sum();
    assert!(
        behind <= 5 * MS + world.log.last().unwrap().expected,
        "{behind} ns wait"
    );
}

#[test]
fn what_the_next_free_device_cannot_meet_is_refused_at_once() {
    let mut world = busy();
    // The device is free at 9 ms, and one row takes 6 ms.
    let hopeless = world.request(QueueIx::new(1), 15 * MS - 1);
    assert_eq!(world.dropped, [(hopeless, DropReason::Expired)]);
    let feasible = world.request(QueueIx::new(1), 15 * MS);
    let impossible = world.request(QueueIx::new(1), 6 * MS - 1);
    assert_eq!(world.dropped[1..], [(impossible, DropReason::Infeasible)]);
    world.drain();
    assert_eq!(world.log[1].payloads(), [feasible]);
    assert_eq!(world.dropped.len(), 2);
}

/// Queue 1 waits for one of two pools. The device of pool 0 is busy for too long, and pool 1 has no device.
fn between_pools() -> (World, u64) {
    let mut world = World::new(&options());
    world.load(PoolIx::new(0), QueueIx::new(0), spec(4.0, 5.0, 32));
    for pool in 0..2 {
        world.load(PoolIx::new(pool), QueueIx::new(1), spec(1.0, 5.0, 32));
    }
    world.load(PoolIx::new(2), QueueIx::new(2), spec(1.0, 5.0, 32));
    world.up(DeviceIx::new(0), PoolIx::new(0), 1);
    world.up(DeviceIx::new(1), PoolIx::new(2), 1);
    world.request(QueueIx::new(0), NEVER);
    let waits = world.request(QueueIx::new(1), 12 * MS);
    world.pass(MS);
    assert_eq!(world.log.len(), 1);
    assert_eq!(world.dropped, []);
    (world, waits)
}

#[test]
fn a_device_that_comes_up_takes_what_the_busy_ones_cannot_meet() {
    let (mut world, waits) = between_pools();
    world.up(DeviceIx::new(2), PoolIx::new(0), 1);
    world.drain();
    assert_eq!(world.log[1].payloads(), [waits]);
    assert_eq!(world.log[1].start, MS);
}

#[test]
fn a_device_that_is_moved_takes_what_the_busy_ones_cannot_meet() {
    let (mut world, waits) = between_pools();
    world.transfer(DeviceIx::new(1), PoolIx::new(0));
    world.drain();
    assert_eq!(world.log[1].payloads(), [waits]);
    assert_eq!(world.log[1].start, MS);
}
