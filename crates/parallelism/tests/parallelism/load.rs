//! Following the load.

use sextant_parallelism::{Load, LoadEstimator, LoadOptions};
use sextant_types::random::Random;

const SEEDS: std::ops::Range<u64> = 0..20;

/// Feeds `count` arrivals at `per_s` from `now` on.
fn feed(
    estimator: &mut LoadEstimator,
    random: &mut Random,
    (now, per_s, cv): (&mut f64, f64, f64),
    count: usize,
) -> Load {
    for gap in random.gaps(count, 1.0 / per_s, cv) {
        *now += gap;
        estimator.arrived((*now * 1e9) as u64);
    }
    estimator.load((*now * 1e9) as u64)
}

#[test]
fn a_step_is_followed() {
    // In as many arrivals of the new rate, what is estimated is within 10 % of it on average over
    // the seeds, up or down.
    for (before, after) in [(50.0, 200.0), (200.0, 50.0)] {
        let mut sum = 0.0;
        for seed in SEEDS {
            let (mut estimator, mut now) = (LoadEstimator::new(LoadOptions::default()), 1.0);
            let mut random = Random::new(seed);
            feed(&mut estimator, &mut random, (&mut now, before, 1.0), 1000);
            let load = feed(&mut estimator, &mut random, (&mut now, after, 1.0), 150);
            sum += (load.per_s / after - 1.0).abs();
        }
        let error = sum / SEEDS.end as f64;
        assert!(error < 0.1, "{before} to {after}: {error}");
    }
}

#[test]
fn steady_arrivals_are_no_change() {
    let mut changes = 0;
    for seed in SEEDS {
        for cv in [0.5, 1.0, 2.0] {
            let (mut estimator, mut now) = (LoadEstimator::new(LoadOptions::default()), 1.0);
            let mut random = Random::new(seed);
            let load = feed(&mut estimator, &mut random, (&mut now, 100.0, cv), 3000);
            assert!(
                (load.per_s / 100.0 - 1.0).abs() < 0.5,
                "seed {seed}: {load:?}"
            );
            changes += estimator.changes();
        }
    }
    // 180 000 arrivals.
    assert!(changes < 40, "{changes}");
}

#[test]
fn burstiness_shows() {
    let estimate = |cv: f64| {
        let (mut estimator, mut now) = (LoadEstimator::new(LoadOptions::default()), 1.0);
        feed(
            &mut estimator,
            &mut Random::new(5),
            (&mut now, 100.0, cv),
            512,
        )
    };
    let (poisson, bursty, even) = (estimate(1.0), estimate(2.0), estimate(0.3));
    assert!((0.6..1.5).contains(&poisson.scv), "{poisson:?}");
    assert!((0.4..2.0).contains(&poisson.dispersion), "{poisson:?}");
    assert!(bursty.scv > 2.0, "{bursty:?}");
    assert!(even.scv < 0.2, "{even:?}");
}

#[test]
fn silence_counts_as_it_lasts() {
    let (mut estimator, mut now) = (LoadEstimator::new(LoadOptions::default()), 1.0);
    assert_eq!(estimator.load(5), Load::default());
    let busy = feed(
        &mut estimator,
        &mut Random::new(5),
        (&mut now, 100.0, 1.0),
        200,
    );
    let later = |seconds: f64| estimator.load(((now + seconds) * 1e9) as u64).per_s;
    assert!((later(0.001) - busy.per_s).abs() < 1e-9);
    assert!(later(2.0) < 0.6 * busy.per_s);
    assert!(later(20.0) < 0.1 * busy.per_s);
}

#[test]
fn arrivals_at_one_moment_are_no_endless_load() {
    let mut estimator = LoadEstimator::new(LoadOptions::default());
    (0..100).for_each(|_| estimator.arrived(7));
    assert!(estimator.load(7).per_s.is_finite());
    estimator.arrived(3);
    assert!(estimator.load(1).per_s.is_finite());
}
