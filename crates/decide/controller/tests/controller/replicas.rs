//! Replicas come with load and go when their pages are needed.

use sextant_baselines as schedule;
use sextant_placement as placement;
use sextant_placement::Policy;

use crate::world::{Setting, World};
use sextant_types::index::VariantIx;

const MS: u64 = 1_000_000;

/// Three devices; a variant of which a device runs 100 requests a second, batches or not, and others
/// that fill the devices.
fn world(policy: Policy) -> World {
    let mut variants = vec![(4, 8 * MS, 10 * MS, 10 * MS)];
    variants.extend([(4, 8 * MS, 2 * MS, 2 * MS); 12]);
    World::new(Setting {
        scheduling: schedule::Options::of(schedule::Policy::Eager),
        placing: placement::Options::of(policy),
        devices: vec![(12, 1); 3],
        variants,
        shared: vec![],
        max_rows: 4,
        shaped: Vec::new(),
        tenants: 1,
        exact: true,
    })
}

/// Requests for variant 0 at an even pace; tells the share that was served.
fn drive(world: &mut World, requests: u64, gap: u64) -> f64 {
    let before = world.served();
    for _ in 0..requests {
        world.arrive(VariantIx::new(0), 1, Some(100 * MS));
        world.pass(world.now + gap);
    }
    (world.served() - before) as f64 / requests as f64
}

#[test]
fn a_hot_variant_gets_replicas_and_loses_them_when_their_pages_are_needed() {
    for policy in [Policy::Clockwork, Policy::Sextant] {
        let mut world = world(policy);
        drive(&mut world, 20, 50 * MS);
        assert_eq!(world.replicas(VariantIx::new(0)), 1, "{policy}: light load");
        // Twice what a device can do.
        drive(&mut world, 100, 5 * MS);
        assert!(
            world.replicas(VariantIx::new(0)) >= 2,
            "{policy}: {}",
            world.replicas(VariantIx::new(0))
        );
        let share = drive(&mut world, 400, 5 * MS);
        assert!(share > 0.95, "{policy}: {share}");
        let most = world.replicas(VariantIx::new(0));
        // Seldom asked for, and others want the room.
        world.pass(world.now + 1_000 * MS);
        for round in 0..40 {
            if round % 10 == 0 {
                world.arrive(VariantIx::new(0), 1, Some(100 * MS));
            }
            for variant in 1..10 {
                world.arrive(VariantIx::new(variant), 1, Some(100 * MS));
                world.pass(world.now + 30 * MS);
            }
        }
        let left = world.replicas(VariantIx::new(0));
        assert!(left < most && left <= 1, "{policy}: {left} of {most}");
    }
}

#[test]
fn no_policy_replicates_a_variant_whose_device_keeps_up() {
    for policy in Policy::ALL {
        let mut world = world(*policy);
        let share = drive(&mut world, 300, 15 * MS);
        assert!(share > 0.99, "{policy}: {share}");
        assert_eq!(world.loads, 1, "{policy}");
    }
}

#[test]
fn the_requests_that_waited_for_a_load_share_a_batch() {
    let mut world = world(Policy::Sextant);
    for _ in 0..4 {
        world.arrive(VariantIx::new(1), 1, Some(100 * MS));
    }
    world.drain();
    let mut ends: Vec<_> = world.answers.values().map(|a| format!("{a:?}")).collect();
    ends.dedup();
    assert_eq!(ends.len(), 1, "{ends:?}");
}

#[test]
fn a_device_that_is_lost_has_its_variants_loaded_elsewhere() {
    for policy in Policy::ALL {
        let mut world = world(*policy);
        drive(&mut world, 20, 20 * MS);
        let on = world.loaded_on(VariantIx::new(0));
        assert_eq!(on.len(), 1, "{policy}");
        world.play(&crate::world::Step::Down { device: on[0] });
        let share = drive(&mut world, 20, 20 * MS);
        assert!(share > 0.9, "{policy}: {share}");
        assert!(!world.loaded_on(VariantIx::new(0)).contains(&on[0]));
    }
}
