//! Periods, and what is loaded ahead of them.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_baselines as schedule;
use sextant_placement::{BurstPeriod, Options, Policy};

use crate::world::{Setting, World};
use sextant_types::index::{DeviceIx, VariantIx};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const MINUTE: u64 = 60 * SECOND;

fn exponential(random: &mut ChaCha8Rng, mean: u64) -> u64 {
    (-(1.0 - random.random::<f64>()).ln() * mean as f64) as u64
}

#[test]
fn a_period_is_found_in_bursts_with_jitter() {
    for period in [2 * MINUTE, 5 * MINUTE, 15 * MINUTE, 60 * MINUTE] {
        for seed in 0..20 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut rhythm = BurstPeriod::default();
            for burst in 1..=8u64 {
                let begin = burst * period + random.random_range(0..period / 50);
                if burst == 8 {
                    let expected = rhythm.expected();
                    let hit = expected.is_some_and(|e| e.from <= begin && begin <= e.until);
                    assert!(hit, "seed {seed}: {expected:?}, not {begin}");
                    let wide = expected.map_or(0, |e| e.until - e.from);
                    assert!(wide < period / 5, "seed {seed}: {wide}");
                }
                for request in 0..10 {
                    rhythm.add(begin + request * SECOND);
                }
            }
        }
    }
}

#[test]
fn a_burst_that_is_missed_does_not_end_a_period() {
    let mut rhythm = BurstPeriod::default();
    for burst in (1..12u64).filter(|burst| *burst != 6) {
        rhythm.add(burst * 5 * MINUTE);
    }
    let expected = rhythm.expected().unwrap();
    assert!(expected.from <= 60 * MINUTE && 60 * MINUTE <= expected.until);
}

#[test]
fn requests_at_random_have_no_period() {
    let (mut found, mut bursts) = (0, 0);
    for seed in 0..200 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut rhythm = BurstPeriod::default();
        let mut now = 0;
        for _ in 0..200 {
            now += exponential(&mut random, 2 * MINUTE);
            if rhythm.add(now) {
                bursts += 1;
                found += u32::from(rhythm.expected().is_some());
            }
        }
    }
    let share = f64::from(found) / f64::from(bursts);
    assert!(share < 0.005, "{found} of {bursts} bursts, seeds 0 to 199");
}

fn world(pages: u32, prefetch: bool) -> World {
    World::new(Setting {
        scheduling: schedule::Options::of(schedule::Policy::Sextant),
        placing: Options {
            prefetch,
            ..Options::of(Policy::Sextant)
        },
        devices: vec![(pages, 1)],
        variants: vec![(4, 8 * MS, 3 * MS, MS); 12],
        shared: vec![],
        max_rows: 8,
        shaped: Vec::new(),
        tenants: 1,
        exact: true,
    })
}

/// Variant 0 every five minutes, one LOAD of something else for every free page in between; tells
/// before how many of the last five bursts it was loaded.
fn ready(mut world: World) -> u32 {
    let mut ready = 0;
    for burst in 1..=12u64 {
        let begin = burst * 5 * MINUTE + burst % 3 * SECOND;
        world.pass(begin - 2 * MINUTE);
        for variant in 1..8 {
            world.arrive(VariantIx::new(variant), 1, Some(100 * MS));
            world.pass(world.now + SECOND);
        }
        world.pass(begin);
        if burst > 7 {
            ready += world.replicas(VariantIx::new(0)) as u32;
        }
        for _ in 0..5 {
            world.arrive(VariantIx::new(0), 1, Some(100 * MS));
            world.pass(world.now + 200 * MS);
        }
    }
    ready
}

#[test]
fn a_variant_with_a_period_is_loaded_before_its_next_burst() {
    // Room for four variants, and seven others between the bursts.
    assert_eq!(ready(world(16, false)), 0);
    assert_eq!(ready(world(16, true)), 5);
}

#[test]
fn what_is_foreseen_takes_free_pages_without_unloading() {
    let mut world = world(16, true);
    for burst in 1..=8u64 {
        world.pass(burst * 5 * MINUTE);
        if burst == 8 {
            assert_eq!(world.replicas(VariantIx::new(0)), 1);
        }
        world.arrive(VariantIx::new(0), 1, Some(100 * MS));
        world.pass(world.now + SECOND);
        // The device is restarted: everything is free again.
        world.play(&crate::world::Step::Up {
            device: DeviceIx::new(0),
        });
    }
    assert_eq!(world.unloads, 0);
}

#[test]
fn a_variant_that_is_retired_is_not_loaded_ahead() {
    let (mut world, variant) = (world(16, true), VariantIx::new(0));
    for burst in 1..=8u64 {
        world.pass(burst * 5 * MINUTE);
        world.arrive(variant, 1, Some(100 * MS));
        world.pass(world.now + SECOND);
    }
    world.play(&crate::world::Step::Retire { variant });
    let loads = world.loads;
    world.pass(world.now + 10 * MINUTE);
    assert_eq!((world.replicas(variant), world.loads), (0, loads));
}

#[test]
fn a_variant_asked_for_at_random_is_not_loaded_ahead() {
    let mut ahead = 0;
    for seed in 0..5 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut world = world(16, true);
        for _ in 0..40 {
            let next = world.now + exponential(&mut random, 5 * MINUTE);
            world.pass(next);
            ahead += world.replicas(VariantIx::new(0));
            world.arrive(VariantIx::new(0), 1, Some(100 * MS));
            world.pass(world.now + SECOND);
            world.play(&crate::world::Step::Up {
                device: DeviceIx::new(0),
            });
        }
    }
    assert!(ahead <= 1, "{ahead} of 200 loads, seeds 0 to 4");
}
