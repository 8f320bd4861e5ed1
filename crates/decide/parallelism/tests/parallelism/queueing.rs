//! Equations 1 to 12.

use proptest::prelude::*;
use sextant_parallelism::{InvalidRates, Model, Queue, Rates, cosmetatos};

use crate::known;

fn rates(per_s: &[f64]) -> Rates {
    Rates::new(per_s.to_vec()).unwrap()
}

#[test]
fn known_cases_are_met() {
    for case in known::CASES {
        assert!(case.error() < 1e-4, "{case:?}: {}", case.error());
    }
}

#[test]
fn an_unstable_load_has_no_prediction() {
    let two = rates(&[10.0, 7.0]);
    for load in [14.0, 20.0, f64::INFINITY, f64::NAN, -1.0] {
        assert!(Queue::solve(&two, load).is_none(), "{load}");
        assert!(
            Model::ALL
                .iter()
                .all(|model| model.mean_s(&two, load).is_none() || load == 14.0)
        );
    }
    // Blind to interference, the simpler models believe in a load that cannot be kept up with.
    assert!(Model::Deterministic.mean_s(&two, 14.0).is_some());
}

#[test]
fn without_load_latency_is_that_of_a_lone_request() {
    for model in Model::ALL {
        let mean_s = model.mean_s(&rates(&[10.0, 7.0]), 0.0).unwrap();
        assert!((mean_s - 0.1).abs() < 1e-12, "{}", model.name());
    }
}

#[test]
fn what_is_no_rate_is_refused() {
    assert_eq!(Rates::new(Vec::new()), Err(InvalidRates::Empty));
    for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = Rates::new(vec![1.0, wrong]).unwrap_err();
        assert!(
            matches!(error, InvalidRates::Rate { running: 2, .. }),
            "{error}"
        );
    }
}

#[test]
fn many_side_by_side_do_not_overflow() {
    let queue = Queue::solve(&rates(&[5.0; 400]), 1900.0).unwrap();
    assert!((queue.service_s() - 0.2).abs() < 1e-9);
    assert!(queue.mean_s().is_finite());
}

/// Rates and a load that they keep up with.
fn stable() -> impl Strategy<Value = (Vec<f64>, f64)> {
    (
        proptest::collection::vec(0.1..50.0_f64, 1..17),
        0.01..0.98_f64,
    )
        .prop_map(|(per_s, share)| {
            let capacity = per_s.len() as f64 * per_s[per_s.len() - 1];
            (per_s, share * capacity)
        })
}

proptest! {
    #[test]
    fn probabilities_sum_to_one((per_s, load) in stable()) {
        let queue = Queue::solve(&rates(&per_s), load).unwrap();
        let service = queue.service();
        let head: f64 = (0..service).map(|n| queue.probability(n)).sum();
        let tail = queue.probability(service) / (1.0 - queue.utilization());
        prop_assert!((head + tail - 1.0).abs() < 1e-9);
        let beyond = queue.probability(service + 3) / queue.probability(service + 2);
        prop_assert!((beyond - queue.utilization()).abs() < 1e-9);
    }

    #[test]
    fn service_time_is_little_s_law_of_the_busy((per_s, load) in stable()) {
        let queue = Queue::solve(&rates(&per_s), load).unwrap();
        let little = queue.busy() / load;
        prop_assert!((queue.service_s() - little).abs() < 1e-9 * little.max(1.0));
    }

    #[test]
    fn the_exponential_wait_is_little_s_law_of_the_queue((per_s, load) in stable()) {
        let queue = Queue::solve(&rates(&per_s), load).unwrap();
        let service = queue.service();
        let waiting: f64 = (1..4000).map(|n| n as f64 * queue.probability(service + n)).sum();
        prop_assert!((queue.exponential_wait_s() - waiting / load).abs() <= 1e-6 * waiting / load + 1e-12);
    }

    #[test]
    fn one_at_a_time_is_exact(rate in 0.1..100.0_f64, share in 0.001..0.99_f64) {
        let queue = Queue::solve(&rates(&[rate]), share * rate).unwrap();
        let exact = 1.0 / rate + share / (2.0 * rate * (1.0 - share));
        prop_assert!((queue.mean_s() - exact).abs() < 1e-9 * exact);
    }

    #[test]
    fn without_interference_it_is_cosmetatos(
        rate in 0.1..100.0_f64, service in 1..17_usize, share in 0.01..0.98_f64,
    ) {
        let load = share * rate * service as f64;
        let queue = Queue::solve(&rates(&vec![rate; service]), load).unwrap();
        // Erlang's C formula, by its recurrence.
        let offered = load / rate;
        let lost = (1..=service).fold(1.0, |b, n| offered * b / (n as f64 + offered * b));
        let waits = lost / (1.0 - share * (1.0 - lost));
        let exponential = waits / (service as f64 * rate - load);
        let expected = 1.0 / rate + cosmetatos(service, share) * exponential;
        prop_assert!((queue.mean_s() - expected).abs() < 1e-9 * expected);
        let same = Model::Deterministic.mean_s(&rates(&vec![rate; service]), load).unwrap();
        prop_assert!((queue.mean_s() - same).abs() < 1e-12);
    }
}
