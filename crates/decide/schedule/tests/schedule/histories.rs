//! Properties over random histories. A failure prints the history and the seed that repeats it.

use proptest::{collection::vec, option, prelude::*};
use sextant_baselines::Policy;
use sextant_schedule::{Delay, PoolIx};

use crate::world::{DEVICES, QUEUES, SLOWNESS, Setting, Step, World};
use sextant_types::index::{DeviceIx, QueueIx};

/// The policies with one growing batch per queue.
const POLICIES: [Policy; 6] = [
    Policy::Sextant,
    Policy::Symphony,
    Policy::SymphonyPaper,
    Policy::Eager,
    Policy::EagerWeak,
    Policy::Timeout,
];

fn step() -> impl Strategy<Value = Step> {
    let (pools, devices) = (SLOWNESS.len() as u32, DEVICES.len() as u32);
    prop_oneof![
        12 => (0..QUEUES, 1..6u32, option::weighted(0.8, 0..3_000u64))
            .prop_map(|(queue, rows, slack)| Step::Arrive { queue: QueueIx::new(queue), rows, slack }),
        8 => (0..300u64).prop_map(|nanos| Step::Pass { nanos }),
        8 => (0..6usize).prop_map(|which| Step::Finish { which }),
        1 => (0..20usize).prop_map(|which| Step::Zombie { which }),
        2 => Just(Step::Ring),
        1 => (0..pools, 0..QUEUES).prop_map(|(pool, queue)| Step::Load { pool: PoolIx::new(pool), queue: QueueIx::new(queue) }),
        1 => (0..pools, 0..QUEUES).prop_map(|(pool, queue)| Step::Unload { pool: PoolIx::new(pool), queue: QueueIx::new(queue) }),
        1 => (0..devices).prop_map(|device| Step::Up { device: DeviceIx::new(device) }),
        1 => (0..devices).prop_map(|device| Step::Down { device: DeviceIx::new(device) }),
        2 => (0..devices, 0..pools).prop_map(|(device, pool)| Step::Move { device: DeviceIx::new(device), pool: PoolIx::new(pool) }),
    ]
}

fn setting() -> impl Strategy<Value = Setting> {
    let delay = prop_oneof![
        3 => Just(Delay::default()),
        1 => Just(Delay { control: 7, data_per_row: 1, response: 3 }),
    ];
    (
        proptest::sample::select(&POLICIES[..]),
        prop_oneof![Just(0.0), Just(1.0), 0.0..1.0],
        any::<bool>(),
        delay,
        any::<bool>(),
    )
        .prop_map(|(policy, hold, beta_lambda, delay, exact)| Setting {
            policy,
            hold,
            beta_lambda,
            delay,
            // A device that is sent its next batch ahead of time keeps to its times.
            exact: exact || delay != Delay::default(),
        })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_request_leaves_exactly_once_and_no_device_is_used_twice(
        setting in setting(),
        steps in vec(step(), 1..150),
    ) {
        let mut world = World::new(setting);
        steps.iter().for_each(|step| world.play(step));
        let (sent, answered) = world.drain();
        prop_assert_eq!(answered, (0..sent).collect::<Vec<_>>());
    }
}
