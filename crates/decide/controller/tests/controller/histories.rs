//! Properties over random histories. A failure prints the history and the seed that repeats it.

use proptest::{collection::vec, option, prelude::*};
use sextant_baselines as schedule;
use sextant_placement as placement;
use sextant_placement::{DesiredPlacement, Shared};
use sextant_schedule::{Delay, NEVER, Nanos};

use crate::world::{Answer, Setting, Step, World};
use sextant_types::index::{DeviceIx, KindIx, VariantIx};

const DEVICES: u32 = 3;
const VARIANTS: u32 = 7;
/// How much longer the times of [`lively`] devices are.
const REAL: Nanos = 100_000;
const MINUTE: Nanos = 60_000_000_000;
/// Requests that may wait still do not wait longer than this once nothing else is under way.
const LONGEST: Nanos = 6_000_000_000;

/// The scheduling policies that serve nothing late on devices with exact run times.
const IN_TIME: [schedule::Policy; 6] = [
    schedule::Policy::Sextant,
    schedule::Policy::Symphony,
    schedule::Policy::SymphonyPaper,
    schedule::Policy::Eager,
    schedule::Policy::EagerWeak,
    schedule::Policy::Clockwork,
];

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        14 => (0..VARIANTS, 1..3u32, option::weighted(0.9, 0..4_000u64))
            .prop_map(|(variant, rows, slack)| Step::Arrive { variant: VariantIx::new(variant), rows, slack }),
        8 => (0..400u64).prop_map(|nanos| Step::Pass { nanos }),
        8 => (0..4usize).prop_map(|which| Step::Finish { which }),
        6 => (0..3usize, prop::bool::weighted(0.8))
            .prop_map(|(which, ok)| Step::EndLoad { which, ok }),
        4 => (0..3usize).prop_map(|which| Step::Confirm { which }),
        1 => (0..DEVICES, 0..VARIANTS).prop_map(|(device, variant)| Step::Lose { device: DeviceIx::new(device), variant: VariantIx::new(variant) }),
        1 => (0..DEVICES, 0..VARIANTS).prop_map(|(device, variant)| Step::Find { device: DeviceIx::new(device), variant: VariantIx::new(variant) }),
        2 => (0..3usize).prop_map(|which| Step::Miss { which }),
        1 => (0..VARIANTS).prop_map(|variant| Step::Respecify { variant: VariantIx::new(variant) }),
        2 => Just(Step::Ring),
        1 => (0..DEVICES).prop_map(|device| Step::Up { device: DeviceIx::new(device) }),
        1 => (0..DEVICES).prop_map(|device| Step::Down { device: DeviceIx::new(device) }),
        1 => (0..DEVICES, 0..3u32).prop_map(|(device, kind)| Step::Kind { device: DeviceIx::new(device), kind: KindIx::new(kind) }),
        1 => (desired(), prop_oneof![Just(NEVER), 100..3_000u64])
            .prop_map(|(list, idle_unload)| Step::Want { list, idle_unload }),
        1 => (0..VARIANTS).prop_map(|variant| Step::Retire { variant: VariantIx::new(variant) }),
        1 => (0..VARIANTS, 0..DEVICES).prop_map(|(variant, from)| Step::Withdraw { variant: VariantIx::new(variant), from: DeviceIx::new(from) }),
        2 => (0..VARIANTS, 0..DEVICES).prop_map(|(variant, from)| Step::Relocate { variant: VariantIx::new(variant), from: DeviceIx::new(from) }),
    ]
}

fn desired() -> impl Strategy<Value = Vec<(VariantIx, DesiredPlacement)>> {
    let one = (
        prop_oneof![1..4u32, Just(u32::MAX)],
        prop::bool::weighted(0.2),
        0..9u32,
    )
        .prop_map(|(devices, pinned, order)| DesiredPlacement {
            devices,
            pinned,
            order,
        });
    let listed = prop::sample::subsequence((0..VARIANTS).collect::<Vec<_>>(), 0..4);
    (listed, vec(one, 4))
        .prop_map(|(variants, of)| variants.into_iter().map(VariantIx::new).zip(of).collect())
}

