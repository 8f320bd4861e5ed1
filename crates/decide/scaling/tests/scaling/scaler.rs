//! The whole decision, look by look.

use proptest::prelude::*;
use sextant_scaling::{
    Kind, Options, Policy, RecentMaximum, Scaler, ScalingDecision,
    fleet::{Measurement, Trigger},
};
use sextant_types::index::VariantIx;

use crate::problems::{self, input};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// For any plans: within the hold a number changes its direction at most once.
    #[test]
    fn what_is_desired_turns_round_once_within_the_hold(
        planned in prop::collection::vec((1u64..40_000, 0u32..6), 1..200),
    ) {
        let mut steady = RecentMaximum::new(600_000);
        let (mut now, mut last, mut turns, mut direction) = (0, 0, Vec::new(), 0);
        for (gap, count) in planned {
            now += gap;
            let expected = steady.want((), now, count);
            prop_assert!(expected >= count, "less than is needed");
            let step = (expected as i64 - last as i64).signum();
            if step != 0 {
                if direction != 0 && step != direction {
                    turns.push((now, step));
                }
                direction = step;
            }
            last = expected;
        }
        // Two turns in ten minutes would be down and up again and down again.
        let downs: Vec<u64> = turns.iter().filter(|(_, step)| *step < 0).map(|(at, _)| *at).collect();
        for pair in turns.windows(2).filter(|pair| pair[1].1 < 0) {
            prop_assert!(pair[1].0 - pair[0].0 >= 600_000, "{turns:?} {downs:?}");
        }
    }
}

#[test]
fn what_was_bad_while_devices_started_asks_for_no_more_of_them() {
    let mut scaler = Scaler::new(Options::default());
    let bad = Measurement {
        bad_share: 0.5,
        ..Measurement::default()
    };
    let first = scaler.decide(&input(45.0, 1, bad), 1000).devices[0];
    assert_eq!((first.devices, first.trigger), (3, None));
    for second in 2..100u64 {
        let expected = scaler.decide(&input(45.0, 1, bad), second * 1000).devices[0];
        assert_eq!(expected.devices, 3, "two are still starting");
    }
    let mut loading = input(45.0, 3, bad);
    loading.instances = vec![crate::awaited::loads(0)];
    scaler.decide(&loading, 100_000);
    let expected = scaler.decide(&input(45.0, 3, bad), 150_000).devices[0];
    assert_eq!(expected.devices, 3, "variants were loaded a moment ago");
    let expected = scaler.decide(&input(45.0, 3, bad), 170_000).devices[0];
    assert_eq!(
        (expected.devices, expected.trigger),
        (6, Some(Trigger::BadRate))
    );
}

const BAD: Measurement = Measurement {
    devices: 0,
    busy_share: 0.0,
    interfered: 0,
    overloaded: 0,
    bad_share: 0.2,
};

/// At 100 s it has expected a fourth device, because a fifth of the queries for three was refused.
fn raised() -> Scaler {
    let mut scaler = Scaler::new(Options::default());
    scaler.decide(&input(45.0, 3, Measurement::default()), 0);
    let raised = scaler.decide(&input(45.0, 3, BAD), 100_000).devices[0];
    assert_eq!(raised.devices, 4);
    scaler
}

#[test]
fn what_was_bad_before_devices_came_asks_for_no_more_of_them_however_soon_they_came() {
    let mut scaler = raised();
    for second in 101..160u64 {
        let expected = scaler.decide(&input(45.0, 4, BAD), second * 1000).devices[0];
        assert_eq!(expected.devices, 4, "the fourth was up at the next look");
    }
    let still = scaler.decide(&input(45.0, 4, BAD), 170_000).devices[0];
    assert_eq!((still.devices, still.trigger), (5, Some(Trigger::BadRate)));
}

#[test]
fn a_plan_that_was_too_small_stays_corrected_when_the_hold_is_over() {
    let mut scaler = raised();
    let good = input(45.0, 4, Measurement::default());
    let later = scaler.decide(&good, 900_000).devices[0];
    assert_eq!(later.devices, 4, "three were too few at the same load");
    let small = input(5.0, 4, Measurement::default());
    scaler.decide(&small, 901_000);
    let least = scaler.decide(&small, 1_600_000).devices[0];
    assert!(least.devices <= 2, "many times a small plan: {least:?}");
    scaler.decide(&good, 6_000_000);
    let forgotten = scaler.decide(&good, 6_700_000).devices[0];
    assert_eq!(forgotten.devices, 3);
}

