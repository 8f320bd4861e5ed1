//! A variant moves from a device that something else slows down.

use sextant_baselines as schedule;
use sextant_placement as placement;
use sextant_placement::{DesiredPlacement, Policy, Presence};
use sextant_schedule::NEVER;

use crate::world::{Answer, Setting, Step, World};
use sextant_types::index::{DeviceIx, VariantIx};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Devices of so many pages; variants of four pages that take 8 ms to load.
fn world(policy: Policy, devices: &[u32], variants: usize) -> World {
    World::new(Setting {
        scheduling: schedule::Options::of(schedule::Policy::Eager),
        placing: placement::Options::of(policy),
        devices: devices.iter().map(|pages| (*pages, 1)).collect(),
        variants: vec![(4, 8 * MS, 2 * MS, 2 * MS); variants],
        shared: vec![],
        max_rows: 4,
        shaped: Vec::new(),
        tenants: 1,
        exact: true,
    })
}

fn on(world: &World, variant: VariantIx) -> Vec<u32> {
    let placement = world.controller.placement();
    let there = |device: &DeviceIx| placement.presence(*device, variant) == Presence::Loaded;
    let on = DeviceIx::first::<4>().into_iter().filter(there);
    on.map(DeviceIx::get).collect()
}

fn relocate(world: &mut World, variant: VariantIx, from: DeviceIx) {
    world.play(&Step::Relocate { variant, from });
}

#[test]
fn a_variant_is_loaded_elsewhere_before_it_goes_and_nothing_is_lost() {
    for policy in Policy::ALL {
        let mut world = world(*policy, &[8, 8], 1);
        world.arrive(VariantIx::new(0), 1, Some(SECOND));
        world.pass(100 * MS);
        let first = on(&world, VariantIx::new(0));
        assert_eq!(first.len(), 1, "{policy}");
        let sent: Vec<u64> = (0..200)
            .map(|number| {
                if number == 20 {
                    relocate(&mut world, VariantIx::new(0), DeviceIx::new(first[0]));
                }
                let query = world.arrive(VariantIx::new(0), 1, Some(30 * MS));
                world.pass(world.now + 5 * MS);
                assert!(
                    !on(&world, VariantIx::new(0)).is_empty(),
                    "{policy}: loaded nowhere"
                );
                query
            })
            .collect();
        world.pass(world.now + SECOND);
        assert_eq!(on(&world, VariantIx::new(0)), [1 - first[0]], "{policy}");
        let served = |query: &u64| {
            matches!(
                world.answers.get(query),
                Some(Answer::Served { late: false, .. })
            )
        };
        assert!(sent.iter().all(served), "{policy}: {:?}", world.answers);
        assert_eq!((world.loads, world.unloads), (2, 1), "{policy}");
    }
}

#[test]
fn as_many_as_are_desired_stay_and_the_device_is_left_alone_for_a_minute() {
    let mut world = world(Policy::Sextant, &[8, 8, 8], 1);
    let two = DesiredPlacement {
        devices: 2,
        pinned: true,
        order: 0,
    };
    world.want(&[(VariantIx::new(0), two)], NEVER);
    world.pass(SECOND);
    assert_eq!(on(&world, VariantIx::new(0)), [0, 1]);
    relocate(&mut world, VariantIx::new(0), DeviceIx::new(1));
    world.pass(2 * SECOND);
    assert_eq!(on(&world, VariantIx::new(0)), [0, 2]);
    let all = DesiredPlacement { devices: 3, ..two };
    world.want(&[(VariantIx::new(0), all)], NEVER);
    world.pass(50 * SECOND);
    assert_eq!(
        on(&world, VariantIx::new(0)),
        [0, 2],
        "the device that it has left is not tried yet"
    );
    world.pass(90 * SECOND);
    assert_eq!(on(&world, VariantIx::new(0)), [0, 1, 2]);
}

#[test]
fn a_variant_that_others_have_leaves_a_device_for_a_minute_and_never_the_last() {
    let mut world = world(Policy::Sextant, &[8, 8], 1);
    let both = DesiredPlacement {
        devices: u32::MAX,
        pinned: false,
        order: 0,
    };
    world.want(&[(VariantIx::new(0), both)], NEVER);
    world.pass(SECOND);
    assert_eq!(on(&world, VariantIx::new(0)), [0, 1]);
    let leave = |world: &mut World, from: u32| {
        world.play(&Step::Withdraw {
            variant: VariantIx::new(0),
            from: DeviceIx::new(from),
        });
    };
    leave(&mut world, 0);
    world.pass(2 * SECOND);
    assert_eq!(on(&world, VariantIx::new(0)), [1]);
    leave(&mut world, 1);
    world.pass(50 * SECOND);
    assert_eq!(on(&world, VariantIx::new(0)), [1], "nobody else has it");
    world.pass(90 * SECOND);
    assert_eq!(on(&world, VariantIx::new(0)), [0, 1]);
}

#[test]
fn nothing_moves_where_nothing_is_free_or_to_a_device_that_has_it() {
    let mut world = world(Policy::Sextant, &[4, 4, 4], 2);
    let one = |order| DesiredPlacement {
        devices: 1,
        pinned: false,
        order,
    };
    world.want(
        &[
            (
                VariantIx::new(0),
                DesiredPlacement {
                    devices: 2,
                    ..one(0)
                },
            ),
            (VariantIx::new(1), one(1)),
        ],
        NEVER,
    );
    world.pass(SECOND);
    assert_eq!(
        (on(&world, VariantIx::new(0)), on(&world, VariantIx::new(1))),
        (vec![0, 1], vec![2])
    );
    for (variant, from) in [(0, 0), (1, 2), (1, 0), (9, 9)] {
        relocate(&mut world, VariantIx::new(variant), DeviceIx::new(from));
    }
    world.pass(2 * SECOND);
    assert_eq!(
        (on(&world, VariantIx::new(0)), on(&world, VariantIx::new(1))),
        (vec![0, 1], vec![2])
    );
    assert_eq!((world.loads, world.unloads), (3, 0));
}

#[test]
fn a_move_that_comes_to_nothing_leaves_the_variant_where_it_is() {
    let mut world = world(Policy::Sextant, &[8, 8], 1);
    world.arrive(VariantIx::new(0), 1, Some(SECOND));
    world.pass(100 * MS);
    let first = on(&world, VariantIx::new(0));
    relocate(&mut world, VariantIx::new(0), DeviceIx::new(first[0]));
    let other = 1 - first[0];
    world.play(&Step::Down {
        device: DeviceIx::new(other),
    });
    world.pass(SECOND);
    assert_eq!(on(&world, VariantIx::new(0)), first);
    world.play(&Step::Up {
        device: DeviceIx::new(other),
    });
    relocate(&mut world, VariantIx::new(0), DeviceIx::new(first[0]));
    world.pass(2 * SECOND);
    assert_eq!(on(&world, VariantIx::new(0)), [other]);
}
