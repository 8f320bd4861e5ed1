//! Fits, tables and running estimates of run times.

use proptest::prelude::*;
use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use sextant_profile::{
    InvalidProfile, Measurement, Method, Rolling10, RollingKey, Tracker, TrackerOptions, fit,
    table_of,
};
use sextant_schedule::{LatencyTable, Nanos};
use sextant_types::index::{KindIx, VariantIx};

const ALPHA: f64 = 1_053_000.0;
const BETA: f64 = 5_072_000.0;

fn point(rows: u32, nanos: f64) -> Measurement {
    Measurement {
        rows,
        nanos: nanos.round() as Nanos,
    }
}

/// About normal, mean 0 and deviation 1.
fn normal(rng: &mut ChaCha8Rng) -> f64 {
    (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0
}

fn measured(seed: u64, noise: f64, outliers: f64) -> Vec<Measurement> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut points = Vec::new();
    for rows in [1, 2, 3, 4, 6, 8, 12, 16, 24, 32] {
        for _ in 0..20 {
            let slow = if rng.random_bool(outliers) { 4.0 } else { 1.0 };
            let time = ALPHA * f64::from(rows) + BETA;
            points.push(point(rows, time * slow * (1.0 + noise * normal(&mut rng))));
        }
    }
    points
}

fn near(value: f64, expected: f64, share: f64) -> bool {
    (value / expected - 1.0).abs() <= share
}

#[test]
fn noisy_points_give_the_line_back() {
    for seed in 0..20 {
        for method in [Method::LeastSquares, Method::TheilSen] {
            let fit = fit(&measured(seed, 0.02, 0.0), method).unwrap();
            assert!(near(fit.line.alpha, ALPHA, 0.02), "seed {seed}: {fit:?}");
            assert!(near(fit.line.beta, BETA, 0.02), "seed {seed}: {fit:?}");
            let held_out = fit.held_out.unwrap();
            assert_eq!(held_out.points, 200, "every point is held out once");
            assert!(held_out.mean < 0.03, "seed {seed}: {held_out:?}");
            assert!(held_out.worst >= held_out.mean);
        }
    }
}

#[test]
fn the_robust_fit_shrugs_off_outliers_that_move_least_squares() {
    for seed in 0..20 {
        let points = measured(seed, 0.02, 0.1);
        let robust = fit(&points, Method::TheilSen).unwrap().line;
        let squares = fit(&points, Method::LeastSquares).unwrap().line;
        for rows in [1, 8, 32, 64] {
            let truth = ALPHA * f64::from(rows) + BETA;
            assert!(near(robust.nanos(rows), truth, 0.02), "seed {seed}");
            let error = |nanos: f64| (nanos - truth).abs();
            assert!(error(robust.nanos(rows)) < error(squares.nanos(rows)) + 0.02 * truth);
        }
    }
}

#[test]
fn coefficients_are_never_negative() {
    let falling = [point(1, 9e6), point(2, 8e6), point(4, 6e6)];
    let steep = [point(1, 1e6), point(2, 3e6), point(4, 9e6)];
    for method in [Method::LeastSquares, Method::TheilSen] {
        let line = fit(&falling, method).unwrap().line;
        assert!(line.alpha == 0.0 && line.beta > 5e6, "{line:?}");
        let line = fit(&steep, method).unwrap().line;
        assert!(line.beta == 0.0 && line.alpha > 0.9e6, "{line:?}");
    }
}

#[test]
fn a_line_tells_the_rows_of_a_budget() {
    let line = fit(&[point(1, 3e6), point(3, 5e6)], Method::TheilSen)
        .unwrap()
        .line;
    assert_eq!(line.rows_within(2_999_999), 0);
    assert_eq!(line.rows_within(3_000_000), 1);
    assert_eq!(line.rows_within(10_500_000), 8);
    assert_eq!(line.table(4).unwrap().of(4), 6_000_000);
}

