//! Predictions against a simulator of their own, and ours against equation 12 where arrivals are
//! bursty.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sextant_parallelism::{
    Model, Queue, Rates, lookahead,
    lookahead::{Arrivals, Scenario},
};
use sextant_types::random::Random;

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

#[test]
fn playing_is_right_where_equation_12_is_not() {
    let known = rates(&INTERFERING);
    let load = load(&INTERFERING, 0.8);
    let measured = measured(&INTERFERING, 0.8, 2.0, 160_000);
    let arrivals = Arrivals {
        per_s: load,
        cv: 2.0,
    };
    let played = lookahead::steady(&known, arrivals, 0.0, 160_000, &mut Random::new(SEED));
    let error = |predicted: f64| (predicted / measured - 1.0).abs();
    let ours = error(played.mean_s(16_000));
    assert!(ours < 0.04, "{ours}, seed {SEED}");
    let queue = Queue::solve(&known, load).unwrap();
    let estimated = error(queue.service_s() + queue.general_wait_s(0.0, 4.0));
    assert!(error(queue.mean_s()) > 0.5, "seed {SEED}");
    assert!(estimated < 0.3, "{estimated}, seed {SEED}");
}

#[test]
fn a_short_look_at_bursts_beats_equation_12() {
    // As the policy does it: few requests, of a trace that is known. The average over traces.
    let known = rates(&INTERFERING);
    let load = load(&INTERFERING, 0.8);
    let measured = measured(&INTERFERING, 0.8, 2.0, 160_000);
    let arrivals = Arrivals {
        per_s: load,
        cv: 2.0,
    };
    let mut random = Random::new(SEED);
    let looks = 50;
    let sum: f64 = (0..looks)
        .map(|_| lookahead::steady(&known, arrivals, 0.0, 800, &mut random).mean_s(0))
        .sum();
    let predicted = Model::Serf.mean_s(&known, load).unwrap();
    let error = |predicted: f64| (predicted / measured - 1.0).abs();
    let ours = error(sum / f64::from(looks));
    assert!(ours < 0.5 * error(predicted), "{ours}, seed {SEED}");
}

#[test]
fn a_tail_is_predicted_within_five_percent() {
    let per_s = &INTERFERING;
    let machine = Machine {
        rates: per_s,
        load: load(per_s, 0.8),
        cv: 1.0,
        requests: 100_000,
    };
    let mut latencies = machine.run(&mut ChaCha8Rng::seed_from_u64(SEED));
    latencies.sort_by(f64::total_cmp);
    let measured = latencies[latencies.len() * 99 / 100];
    let arrivals = Arrivals {
        per_s: machine.load,
        cv: 1.0,
    };
    let mut random = Random::new(SEED);
    let played = lookahead::steady(&rates(per_s), arrivals, 0.0, 100_000, &mut random);
    let predicted = played.quantile_s(0.99, 10_000);
    assert!(
        (predicted / measured - 1.0).abs() < 0.05,
        "{predicted} {measured}, seed {SEED}"
    );
}

#[test]
fn scatter_of_work_is_carried() {
    let known = rates(&INTERFERING);
    let load = load(&INTERFERING, 0.8);
    let queue = Queue::solve(&known, load).unwrap();
    let arrivals = Arrivals {
        per_s: load,
        cv: 1.0,
    };
    for scv in [0.29, 1.0] {
        let mut random = Random::new(SEED);
        let played = lookahead::steady(&known, arrivals, scv, 100_000, &mut random);
        let predicted = queue.service_s() + queue.general_wait_s(scv, 1.0);
        let error = (predicted / played.mean_s(10_000) - 1.0).abs();
        assert!(error < 0.04, "{scv}: {error}, seed {SEED}");
    }
}

#[test]
fn a_backlog_is_served_first() {
    let scenario = Scenario {
        rates: &rates(&[10.0, 5.0]),
        gaps_s: &[0.25],
        work: &[],
        running: 0,
        queued: 4,
    };
    // Two at a time for 0.2 s each: the last of the backlog ends at 0.4, the arrival of 0.25 waits
    // for that and then runs alone.
    let latencies = lookahead::play(&scenario).all_s;
    let expected = [0.2, 0.2, 0.4, 0.4, 0.25];
    for (found, expected) in latencies.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-9, "{latencies:?}");
    }
    assert_eq!(latencies.len(), expected.len());
}

#[test]
fn work_out_of_normal_draws_has_the_asked_for_scatter() {
    let mut random = Random::new(SEED);
    let normals: Vec<f64> = (0..50_000).map(|_| random.normal()).collect();
    for scv in [0.0, 0.05, 0.29, 1.0] {
        let work = lookahead::work_of(&normals, scv);
        let mean = work.iter().sum::<f64>() / work.len() as f64;
        let squares: f64 = work.iter().map(|it| (it - mean).powi(2)).sum();
        let found = squares / work.len() as f64 / (mean * mean);
        assert!((mean - 1.0).abs() < 0.02, "{scv}: {mean}, seed {SEED}");
        assert!(
            (found - scv).abs() < 0.06 * scv + 1e-9,
            "{scv}: {found}, seed {SEED}"
        );
    }
}
