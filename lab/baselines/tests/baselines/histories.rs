//! Properties over random histories. A failure prints the history.

use proptest::{collection::vec, option, prelude::*};
use sextant_baselines::{Options, Policy};
use sextant_schedule::{Delay, NEVER, Nanos, PoolIx, QueueSpec};

use crate::world::{MS, World, spec};
use sextant_types::index::{DeviceIx, QueueIx, TenantIx};

const POLICIES: [Policy; 4] = [
    Policy::Clockwork,
    Policy::Nexus,
    Policy::ClipperAimd,
    Policy::ClipperQuantile,
];
/// The pool and the slots of each device.
const DEVICES: [(u32, u16); 4] = [(0, 1), (0, 1), (1, 2), (2, 1)];
const QUEUES: u32 = 4;

#[derive(Debug, Clone)]
enum Step {
    Arrive {
        queue: QueueIx,
        rows: u32,
        slack: Option<Nanos>,
    },
    Pass(Nanos),
    Zombie(usize),
    Ring,
    Load(PoolIx, u32),
    Unload(PoolIx, u32),
    Up(u32),
    Down(u32),
    Move(u32, PoolIx),
}

fn queue_spec(pool: PoolIx, queue: QueueIx) -> QueueSpec {
    let slower = 1.0 + f64::from(pool.get());
    let (max_rows, batched) = [(1, true), (32, true), (5, true), (6, false)][queue.get() as usize];
    QueueSpec {
        batched,
        max_waiting_rows: 64,
        tenant: TenantIx::new(0),
        priority: if queue == QueueIx::new(2) { 120 } else { 100 },
        ..spec(slower, 4.0 * slower, max_rows)
    }
}

fn step() -> impl Strategy<Value = Step> {
    let slack = option::weighted(0.9, 0..60 * MS);
    prop_oneof![
        16 => (0..QUEUES, prop_oneof![4 => Just(1u32), 1 => 1..8u32], slack)
            .prop_map(|(queue, rows, slack)| Step::Arrive { queue: QueueIx::new(queue), rows, slack }),
        10 => (0..8 * MS).prop_map(Step::Pass),
        1 => (0..20usize).prop_map(Step::Zombie),
        2 => Just(Step::Ring),
        1 => (0..3u32, 0..QUEUES).prop_map(|(pool, queue)| Step::Load(PoolIx::new(pool), queue)),
        1 => (0..3u32, 0..QUEUES).prop_map(|(pool, queue)| Step::Unload(PoolIx::new(pool), queue)),
        1 => (0..DEVICES.len() as u32).prop_map(Step::Up),
        1 => (0..DEVICES.len() as u32).prop_map(Step::Down),
        1 => (0..DEVICES.len() as u32, 0..3u32)
            .prop_map(|(device, pool)| Step::Move(device, PoolIx::new(pool))),
    ]
}

fn options() -> impl Strategy<Value = Options> {
    let delay = prop_oneof![
        Just(Delay::default()),
        Just(Delay {
            control: MS / 10,
            data_per_row: MS / 20,
            response: 2 * MS
        }),
    ];
    (
        proptest::sample::select(&POLICIES[..]),
        delay,
        proptest::sample::select(&[0, 1, 5, 50][..]),
        prop_oneof![Just(vec![1, 2, 4, 8, 16]), Just(vec![])],
        1..5u32,
        proptest::sample::select(&[20 * MS, 10_000 * MS][..]),
        proptest::sample::select(&[0, 2 * MS][..]),
    )
        .prop_map(
            |(policy, delay, look_ahead, batch_sizes, frontends, epoch, wait)| Options {
                delay,
                look_ahead: look_ahead * MS,
                batch_sizes,
                frontends,
                epoch,
                max_queue_delay: wait,
                ..Options::of(policy)
            },
        )
}

fn play(options: &Options, percent: Vec<u64>, steps: &[Step]) -> World {
    play_on(u16::MAX, options, percent, steps)
}