fn setting() -> impl Strategy<Value = Setting> {
    let delay = prop_oneof![
        3 => Just(Delay::default()),
        1 => Just(Delay { control: 7, data_per_row: 1, response: 3 }),
    ];
    (
        proptest::sample::select(schedule::Policy::ALL),
        proptest::sample::select(placement::Policy::ALL),
        delay,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(scheduling, placing, delay, exact, sharing)| Setting {
            scheduling: schedule::Options {
                delay,
                preferred_rows: vec![2, 4],
                max_queue_delay: 150,
                look_ahead: 100,
                epoch: 5_000,
                ..schedule::Options::of(scheduling)
            },
            placing: placement::Options {
                look_ahead: 100,
                capacity: 2_000,
                margin: 50,
                memory: 10_000,
                ..placement::Options::of(placing)
            },
            devices: vec![(6, 1), (8, 2), (5, 1)],
            variants: vec![
                (1, 60, 100, 10),
                (2, 120, 100, 10),
                (3, 180, 200, 20),
                (3, 180, 100, 50),
                (2, 90, 100, 10),
                (5, 400, 300, 30),
                (1, 60, 100, 10),
            ],
            shared: match sharing {
                true => [None, Some(0), Some(0), Some(1), Some(0), None, Some(1)]
                    .map(|group| group.map(|group| Shared { group, pages: 2 }))
                    .to_vec(),
                false => vec![],
            },
            max_rows: 4,
            shaped: vec![1, 2, 3],
            // A device that is sent its next batch ahead of time keeps to its times.
            exact: exact || delay != Delay::default(),
            tenants: 1,
        })
}

/// The settings of the service, with several tenants on devices with variable times that are as long as those of real
/// devices.
fn lively() -> impl Strategy<Value = Setting> {
    (setting(), 1..4u32, any::<bool>()).prop_map(|(setting, tenants, exact)| Setting {
        scheduling: schedule::Options {
            policy: schedule::Policy::Sextant,
            ..setting.scheduling
        },
        placing: placement::Options {
            look_ahead: 100 * REAL,
            capacity: 2_000 * REAL,
            margin: 50 * REAL,
            memory: 10_000 * REAL,
            ..placement::Options::of(placement::Policy::Sextant)
        },
        variants: setting
            .variants
            .into_iter()
            .map(|(pages, load, first, more)| (pages, load * REAL, first * REAL, more * REAL))
            .collect(),
        tenants,
        exact,
        ..setting
    })
}

/// The same, in longer times, of requests that may wait for a minute or for ever.
fn patient(step: Step) -> Step {
    match step {
        Step::Arrive {
            variant,
            rows,
            slack,
        } => Step::Arrive {
            variant,
            rows,
            slack: slack
                .filter(|slack| slack % 4 > 0)
                .map(|slack| match slack % 4 {
                    1 => slack * REAL,
                    _ => MINUTE + slack * REAL,
                }),
        },
        Step::Pass { nanos } => Step::Pass {
            nanos: nanos * REAL,
        },
        Step::Want { list, idle_unload } => Step::Want {
            list,
            idle_unload: idle_unload.saturating_mul(REAL),
        },
        step => step,
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_request_leaves_exactly_once_and_no_page_is_used_twice(
        setting in setting(),
        steps in vec(step(), 1..150),
    ) {
        let exact = setting.exact && IN_TIME.contains(&setting.scheduling.policy);
        let mut world = World::new(setting);
        steps.iter().for_each(|step| world.play(step));
        let sent = world.drain();
        prop_assert_eq!(world.answers.len() as u64, sent);
        let late = |answer: &Answer| matches!(answer, Answer::Served { late: true, .. });
        prop_assert!(!exact || !world.answers.values().any(late), "late answers");
    }

    #[test]
    fn nobody_is_forgotten_once_devices_are_idle(
        setting in lively(),
        steps in vec(step().prop_map(patient), 1..150),
    ) {
        let mut world = World::new(setting);
        steps.iter().for_each(|step| world.play(step));
        let sent = world.drain_within(LONGEST);
        prop_assert_eq!(world.answers.len() as u64, sent);
    }
}
