//! The whole decision, look by look.

use proptest::prelude::*;
use sextant_scaling::{
    Options, RecentMaximum, Scaler,
    fleet::{Measured, Trigger},
};
use sextant_types::index::VariantIx;

use crate::problems::input;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever is planned: within the hold a number changes its direction once at most.
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
    let bad = Measured {
        bad_share: 0.5,
        ..Measured::default()
    };
    let first = scaler.decide(&input(45.0, 1, bad), 1000).devices[0];
    assert_eq!((first.devices, first.trigger), (3, None));
    for second in 2..100u64 {
        let expected = scaler.decide(&input(45.0, 1, bad), second * 1000).devices[0];
        assert_eq!(expected.devices, 3, "two are still starting");
    }
    let loading = Measured {
        loading: true,
        ..bad
    };
    scaler.decide(&input(45.0, 3, loading), 100_000);
    let expected = scaler.decide(&input(45.0, 3, bad), 150_000).devices[0];
    assert_eq!(expected.devices, 3, "variants were loaded a moment ago");
    let expected = scaler.decide(&input(45.0, 3, bad), 170_000).devices[0];
    assert_eq!(
        (expected.devices, expected.trigger),
        (6, Some(Trigger::BadRate))
    );
}

const BAD: Measured = Measured {
    devices: 0,
    busy_share: 0.0,
    interfered: 0,
    overloaded: 0,
    bad_share: 0.2,
    loading: false,
};

/// At 100 s it has expected a fourth device, because a fifth of the queries for three was refused.
fn raised() -> Scaler {
    let mut scaler = Scaler::new(Options::default());
    scaler.decide(&input(45.0, 3, Measured::default()), 0);
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
    let good = input(45.0, 4, Measured::default());
    let later = scaler.decide(&good, 900_000).devices[0];
    assert_eq!(later.devices, 4, "three were too few at the same load");
    let small = input(5.0, 4, Measured::default());
    scaler.decide(&small, 901_000);
    let least = scaler.decide(&small, 1_600_000).devices[0];
    assert!(least.devices <= 2, "many times a small plan: {least:?}");
    scaler.decide(&good, 6_000_000);
    let forgotten = scaler.decide(&good, 6_700_000).devices[0];
    assert_eq!(forgotten.devices, 3);
}

/// Three devices that a load of 0.6 needed say nothing of one that is nearly gone, though a plan has one
/// device for both.
#[test]
fn a_correction_goes_with_the_load_that_it_was_for() {
    let mut scaler = Scaler::new(Options::default());
    let bad = Measured {
        bad_share: 0.6,
        ..Measured::default()
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
    let quiet = input(0.05, expected, Measured::default());
    let later = (0..900).map(|second| {
        let now_ms = 200_000 + second * 1000;
        scaler.decide(&quiet, now_ms).devices[0].devices
    });
    assert_eq!(later.last(), Some(1));
}

#[test]
fn a_variant_that_fills_a_device_is_loaded() {
    let mut scaler = Scaler::new(Options::default());
    let decided = scaler.decide(&input(45.0, 3, Measured::default()), 0);
    assert_eq!(decided.variants.get(&VariantIx::new(0)), Some(&3));
}