#[test]
fn bad_measurements_are_named() {
    let message = |rows, ms| Measurement::parse(rows, ms).unwrap_err().to_string();
    assert!(message("0", "1.5").contains("`0` is not a number of rows"));
    assert!(message("-3", "1.5").contains("`-3`"));
    assert!(message("four", "1.5").contains("`four`"));
    for ms in ["0", "-1", "NaN", "inf", "1e300", "", "1,5"] {
        let text = message("4", ms);
        assert!(
            text.contains(&format!("`{ms}` is not a run time")),
            "{text}"
        );
    }
    let parsed = Measurement::parse(" 4 ", " 1.5 ").unwrap();
    assert_eq!((parsed.rows, parsed.nanos), (4, 1_500_000));
    let none = fit(&[], Method::TheilSen).unwrap_err();
    assert_eq!(none, InvalidProfile::Empty);
    let one = fit(&[point(4, 1e6), point(4, 2e6)], Method::TheilSen).unwrap_err();
    assert_eq!(one, InvalidProfile::OneSize { rows: 4 });
    assert!(one.to_string().contains("`4` rows"));
    assert!(table_of(&[point(0, 1e6)], 8).is_err());
    assert!(table_of(&[point(1, 0.0)], 8).is_err());
}

#[test]
fn tables_are_straight_between_sizes_and_go_on_along_the_line() {
    let table = table_of(&[point(2, 4e6), point(4, 6e6), point(8, 10e6)], 16).unwrap();
    let expected = [
        (1, 3),
        (2, 4),
        (3, 5),
        (4, 6),
        (6, 8),
        (8, 10),
        (12, 14),
        (16, 18),
    ];
    for (rows, ms) in expected {
        assert_eq!(table.of(rows), ms * 1_000_000, "{rows} rows");
    }
    let single = table_of(&[point(4, 8e6)], 8).unwrap();
    assert_eq!(
        (single.of(1), single.of(4), single.of(8)),
        (8_000_000, 8_000_000, 16_000_000)
    );
}

proptest! {
    #[test]
    fn tables_never_decrease_whatever_was_measured(
        points in proptest::collection::vec((1..40u32, 1..10_000_000_000u64), 1..60),
        most in 1..64u32,
    ) {
        let points: Vec<_> = points.iter().map(|&(rows, nanos)| Measurement { rows, nanos }).collect();
        let table = table_of(&points, most).unwrap();
        prop_assert!(table.measured_rows() >= most);
        prop_assert!(table.of(1) >= 1);
        prop_assert!((1..80).all(|rows| table.of(rows) <= table.of(rows + 1)));
    }

    #[test]
    fn estimates_are_positive_and_tables_monotone_whatever_runs(
        runs in proptest::collection::vec((0..70u32, prop_oneof![
            4 => 1..20_000_000u64, 1 => Just(0), 1 => Just(u64::MAX), 1 => Just(1),
        ]), 1..300),
        quantile in 0.5..1.0f64,
    ) {
        let options = TrackerOptions { quantile, ..TrackerOptions::default() };
        let mut tracker = Tracker::new(LatencyTable::linear(1.0, 5.0, 32).unwrap(), options);
        for (rows, nanos) in runs {
            tracker.observe(rows, nanos);
            prop_assert!(tracker.drift().is_finite() && tracker.drift() > 0.0);
            prop_assert!((0..70).all(|rows| tracker.estimate(rows) >= 1));
            if let Some(table) = tracker.table() {
                prop_assert!((1..32).all(|rows| table.of(rows) <= table.of(rows + 1)));
                prop_assert!((1..=32).all(|rows| table.of(rows) >= tracker.estimate(rows)));
            }
        }
    }
}

const KEY: RollingKey<VariantIx> = RollingKey {
    of: VariantIx::new(3),
    rows: 4,
    kind: KindIx::new(1),
};

