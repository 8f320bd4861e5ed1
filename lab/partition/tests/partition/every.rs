//! Small instances, compared with all possible divisions.

use proptest::{collection::vec, option, prelude::*, strategy::ValueTree, test_runner::TestRunner};
use sextant_partition::{Error, Finder, Limits, Model};

use super::{
    at, exact,
    oracle::{assert_sound, brute_force, judged},
    ours,
};

fn models(most: usize) -> impl Strategy<Value = Vec<Model>> {
    let one = (
        0..30_u32,
        0..20_u64,
        0..20_u64,
        0..4_u32,
        option::of(0..3_usize),
    );
    let one = one.prop_map(|(rate, static_bytes, dynamic_bytes, cost, now)| Model {
        rate_rps: f64::from(rate),
        static_bytes,
        dynamic_bytes,
        move_cost: f64::from(cost),
        now,
    });
    vec(one, 1..=most)
}

/// Limits that are sometimes wide, sometimes tight and sometimes impossible.
fn limits(models: &[Model], slack: (u8, u8, u8), memory_weight: f64) -> Limits {
    let clusters = 3;
    let rate: f64 = models.iter().map(|of| of.rate_rps).sum();
    let memory: u64 = models.iter().map(|of| of.static_bytes).sum();
    let dynamic = models.iter().map(|of| of.dynamic_bytes).max().unwrap_or(0);
    let cost: f64 = models.iter().map(|of| of.move_cost).sum();
    let of = |slack: u8, wide: f64, from: f64| match slack {
        9.. => wide,
        tight => from * (1.0 + f64::from(tight) / 10.0),
    };
    Limits {
        clusters,
        rate_rps: of(slack.0, f64::INFINITY, rate / 3.0).ceil(),
        memory_bytes: of(slack.1, 1e9, (memory / 3 + dynamic) as f64) as u64,
        move_cost: of(slack.2, f64::INFINITY, cost / 2.0).floor(),
        memory_weight,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]

    /// The integer programme's answer is the best of all divisions, or there is none. Our answer keeps to the limits
    /// and is never better than the best.
    #[test]
    fn small_instances_have_the_answers_of_brute_force(
        models in models(6),
        slack in (0..12_u8, 0..12_u8, 0..12_u8),
        weight in 0..3_u8,
    ) {
        let limits = limits(&models, slack, f64::from(weight));
        let best = brute_force(&models, &limits);
        let (ours, solved) = (ours(&models, limits), exact(&models, limits));
        let Some(best) = best else {
            prop_assert!(ours.is_err() && solved.is_err(), "{:?} {:?}", ours, solved);
            let proved = !matches!(solved, Err(Error::NotFound { .. }));
            prop_assert!(proved, "{:?}", solved);
            return Ok(());
        };
        let solved = solved.unwrap();
        assert_sound(&models, &limits, &solved.partition);
        prop_assert_eq!(solved.found, Finder::Optimal);
        prop_assert!((solved.partition.objective - best).abs() < 1e-6, "{:?}: {}", solved, best);
        prop_assert!(solved.bound <= best + 1e-6);
        if let Ok(ours) = ours {
            assert_sound(&models, &limits, &ours);
            prop_assert!(ours.objective >= best - 1e-9);
        }
    }

    /// Without a present division and without tight limits, our answer is the best.
    #[test]
    fn ours_is_the_best_where_nothing_hinders_it(models in models(7), weight in 0..3_u8) {
        let models: Vec<Model> = models.into_iter().map(|of| Model { now: None, ..of }).collect();
        let limits = Limits { memory_weight: f64::from(weight), ..Limits::none(3) };
        let best = brute_force(&models, &limits).unwrap();
        let ours = ours(&models, limits).unwrap();
        assert_sound(&models, &limits, &ours);
        prop_assert!((ours.objective - best).abs() < 1e-9, "{:?}: {}", ours, best);
    }

    /// Without a budget no model moves. With a budget, the answer never exceeds it and is no worse than the present
    /// division.
    #[test]
    fn the_budget_is_kept(
        models in models(24),
        nows in vec(0..3_usize, 24),
        budget in 0..20_u32,
    ) {
        let nows = models.iter().zip(&nows);
        let models: Vec<Model> = nows.map(|(of, now)| at(*of, *now)).collect();
        let limits = Limits { move_cost: f64::from(budget), ..Limits::none(3) };
        let stay: Vec<usize> = models.iter().filter_map(|of| of.now).collect();
        let (before, _) = judged(&models, &limits, &stay).unwrap();
        let found = ours(&models, limits).unwrap();
        assert_sound(&models, &limits, &found);
        prop_assert!(found.move_cost <= f64::from(budget));
        prop_assert!(found.objective <= before + 1e-9);
        let costly: Vec<Model> = models.iter().map(|of| Model { move_cost: 1.0 + of.move_cost, ..*of }).collect();
        let found = ours(&costly, Limits { move_cost: 0.0, ..limits }).unwrap();
        prop_assert_eq!(found.clusters, stay);
    }
}

/// Budgets and tight limits may hide the best division from ours, but rarely. The instances are always the same.
#[test]
fn ours_is_nearly_always_the_best_whatever_the_limits() {
    let mut runner = TestRunner::deterministic();
    let (mut possible, mut missed) = (0, 0);
    while possible < 300 {
        let models = models(7).new_tree(&mut runner).unwrap().current();
        let slack = (0..12_u8, 0..12_u8, 0..12_u8);
        let slack = slack.new_tree(&mut runner).unwrap().current();
        let limits = limits(&models, slack, 1.0);
        if let Some(best) = brute_force(&models, &limits) {
            possible += 1;
            let ours = ours(&models, limits);
            missed += u32::from(!ours.is_ok_and(|ours| ours.objective < best + 1e-9));
        }
    }
    assert!(missed <= possible / 100, "{missed} of {possible}");
}