/// Plays steps on devices with at most `most_slots` slots.
fn play_on(most_slots: u16, options: &Options, percent: Vec<u64>, steps: &[Step]) -> World {
    let mut world = World::new(options);
    world.percent = percent;
    for (pool, queue) in [(0, 0), (0, 1), (1, 1), (1, 2), (0, 3), (2, 1)] {
        world.load(
            PoolIx::new(pool),
            QueueIx::new(queue),
            queue_spec(PoolIx::new(pool), QueueIx::new(queue)),
        );
    }
    let up = |world: &mut World, device: DeviceIx| {
        let (pool, slots) = DEVICES[device.get() as usize];
        world.up(device, PoolIx::new(pool), slots.min(most_slots));
    };
    (0..DEVICES.len() as u32).for_each(|device| up(&mut world, DeviceIx::new(device)));
    for step in steps {
        match *step {
            Step::Arrive { queue, rows, slack } => {
                world.request_of(queue, rows, slack.unwrap_or(NEVER));
            }
            Step::Pass(nanos) => world.pass(world.now + nanos),
            Step::Zombie(which) => world.zombie(which),
            Step::Ring => world.ring_in_vain(),
            Step::Load(pool, queue) => world.load(
                pool,
                QueueIx::new(queue),
                queue_spec(pool, QueueIx::new(queue)),
            ),
            Step::Unload(pool, queue) => world.unload(pool, QueueIx::new(queue)),
            Step::Up(device) => up(&mut world, DeviceIx::new(device)),
            Step::Down(device) => world.down(DeviceIx::new(device)),
            Step::Move(device, pool) => world.transfer(DeviceIx::new(device), pool),
        }
    }
    // Requests that wait for a pool without devices wait until its devices return.
    (0..DEVICES.len() as u32).for_each(|device| up(&mut world, DeviceIx::new(device)));
    world.drain();
    world
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_request_leaves_exactly_once_and_none_is_late(
        options in options(),
        steps in vec(step(), 1..150),
    ) {
        // Nexus forms a batch for one slot, and a device runs it on the slot that is free first. The two are always the
        // same slot only on devices with one slot.
        let most_slots = match options.policy {
            Policy::Nexus => 1,
            _ => u16::MAX,
        };
        let world = play_on(most_slots, &options, vec![100], &steps);
        prop_assert_eq!(world.left(), (0..world.requests).collect::<Vec<_>>());
        prop_assert_eq!(world.scheduler.waiting(), 0);
        if matches!(options.policy, Policy::Clockwork | Policy::Nexus) {
            world.assert_none_late();
        }
    }

    #[test]
    fn every_request_leaves_exactly_once_from_devices_that_keep_no_time(
        options in options(),
        percent in vec(20..400u64, 1..8),
        steps in vec(step(), 1..150),
    ) {
        let world = play(&options, percent, &steps);
        prop_assert_eq!(world.left(), (0..world.requests).collect::<Vec<_>>());
        prop_assert_eq!(world.scheduler.waiting(), 0);
    }
}

/// A history that was found at random. Device 0 moves to pool 1 with a running batch, so the request of two rows that
/// waits there cannot be met any more. The request of one row behind it must still be sent or dropped.
#[test]
fn what_stands_behind_a_request_that_is_refused_on_a_moved_device_leaves() {
    let options = Options {
        look_ahead: 50 * MS,
        batch_sizes: vec![1, 2, 4, 8, 16],
        frontends: 1,
        epoch: 20 * MS,
        max_queue_delay: 0,
        ..Options::of(Policy::Clockwork)
    };
    let arrive = |queue, rows, slack| Step::Arrive {
        queue: QueueIx::new(queue),
        rows,
        slack,
    };
    let steps = [
        Step::Unload(PoolIx::new(0), 3),
        Step::Down(2),
        Step::Move(0, PoolIx::new(2)),
        Step::Load(PoolIx::new(2), 3),
        arrive(3, 1, None),
        arrive(2, 2, Some(12 * MS)),
        arrive(0, 1, None),
        arrive(2, 1, None),
        arrive(0, 1, None),
        Step::Move(0, PoolIx::new(1)),
    ];
    let world = play(&options, vec![100], &steps);
    assert_eq!(world.left(), [0, 1, 2, 3, 4]);
    assert_eq!(world.scheduler.waiting(), 0);
    world.assert_none_late();
}