#[test]
fn the_rolling_estimate_is_the_99th_percentile_of_the_last_ten() {
    let mut rolling = Rolling10::default();
    assert_eq!(rolling.estimate(KEY), None);
    rolling.observe(KEY, 2_000);
    assert_eq!(rolling.estimate(KEY), Some(2_000), "the seed alone");
    for nanos in (100..=1_000).step_by(100) {
        rolling.observe(KEY, nanos);
    }
    // The seed has left; position 0.99 * 9 = 8.91 lies between 900 and 1,000.
    assert_eq!(rolling.estimate(KEY), Some(991));
    let mut most_first = Rolling10::default();
    for nanos in (100..=1_000).rev().step_by(100) {
        most_first.observe(KEY, nanos);
    }
    assert_eq!(most_first.estimate(KEY), Some(991));
    most_first.observe(KEY, 100);
    assert_eq!(
        most_first.estimate(KEY),
        Some(891),
        "the first is forgotten"
    );
    let other = RollingKey {
        kind: KindIx::new(2),
        ..KEY
    };
    assert_eq!(most_first.estimate(other), None, "kinds are kept apart");
}

#[test]
fn a_change_of_the_clock_scales_the_rolling_estimate_at_once() {
    let mut rolling = Rolling10::default();
    for _ in 0..10 {
        rolling.observe_at_clock(KEY, 1_000_000, 1_400);
    }
    assert_eq!(rolling.estimate_at_clock(KEY, 1_400), Some(1_000_000));
    assert_eq!(rolling.estimate_at_clock(KEY, 700), Some(2_000_000));
}

fn profile() -> LatencyTable {
    LatencyTable::linear(1.0, 5.0, 16).expect("a valid line")
}

/// What both estimates said before each run, and what the run took.
#[derive(Default)]
struct EstimateErrors {
    /// Estimate over measured, less 1.
    ours: Vec<f64>,
    rolling: Vec<f64>,
}

impl EstimateErrors {
    /// Runs `count` batches; small sizes are common and large ones rare, as under low load.
    fn run(
        seed: u64,
        count: usize,
        noise: f64,
        outliers: f64,
        level: impl Fn(usize) -> f64,
    ) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut tracker = Tracker::new(profile(), TrackerOptions::default());
        let mut rolling = Rolling10::default();
        let key = |rows| RollingKey {
            of: VariantIx::new(0),
            rows,
            kind: KindIx::new(0),
        };
        (1..=16).for_each(|rows| rolling.observe(key(rows), profile().of(rows)));
        let mut compared = Self::default();
        for at in 0..count {
            let rows = (1.0 / rng.random_range(0.0625..1.0f64)) as u32;
            let outlier = rng.random_bool(outliers);
            let slow = if outlier { 3.0 } else { 1.0 };
            let truth = profile().of(rows) as f64 * level(at) * (1.0 + noise * normal(&mut rng));
            let nanos = (truth * slow) as Nanos;
            if !outlier {
                let error = |estimate: Nanos| estimate as f64 / truth - 1.0;
                compared.ours.push(error(tracker.estimate(rows)));
                compared
                    .rolling
                    .push(error(rolling.estimate(key(rows)).expect("seeded")));
            }
            tracker.observe(rows, nanos);
            rolling.observe(key(rows), nanos);
        }
        compared
    }
}

fn share_under(errors: &[f64], of: f64) -> f64 {
    errors.iter().filter(|error| **error < of).count() as f64 / errors.len() as f64
}

fn mean_over(errors: &[f64]) -> f64 {
    errors.iter().map(|error| error.max(0.0)).sum::<f64>() / errors.len() as f64
}

#[test]
fn with_outliers_ours_predicts_both_less_over_and_less_under() {
    for seed in 0..10 {
        let compared = EstimateErrors::run(seed, 4_000, 0.01, 0.01, |_| 1.0);
        let (ours, rolling) = (&compared.ours, &compared.rolling);
        assert!(
            share_under(ours, 0.0) < share_under(rolling, 0.0),
            "seed {seed}"
        );
        assert!(share_under(ours, 0.0) < 0.03, "seed {seed}");
        assert!(mean_over(ours) < 0.5 * mean_over(rolling), "seed {seed}");
        assert!(
            1.0 - share_under(ours, 0.5) == 0.0,
            "seed {seed}: an outlier was believed"
        );
        assert!(
            1.0 - share_under(rolling, 0.5) > 0.02,
            "seed {seed}: outliers are sticky there"
        );
    }
}

