//! Which variants are kept loaded, which are not, and which must be unloaded.

use sextant_baselines as schedule;
use sextant_placement as placement;
use sextant_placement::{DesiredPlacement, Policy};
use sextant_schedule::NEVER;

use crate::world::{Answer, Setting, Step, World};
use sextant_types::index::VariantIx;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Devices with room for two of the variants each.
fn world(policy: Policy, devices: usize, variants: usize) -> World {
    World::new(Setting {
        scheduling: schedule::Options::of(schedule::Policy::Eager),
        placing: placement::Options::of(policy),
        devices: vec![(8, 1); devices],
        variants: vec![(4, 8 * MS, 2 * MS, 2 * MS); variants],
        shared: vec![],
        max_rows: 4,
        shaped: Vec::new(),
        tenants: 1,
        exact: true,
    })
}

fn everywhere(order: u32) -> DesiredPlacement {
    DesiredPlacement {
        devices: u32::MAX,
        pinned: false,
        order,
    }
}

#[test]
fn what_is_desired_is_loaded_where_there_is_room_and_stays() {
    for policy in Policy::ALL {
        let mut world = world(*policy, 3, 4);
        let list: Vec<_> = (0..4)
            .map(|at| (VariantIx::new(at), everywhere(at)))
            .collect();
        world.want(&list, NEVER);
        world.pass(SECOND);
        let replicas = [0, 1, 2, 3].map(|variant| world.replicas(VariantIx::new(variant)));
        assert_eq!(replicas, [3, 3, 0, 0], "{policy}: by their order");
        let loads = world.loads;
        world.pass(60 * SECOND);
        world.want(&list, NEVER);
        world.pass(120 * SECOND);
        assert_eq!((world.loads, world.unloads), (loads, 0), "{policy}");
    }
}

/// A query without a target would wait for ever.
#[test]
fn what_has_no_room_beside_what_is_pinned_is_refused() {
    for policy in Policy::ALL {
        let mut world = world(*policy, 2, 3);
        let pinned = |order| DesiredPlacement {
            pinned: true,
            ..everywhere(order)
        };
        world.want(
            &[
                (VariantIx::new(0), pinned(0)),
                (VariantIx::new(1), pinned(1)),
            ],
            NEVER,
        );
        world.pass(SECOND);
        let refused = world.arrive(VariantIx::new(2), 1, None);
        let gone = Answer::Dropped(sextant_schedule::DropReason::Gone);
        assert_eq!(world.answers.get(&refused), Some(&gone), "{policy}");
        world.want(&[(VariantIx::new(0), pinned(0))], NEVER);
        let again = world.arrive(VariantIx::new(2), 1, None);
        world.pass(2 * SECOND);
        assert!(
            matches!(world.answers[&again], Answer::Served { .. }),
            "{policy}"
        );
    }
}

#[test]
fn so_many_replicas_as_are_desired() {
    let mut world = world(Policy::Sextant, 3, 4);
    let two = DesiredPlacement {
        devices: 2,
        ..everywhere(0)
    };
    world.want(&[(VariantIx::new(1), two)], NEVER);
    world.pass(SECOND);
    assert_eq!((world.replicas(VariantIx::new(1)), world.loads), (2, 2));
}

/// Memory for half of the variants, all of which are desired, with requests for four of them. The four are loaded once,
/// and nothing is loaded and unloaded in turns.
#[test]
fn what_is_asked_for_and_what_is_desired_do_not_drive_each_other_out() {
    let mut world = world(Policy::Sextant, 2, 8);
    let list: Vec<_> = (0..8)
        .map(|at| (VariantIx::new(at), everywhere(at)))
        .collect();
    world.want(&list, 600 * SECOND);
    world.pass(SECOND);
    let ask = |world: &mut World, rounds: u32| {
        for _ in 0..rounds {
            for variant in 4..8 {
                world.arrive(VariantIx::new(variant), 1, Some(200 * MS));
                world.pass(world.now + 50 * MS);
            }
        }
    };
    ask(&mut world, 30);
    let (loads, served) = (world.loads, world.served());
    ask(&mut world, 300);
    assert_eq!(world.loads, loads, "a steady state loads nothing");
    assert_eq!(world.served(), served + 1_200);
}

#[test]
fn what_nobody_wants_or_uses_goes_after_a_while_and_makes_room() {
    let mut world = world(Policy::Sextant, 1, 4);
    world.arrive(VariantIx::new(2), 1, Some(SECOND));
    world.arrive(VariantIx::new(3), 1, Some(SECOND));
    world.pass(SECOND);
    assert_eq!(
        (
            world.replicas(VariantIx::new(2)),
            world.replicas(VariantIx::new(3))
        ),
        (1, 1)
    );
    world.want(
        &[
            (VariantIx::new(0), everywhere(0)),
            (VariantIx::new(3), everywhere(1)),
        ],
        10 * SECOND,
    );
    world.pass(6 * SECOND);
    assert_eq!(world.replicas(VariantIx::new(0)), 0, "no room yet");
    world.pass(20 * SECOND);
    let replicas = [0, 2, 3].map(|variant| world.replicas(VariantIx::new(variant)));
    assert_eq!(replicas, [1, 0, 1], "what is desired stays, unused");
}

#[test]
fn a_pinned_variant_is_loaded_though_others_have_to_go_and_never_goes() {
    let mut world = world(Policy::Sextant, 1, 4);
    world.arrive(VariantIx::new(1), 1, Some(SECOND));
    world.arrive(VariantIx::new(2), 1, Some(SECOND));
    world.pass(SECOND);
    let pinned = DesiredPlacement {
        pinned: true,
        ..everywhere(0)
    };
    world.want(&[(VariantIx::new(0), pinned)], NEVER);
    world.pass(2 * SECOND);
    assert_eq!(world.replicas(VariantIx::new(0)), 1);
    for round in 0..20 {
        world.arrive(VariantIx::new(1 + round % 3), 1, Some(SECOND));
        world.pass(world.now + SECOND);
        assert_eq!(world.replicas(VariantIx::new(0)), 1);
    }
}

#[test]
fn a_retired_variant_goes_at_once_and_is_asked_for_in_vain() {
    let mut world = world(Policy::Sextant, 2, 2);
    world.want(&[(VariantIx::new(0), everywhere(0))], NEVER);
    world.pass(SECOND);
    world.play(&Step::Retire {
        variant: VariantIx::new(0),
    });
    world.pass(2 * SECOND);
    assert_eq!((world.replicas(VariantIx::new(0)), world.unloads), (0, 2));
    let number = world.arrive(VariantIx::new(0), 1, None);
    let gone = Answer::Dropped(sextant_schedule::DropReason::Gone);
    assert_eq!(world.answers.get(&number), Some(&gone));
}
#[test]
fn a_variant_that_was_missed_is_loaded_where_what_goes_is_worth_less() {
    let mut world = world(Policy::Sextant, 1, 3);
    for variant in [0, 1] {
        world.arrive(VariantIx::new(variant), 1, Some(SECOND));
        world.pass(world.now + SECOND);
    }
    world.miss(VariantIx::new(2));
    world.pass(world.now + SECOND);
    let replicas = [0, 1, 2].map(|variant| world.replicas(VariantIx::new(variant)));
    assert_eq!(replicas, [0, 1, 1], "what was used longest ago went");
}
