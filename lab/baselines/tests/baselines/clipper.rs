//! Clipper: limits that adapt to the target, replicas, delayed batching.

use sextant_baselines::{Options, Policy};
use sextant_schedule::{DropReason, NEVER, QueueSpec};

use crate::world::{MS, SentBatch, World, spec};
use sextant_types::index::{DeviceIx, QueueIx};

/// ResNet50 of Symphony's table 4: (25 ms - beta) / alpha is 18.9 rows.
fn resnet50() -> QueueSpec {
    spec(1.053, 5.072, 64)
}

fn options(policy: Policy) -> Options {
    Options {
        max_queue_delay: 0,
        ..Options::of(policy)
    }
}

/// The rows of the last batches on a device where more requests always wait than fit into a batch.
fn saturated(policy: Policy, percent: Vec<u64>, batches: usize) -> Vec<u32> {
    let mut world = World::with(&options(policy), 1, &[resnet50()]);
    world.percent = percent;
    while world.log.len() < batches {
        // The latest target counts. The other requests must not expire, or the device would run out of work.
        world.requests(30, QueueIx::new(0), 10_000 * MS);
        world.request(QueueIx::new(0), 25 * MS);
        world.pass(world.now + 20 * MS);
    }
    world.log[batches / 2..]
        .iter()
        .map(SentBatch::rows)
        .collect()
}

#[test]
fn additive_increase_and_multiplicative_decrease_settle_at_the_target() {
    let rows = saturated(Policy::ClipperAimd, vec![100], 300);
    assert!(rows.iter().all(|rows| (15..=20).contains(rows)), "{rows:?}");
    let mean = f64::from(rows.iter().sum::<u32>()) / rows.len() as f64;
    assert!((16.0..=19.0).contains(&mean), "{mean}");
}

#[test]
fn the_quantile_line_finds_the_target() {
    let rows = saturated(Policy::ClipperQuantile, vec![100], 300);
    assert!(rows.iter().all(|rows| (17..=20).contains(rows)), "{rows:?}");
}

#[test]
fn the_quantile_line_heeds_the_tail() {
    // Every tenth batch takes a fifth longer: (25 / 1.2 - beta) / alpha is 15.0 rows.
    let mut percent = vec![100; 9];
    percent.push(120);
    let rows = saturated(Policy::ClipperQuantile, percent, 400);
    assert!(rows.iter().all(|rows| (13..=16).contains(rows)), "{rows:?}");
}

#[test]
fn devices_are_divided_evenly_and_once() {
    let specs = [resnet50(), resnet50(), resnet50()];
    let mut world = World::with(&options(Policy::ClipperAimd), 4, &specs);
    for _ in 0..20 {
        for queue in 0..3 {
            world.request(QueueIx::new(queue), 100 * MS);
        }
        world.pass(world.now + 10 * MS);
    }
    world.drain();
    for device in 0..4 {
        let on_it = world
            .log
            .iter()
            .filter(|sent| sent.device == DeviceIx::new(device));
        let queues: Vec<QueueIx> = on_it.map(|sent| sent.queue).collect();
        assert!(!queues.is_empty());
        assert!(
            queues.iter().all(|queue| *queue == queues[0]),
            "{device}: {queues:?}"
        );
    }
}

#[test]
fn a_batch_below_the_limit_waits_for_the_delay() {
    let options = Options {
        max_queue_delay: 2 * MS,
        ..Options::of(Policy::ClipperAimd)
    };
    let mut world = World::with(&options, 1, &[resnet50()]);
    // The limit is one at first, so the first batch is full at once. From then on the limit is two.
    world.request(QueueIx::new(0), 100 * MS);
    assert_eq!(world.log.len(), 1);
    world.drain();
    let from = world.now;
    world.request(QueueIx::new(0), 100 * MS);
    world.pass(from + 2 * MS - 1);
    assert_eq!(world.log.len(), 1);
    world.pass(from + 2 * MS);
    assert_eq!(world.log.len(), 2);
    world.drain();
    world.request(QueueIx::new(0), 100 * MS);
    world.request(QueueIx::new(0), 100 * MS);
    assert_eq!(world.log.len(), 3, "full");
}

#[test]
fn only_what_is_past_its_deadline_is_dropped() {
    let mut world = World::with(&options(Policy::ClipperAimd), 1, &[resnet50()]);
    world.request(QueueIx::new(0), NEVER);
    // The device is free after 6.125 ms, and two rows take 7.2 ms more.
    let soon = world.requests(2, QueueIx::new(0), 6_130_000);
    let past = world.requests(2, QueueIx::new(0), 9 * MS);
    world.drain();
    assert_eq!(
        world.log[1].payloads(),
        soon,
        "late by its profile, but run"
    );
    assert_eq!(
        world.dropped,
        [
            (past[0], DropReason::Expired),
            (past[1], DropReason::Expired)
        ]
    );
}