/// Three devices that a load of 0.6 needed say nothing about a load that is nearly gone, although a plan has one device
/// for both.
#[test]
fn a_correction_goes_with_the_load_that_it_was_for() {
    let mut scaler = Scaler::new(Options::default());
    let bad = Measurement {
        bad_share: 0.6,
        ..Measurement::default()
    };
    let mut expected = 0;
    for second in 0..200 {
        let decided = scaler.decide(&input(12.0, 1, bad), second * 1000);
        expected = decided.devices[0].devices;
        if expected > 1 {
            break;
        }
    }
    assert!(expected > 1, "nothing was corrected");
    let quiet = input(0.05, expected, Measurement::default());
    let later = (0..900).map(|second| {
        let now_ms = 200_000 + second * 1000;
        scaler.decide(&quiet, now_ms).devices[0].devices
    });
    assert_eq!(later.last(), Some(1));
}

/// Most of what is offered is refused by the two devices that the budget pays for.
#[test]
fn what_was_measured_asks_for_no_more_than_the_budget_pays_for() {
    for policy in [Policy::Sextant, Policy::Ilp, Policy::Infaas] {
        let mut scaler = Scaler::new(Options {
            policy,
            ..Options::default()
        });
        let bad = Measurement {
            bad_share: 0.9,
            busy_share: 1.0,
            overloaded: 2,
            ..Measurement::default()
        };
        let mut look = input(5000.0, 2, bad);
        look.problem.devices[0].price_per_hour_usd = 0.5;
        look.problem.devices[0].most = 8;
        look.problem.budget_per_hour_usd = Some(1.0);
        for second in 0..200u64 {
            let desired = scaler.decide(&look, second * 1000).devices[0];
            assert_eq!(desired.devices, 2, "{policy:?}");
        }
        look.problem.budget_per_hour_usd = Some(1.7);
        let desired = scaler.decide(&look, 300_000).devices[0];
        assert_eq!(desired.devices, 3, "{policy:?}");
    }
}

/// There may be as many devices as are needed, and the budget pays for two of the three.
#[test]
fn a_plan_costs_no_more_than_the_budget_whoever_plans() {
    for policy in [Policy::Sextant, Policy::Ilp] {
        let mut scaler = Scaler::new(Options {
            policy,
            ..Options::default()
        });
        let mut look = input(45.0, 2, Measurement::default());
        let desired = |decided: &ScalingDecision| decided.devices[0].devices;
        look.problem.budget_per_hour_usd = Some(2.0);
        assert_eq!(desired(&scaler.decide(&look, 0)), 2, "{policy:?}");
        look.problem.budget_per_hour_usd = Some(3.0);
        assert_eq!(desired(&scaler.decide(&look, 1000)), 3, "{policy:?}");
    }
}

#[test]
fn a_budget_ends_devices_that_were_held_before_those_that_are_planned() {
    let mut scaler = Scaler::new(Options::default());
    let mut look = input(45.0, 3, Measurement::default());
    look.problem.budget_per_hour_usd = Some(3.0);
    look.problem.devices.push(problems::device(0.1));
    look.problem.devices[1].most = 0;
    look.problem.choices.push(problems::choice(0, 1, 20.0));
    look.kinds.push(Kind {
        key: 1,
        up: 0,
        ..look.kinds[0]
    });
    look.kinds[1].measured.devices = 0;
    look.footprints.push(problems::footprint_of(1, 95, 0));
    let counts = |decided: &ScalingDecision| {
        let devices = decided.devices.iter().map(|it| it.devices);
        devices.collect::<Vec<u32>>()
    };
    let first = scaler.decide(&look, 0);
    assert_eq!(counts(&first), [3, 0]);
    // The cheap type has come: its devices are planned, and those of the dear one are held.
    look.problem.devices[1].most = 10;
    let after = scaler.decide(&look, 1000);
    assert_eq!(counts(&after), [2, 3], "3.3 USD an hour were too many");
}

#[test]
fn a_variant_that_fills_a_device_is_loaded() {
    let mut scaler = Scaler::new(Options::default());
    let decided = scaler.decide(&input(45.0, 3, Measurement::default()), 0);
    assert_eq!(decided.variants.get(&VariantIx::new(0)), Some(&3));
}
