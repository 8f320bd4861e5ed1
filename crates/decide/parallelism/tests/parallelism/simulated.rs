//! Predictions against a simulator of their own.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sextant_parallelism::{Model, Rates};

use crate::machine::Machine;

const SEED: u64 = 7;

fn rates(per_s: &[f64]) -> Rates {
    Rates::new(per_s.to_vec()).unwrap()
}

const INTERFERING: [f64; 4] = [3.0, 2.9, 2.2, 1.7];

/// Load at a utilisation.
fn load(per_s: &[f64], utilization: f64) -> f64 {
    utilization * per_s[per_s.len() - 1] * per_s.len() as f64
}

fn measured(per_s: &[f64], utilization: f64, cv: f64, requests: usize) -> f64 {
    let machine = Machine {
        rates: per_s,
        load: load(per_s, utilization),
        cv,
        requests,
    };
    machine.mean(&mut ChaCha8Rng::seed_from_u64(SEED))
}

#[test]
fn equation_12_is_within_three_percent() {
    let machines: [&[f64]; 4] = [&[10.0], &[10.0, 7.0], &INTERFERING, &[5.0, 2.8, 1.7]];
    for per_s in machines {
        for utilization in [0.2, 0.5, 0.8] {
            let predicted = Model::Serf
                .mean_s(&rates(per_s), load(per_s, utilization))
                .unwrap();
            let measured = measured(per_s, utilization, 1.0, 60_000);
            let error = (predicted / measured - 1.0).abs();
            assert!(
                error < 0.03,
                "{per_s:?} {utilization}: {predicted} {measured}, seed {SEED}"
            );
        }
    }
}

#[test]
fn the_paper_s_model_is_the_best_of_four_under_poisson_load() {
    let measured = measured(&INTERFERING, 0.8, 1.0, 60_000);
    let error = |model: Model| {
        let predicted = model
            .mean_s(&rates(&INTERFERING), load(&INTERFERING, 0.8))
            .unwrap();
        (predicted / measured - 1.0).abs()
    };
    for simpler in &Model::ALL[1..] {
        let (paper, other) = (error(Model::Serf), error(*simpler));
        assert!(
            paper < 0.5 * other,
            "{}: {paper} {other}, seed {SEED}",
            simpler.name()
        );
    }
}
