//! Nexus: uncoordinated batches, devices by rate, early drop, frontends.

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_baselines::{Options, Policy};
use sextant_schedule::{DropReason, Nanos, PoolIx};

use crate::world::{MS, SentBatch, World, spec};
use sextant_types::index::{DeviceIx, QueueIx};

fn options() -> Options {
    Options {
        epoch: 2_000 * MS,
        ..Options::of(Policy::Nexus)
    }
}

/// Sends Poisson arrivals: queue, requests per second, target.
fn load(world: &mut World, seed: u64, seconds: u64, queues: &[(u32, f64, Nanos)]) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut gap = |rate: f64| (-(1.0 - random.random::<f64>()).ln() / rate * 1e9) as Nanos;
    let end = world.now + seconds * 1_000 * MS;
    let mut next: Vec<Nanos> = queues.iter().map(|of| world.now + gap(of.1)).collect();
    loop {
        let (at, first) = (0..next.len())
            .map(|at| (next[at], at))
            .min()
            .expect("a queue");
        if at >= end {
            return world.pass(end);
        }
        let (queue, rate, target) = queues[first];
        world.pass(at);
        world.request(QueueIx::new(queue), target);
        next[first] += gap(rate);
    }
}

fn median_rows<'a>(log: impl IntoIterator<Item = &'a SentBatch>) -> u32 {
    let mut rows: Vec<u32> = log.into_iter().map(SentBatch::rows).collect();
    rows.sort_unstable();
    rows[rows.len() / 2]
}

/// The number of batches of each queue on each device.
fn spread(log: &[SentBatch]) -> BTreeMap<(QueueIx, DeviceIx), usize> {
    let mut spread = BTreeMap::new();
    for sent in log {
        *spread.entry((sent.queue, sent.device)).or_default() += 1;
    }
    spread
}

fn devices_of(log: &[SentBatch], queue: QueueIx) -> usize {
    spread(log).keys().filter(|of| of.0 == queue).count()
}

#[test]
fn without_coordination_resnet50_runs_seven_rows() {
    // Symphony, table 4: l(7) = 12.4 ms is the longest run time that fits twice into 25 ms.
    let mut world = World::with(&options(), 8, &[spec(1.053, 5.072, 64)]);
    load(&mut world, 1, 3, &[(0, 4_400.0, 25 * MS)]);
    world.drain();
    assert_eq!(median_rows(&world.log), 7);
    assert_eq!(world.log.iter().map(SentBatch::rows).max(), Some(7));
    world.assert_none_late();
}

#[test]
fn devices_follow_the_rates() {
    // A full device carries 562 requests per second.
    let specs = [spec(1.053, 5.072, 64), spec(1.053, 5.072, 64)];
    let mut world = World::with(&options(), 8, &specs);
    let target = 25 * MS;
    load(
        &mut world,
        2,
        1,
        &[(0, 2_500.0, target), (1, 500.0, target)],
    );
    assert_eq!(
        (
            devices_of(&world.log, QueueIx::new(0)),
            devices_of(&world.log, QueueIx::new(1))
        ),
        (4, 4)
    );
    load(
        &mut world,
        3,
        2,
        &[(0, 2_500.0, target), (1, 500.0, target)],
    );
    // An epoch has ended by then, so the devices follow the new rates.
    let known = world.log.partition_point(|sent| sent.start < 2_100 * MS);
    let later = &world.log[known..];
    assert!(
        devices_of(later, QueueIx::new(0)) >= 6,
        "{:?}",
        spread(later)
    );
    assert!(
        devices_of(later, QueueIx::new(1)) <= 2,
        "{:?}",
        spread(later)
    );
    assert_eq!(world.scheduler.load(PoolIx::new(0)).slots, 8);
}

#[test]
fn more_queues_than_devices_share_them() {
    let specs: Vec<_> = (0..6).map(|_| spec(1.0, 5.0, 64)).collect();
    let mut world = World::with(&options(), 2, &specs);
    let queues: Vec<_> = (0..6).map(|queue| (queue, 30.0, 100 * MS)).collect();
    load(&mut world, 4, 4, &queues);
    world.drain();
    let dropped = world.dropped.len() as f64 / world.requests as f64;
    assert!(
        dropped < 0.01,
        "{dropped} dropped at a fifth of what two devices carry"
    );
    world.assert_none_late();
}

#[test]
fn a_window_begins_where_all_of_it_can_be_met() {
    let mut world = World::with(&options(), 1, &[spec(1.0, 5.0, 64)]);
    // The device is busy until 6 ms; two rows would end at 13 ms, one at 12 ms.
    world.request(QueueIx::new(0), 50 * MS);
    let tight = world.request(QueueIx::new(0), 12 * MS);
    let rest = [
        world.request(QueueIx::new(0), 40 * MS),
        world.request(QueueIx::new(0), 40 * MS),
    ];
    world.drain();
    assert_eq!(world.dropped, [(tight, DropReason::Shed)]);
    assert_eq!(world.log[1].payloads(), rest);
}

#[test]
fn frontends_that_do_not_know_of_each_other_cost_goodput() {
    let dropped = |frontends| {
        let options = Options {
            frontends,
            ..options()
        };
        let mut world = World::with(&options, 8, &[spec(1.053, 5.072, 64)]);
        load(&mut world, 5, 4, &[(0, 3_900.0, 25 * MS)]);
        world.drain();
        world.dropped.len() as f64 / world.requests as f64
    };
    let (one, eight) = (dropped(1), dropped(8));
    assert!(one < 0.02, "{one}");
    assert!(eight > 2.0 * one, "{eight} against {one}");
}

#[test]
fn a_device_that_goes_leaves_its_requests_to_the_others() {
    let mut world = World::with(&options(), 2, &[spec(1.0, 5.0, 64)]);
    world.requests(4, QueueIx::new(0), 50 * MS);
    let lost = world
        .log
        .iter()
        .find(|sent| sent.device == DeviceIx::new(1))
        .unwrap()
        .payloads();
    world.down(DeviceIx::new(1));
    world.drain();
    assert!(world.dropped.is_empty());
    let served = world
        .log
        .iter()
        .filter(|sent| sent.device == DeviceIx::new(0));
    let mut served: Vec<u64> = served.flat_map(SentBatch::payloads).chain(lost).collect();
    served.sort_unstable();
    assert_eq!(served, [0, 1, 2, 3]);
}