#[test]
fn with_drift_ours_predicts_less_under() {
    for seed in 0..10 {
        let slow = |at: usize| 1.0 + 0.4 * (at as f64 / 2_000.0 * std::f64::consts::TAU).sin();
        let compared = EstimateErrors::run(seed, 8_000, 0.01, 0.005, slow);
        let (ours, rolling) = (&compared.ours, &compared.rolling);
        assert!(
            share_under(ours, -0.02) < share_under(rolling, -0.02),
            "seed {seed}"
        );
        assert!(mean_over(ours) < mean_over(rolling), "seed {seed}");
    }
}

#[test]
fn a_shift_is_followed_within_a_handful_of_runs_over_all_sizes() {
    for seed in 0..10 {
        let compared =
            EstimateErrors::run(
                seed,
                2_000,
                0.01,
                0.0,
                |at| if at < 1_000 { 1.0 } else { 1.3 },
            );
        let far_under = |errors: &[f64]| {
            let of_size = errors[1_000..].iter().filter(|error| **error < -0.05);
            of_size.count()
        };
        assert!(far_under(&compared.ours) <= 6, "seed {seed}");
        assert!(
            far_under(&compared.ours) < far_under(&compared.rolling),
            "seed {seed}"
        );
        assert!(
            compared.ours[1_010..].iter().all(|error| *error > -0.05),
            "seed {seed}"
        );
        assert!(
            compared.ours[1_100..].iter().all(|error| *error < 0.12),
            "seed {seed}"
        );
    }
}

#[test]
fn what_one_size_shows_is_shared_with_the_others() {
    let mut tracker = Tracker::new(profile(), TrackerOptions::default());
    for _ in 0..5 {
        tracker.observe(2, profile().of(2) * 13 / 10);
    }
    assert!(
        near(tracker.drift(), 1.3, 0.02),
        "drift {}",
        tracker.drift()
    );
    let never_run = tracker.estimate(16) as f64;
    assert!(never_run >= profile().of(16) as f64 * 1.29);
}

#[test]
fn a_size_whose_profile_is_wrong_is_corrected_alone() {
    let mut tracker = Tracker::new(profile(), TrackerOptions::default());
    for _ in 0..200 {
        for rows in [1, 1, 1, 2, 3, 8, 1, 2] {
            let wrong = if rows == 8 { 3 } else { 2 };
            tracker.observe(rows, profile().of(rows) * wrong / 2);
        }
    }
    assert!(
        near(tracker.drift(), 1.0, 0.03),
        "drift {}",
        tracker.drift()
    );
    assert!(near(
        tracker.estimate(8) as f64,
        profile().of(8) as f64 * 1.5,
        0.05
    ));
    assert!(near(
        tracker.estimate(2) as f64,
        profile().of(2) as f64,
        0.05
    ));
}

#[test]
fn an_outlier_is_counted_and_changes_no_estimate() {
    let mut tracker = Tracker::new(profile(), TrackerOptions::default());
    for _ in 0..100 {
        tracker.observe(1, profile().of(1));
    }
    let before: Vec<_> = (1..=16).map(|rows| tracker.estimate(rows)).collect();
    assert!(tracker.table().is_none(), "nothing has changed");
    tracker.observe(16, profile().of(16) * 5);
    assert_eq!(tracker.quarantined(), 1);
    let after: Vec<_> = (1..=16).map(|rows| tracker.estimate(rows)).collect();
    assert_eq!(before, after);
    assert!(tracker.table().is_none());
}

#[test]
fn a_new_table_comes_only_with_a_change() {
    let mut tracker = Tracker::new(profile(), TrackerOptions::default());
    for _ in 0..10 {
        tracker.observe(4, profile().of(4) * 3 / 2);
    }
    let table = tracker.table().expect("half slower");
    assert_eq!(table.of(4), tracker.estimate(4));
    assert!(tracker.table().is_none(), "told already");
}
