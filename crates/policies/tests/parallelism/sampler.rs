//! Which samples count and how many are taken.

use proptest::prelude::*;
use sextant_policies::parallelism::{Concurrency, Random, Sampler, StopRule};

fn sampled(scv: f64, seed: u64) -> Sampler {
    let mut random = Random::new(seed);
    let mut sampler = Sampler::new(StopRule::default());
    while !sampler.is_done() {
        sampler.observe(0.005 * random.gamma(scv));
    }
    sampler
}

#[test]
fn even_service_times_need_the_minimum() {
    let summary = sampled(0.0, 1).summary();
    assert_eq!(summary.samples, StopRule::default().minimum);
    assert!((summary.mean_s - 0.005).abs() < 1e-12);
    assert!(summary.is_homogeneous());
}

#[test]
fn uneven_ones_need_more_up_to_the_bound() {
    let some = sampled(0.001, 2).summary();
    assert!(some.samples > 10 && some.samples < 200, "{some:?}");
    assert!(some.half_width <= 0.01);
    let wild = sampled(1.0, 3).summary();
    assert_eq!(wild.samples, StopRule::default().maximum);
    assert!(!wild.is_homogeneous(), "{wild:?}");
}

#[test]
fn the_interval_holds_what_it_says() {
    let seeds = 0..400_u64;
    let outside = seeds.clone().filter(|seed| {
        let mut random = Random::new(*seed);
        let mut sampler = Sampler::new(StopRule::default());
        (0..12).for_each(|_| sampler.observe(1.0 + 0.1 * random.normal()));
        let summary = sampler.summary();
        (summary.mean_s - 1.0).abs() > summary.half_width * summary.mean_s
    });
    let share = outside.count() as f64 / seeds.count() as f64;
    assert!((0.02..0.09).contains(&share), "{share}");
}

#[test]
fn a_sample_counts_only_beside_all_others() {
    let mut watch = Concurrency::new(2, 0.01);
    watch.begin(0, 0.0);
    watch.begin(1, 0.5);
    // Alone for half of its time.
    assert_eq!(watch.end(0, 1.0), None);
    watch.begin(0, 1.001);
    // A thousandth of its time without the other.
    assert!(watch.end(1, 1.5).is_some());
    watch.begin(1, 1.501);
    let counted = watch.end(0, 2.0).unwrap();
    assert!((counted - 0.999).abs() < 1e-9);
    // Alone again.
    assert_eq!(watch.end(1, 2.5), None);
    assert_eq!(watch.end(1, 2.6), None);
    assert_eq!(watch.end(9, 2.6), None);
}

proptest! {
    /// Emulated machines with injected rates: what is recovered is what was put in.
    #[test]
    fn injected_rates_are_recovered(
        per_s in proptest::collection::vec(1.0..100.0_f64, 1..6), seed in any::<u64>(),
    ) {
        let target = per_s.len();
        let mut random = Random::new(seed);
        let mut watch = Concurrency::new(target, 0.01);
        let mut sampler = Sampler::new(StopRule::default());
        // All threads begin at different times and go on in a closed loop.
        let mean = 1.0 / per_s[target - 1];
        let mut next: Vec<f64> = (0..target).map(|_| random.unit() * mean).collect();
        let mut open = vec![false; target];
        while !sampler.is_done() {
            let (thread, now) = next.iter().copied().enumerate()
                .min_by(|(_, a), (_, b)| a.total_cmp(b)).unwrap();
            if open[thread] && let Some(service_s) = watch.end(thread, now) {
                sampler.observe(service_s);
            }
            watch.begin(thread, now);
            open[thread] = true;
            next[thread] = now + mean * (1.0 + 0.03 * (random.unit() - 0.5));
        }
        let found = 1.0 / sampler.summary().mean_s;
        prop_assert!((found * mean - 1.0).abs() < 0.02, "{found} seed {seed}");
    }
}
