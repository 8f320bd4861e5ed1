//! Queries that come in several sizes.

use sextant_baselines as schedule;
use sextant_controller::{Shape, Sharing};
use sextant_placement as placement;

use crate::world::{Answer, Setting, World};
use sextant_types::index::{DeviceIx, VariantIx};

/// One device on which one variant is loaded: a query of size 100 takes 100 ns, two in a batch 110.
fn world() -> World {
    let mut world = World::new(Setting {
        scheduling: schedule::Options::of(schedule::Policy::Sextant),
        placing: placement::Options::default(),
        devices: vec![(4, 1)],
        variants: vec![(1, 1, 100, 10)],
        shared: vec![],
        max_rows: 8,
        shaped: vec![0],
        tenants: 1,
        exact: true,
    });
    world.find(DeviceIx::new(0), VariantIx::new(0));
    world
}

fn near(size: u64) -> Shape {
    let sharing = Sharing::Near;
    Shape { size, sharing }
}

fn equal(size: u64, dims: u64) -> Shape {
    let sharing = Sharing::Equal(dims);
    Shape { size, sharing }
}

fn batches(mut world: World) -> Vec<Vec<u64>> {
    world.drain();
    let mut sizes = std::mem::take(&mut world.sizes);
    sizes.remove(0);
    sizes
}

#[test]
fn near_sizes_share_a_batch_and_far_ones_do_not() {
    let mut world = world();
    for size in [100, 51, 200, 52, 198, 53] {
        world.arrive_shaped(VariantIx::new(0), near(size), 1, None);
    }
    let mut sizes = batches(world);
    sizes.iter_mut().for_each(|batch| batch.sort_unstable());
    sizes.sort_unstable();
    assert_eq!(sizes, [vec![51, 52, 53], vec![198, 200]]);
}

#[test]
fn without_padding_only_equal_dimensions_share_a_batch() {
    let mut world = world();
    for (size, dims) in [(100, 9), (100, 1), (100, 2), (100, 1), (100, 2)] {
        world.arrive_shaped(VariantIx::new(0), equal(size, dims), 1, None);
    }
    let sizes = batches(world);
    assert_eq!(sizes, [vec![100, 100], vec![100, 100]]);
}

#[test]
fn a_query_that_is_too_long_for_its_target_is_refused_and_a_short_one_is_not() {
    let mut world = world();
    let long = world.arrive_shaped(VariantIx::new(0), near(400), 1, Some(150));
    let short = world.arrive_shaped(VariantIx::new(0), near(60), 1, Some(150));
    // Beyond what was measured: at least in proportion.
    let longest = world.arrive_shaped(VariantIx::new(0), near(4_000), 1, Some(3_900));
    world.drain();
    let refused = Answer::Dropped(sextant_schedule::DropReason::Infeasible);
    assert_eq!(world.answers[&long], refused);
    assert_eq!(world.answers[&longest], refused);
    assert!(matches!(
        world.answers[&short],
        Answer::Served { late: false, .. }
    ));
}

#[test]
fn queues_of_ever_new_dimensions_are_used_again() {
    let mut world = world();
    for dims in 0..1_000 {
        world.arrive_shaped(VariantIx::new(0), equal(50 + dims % 300, dims), 1, None);
        if dims % 100 == 0 {
            world.pass(world.now + 1_000);
        }
    }
    let sent = world.drain();
    assert_eq!(world.answers.len() as u64, sent);
    let served = |answer: &Answer| matches!(answer, Answer::Served { .. });
    let full = Answer::Dropped(sextant_schedule::DropReason::QueueFull);
    let answers = world.answers.values();
    let refused = answers.clone().filter(|it| **it == full).count();
    assert!(answers.clone().all(|it| served(it) || *it == full));
    assert!(answers.filter(|it| served(it)).count() >= 500);
    // All of them have left: there is room for as many again, and equal ones share a batch.
    let before = world.answers.len();
    for _ in 0..400 {
        world.arrive_shaped(VariantIx::new(0), equal(60, 5_000), 1, None);
    }
    world.drain();
    let answers = world.answers.values().filter(|it| **it == full);
    assert_eq!(world.answers.len() - before, 400);
    assert_eq!(answers.count(), refused);
    assert!(
        world
            .sizes
            .iter()
            .any(|batch| batch.len() > 1 && batch[0] == 60)
    );
}

#[test]
fn the_rows_of_all_sizes_together_are_limited() {
    let mut world = world();
    for number in 0..600 {
        world.arrive_shaped(VariantIx::new(0), near(50 + number % 300), 1, None);
    }
    let full = Answer::Dropped(sextant_schedule::DropReason::QueueFull);
    let refused = world.answers.values().filter(|it| **it == full).count();
    // One runs, 500 wait.
    assert_eq!(refused, 99);
}
