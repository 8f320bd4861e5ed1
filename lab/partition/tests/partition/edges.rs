//! Problems that are nearly empty, and problems that are refused.

use sextant_partition::{Error, Limit, Limits, Model, Problem};

use super::{all, at, drawn, exact, model, ours, rates};

#[test]
fn no_models_one_sub_cluster_and_rates_of_nothing() {
    for found in all(&[], Limits::none(3)) {
        let found = found.unwrap();
        assert_eq!(found.loads.len(), 3);
        assert!(found.clusters.is_empty() && found.objective == 0.0);
        assert_eq!(
            (found.rate_imbalance(), found.memory_imbalance()),
            (0.0, 0.0)
        );
    }
    let models = [model(3.0, 5, 1), model(0.0, 0, 0)];
    for found in all(&models, Limits::none(1)) {
        let found = found.unwrap();
        assert_eq!(found.clusters, [0, 0]);
        assert!(found.objective.abs() < 1e-12);
    }
    let idle = [model(0.0, 4, 1), model(0.0, 4, 1)];
    for found in all(&idle, Limits::none(2)) {
        let found = found.unwrap();
        assert_ne!(found.clusters[0], found.clusters[1]);
        assert_eq!(found.rate_imbalance(), 0.0);
    }
    assert_eq!(ours(&models, Limits::none(0)), Err(Error::NoClusters));
}

#[test]
fn more_sub_clusters_than_models_leave_some_empty() {
    for found in all(&rates(&[2.0, 2.0]), Limits::none(4)) {
        let found = found.unwrap();
        assert_ne!(found.clusters[0], found.clusters[1]);
        assert!((found.objective - 1.0).abs() < 1e-9, "{found:?}");
    }
}

#[test]
fn numbers_that_mean_nothing_are_refused() {
    for value in [f64::NAN, -1.0, f64::INFINITY, f64::NEG_INFINITY] {
        let rate = Model {
            rate_rps: value,
            ..model(1.0, 1, 1)
        };
        let cost = Model {
            move_cost: value,
            ..model(1.0, 1, 1)
        };
        for (wrong, name) in [(rate, "rate_rps"), (cost, "move_cost")] {
            let models = [model(1.0, 1, 1), wrong];
            let error = Problem::new(&models, Limits::none(2)).unwrap_err();
            assert!(
                matches!(error, Error::Model { model: 1, field, .. } if field == name),
                "{error}"
            );
        }
    }
    for value in [f64::NAN, -1.0] {
        let none = Limits::none(2);
        let limits = [
            Limits {
                rate_rps: value,
                ..none
            },
            Limits {
                move_cost: value,
                ..none
            },
            Limits {
                memory_weight: value,
                ..none
            },
        ];
        for limits in limits {
            let error = Problem::new(&[], limits).unwrap_err();
            assert!(matches!(error, Error::Limits { .. }), "{error}");
        }
    }
    let endless = Limits {
        memory_weight: f64::INFINITY,
        ..Limits::none(2)
    };
    assert!(Problem::new(&[], endless).is_err());
    let gone = [at(model(1.0, 1, 1), 2)];
    let error = Problem::new(&gone, Limits::none(2)).unwrap_err();
    assert!(matches!(
        error,
        Error::NoSuchCluster {
            model: 0,
            cluster: 2,
            clusters: 2
        }
    ));
}

#[test]
fn sums_too_large_for_their_type_are_refused() {
    let models = [model(f64::MAX, 0, 0), model(f64::MAX, 0, 0)];
    let error = Problem::new(&models, Limits::none(2)).unwrap_err();
    assert!(
        matches!(
            error,
            Error::TooMuch {
                limit: Limit::Rate,
                ..
            }
        ),
        "{error}"
    );
    let models = [model(1.0, u64::MAX, 0), model(1.0, u64::MAX, u64::MAX)];
    assert!(Problem::new(&models, Limits::none(2)).is_err());
    let found = ours(&models[..1], Limits::none(2)).unwrap();
    assert_eq!(found.loads[found.clusters[0]].memory_bytes(), u64::MAX);
}

#[test]
fn what_fits_nowhere_is_named_with_its_limit() {
    let models = [model(1.0, 10, 5), model(7.0, 10, 20)];
    let with = |rate_rps, memory_bytes| Limits {
        rate_rps,
        memory_bytes,
        ..Limits::none(2)
    };
    let alone = |limit, need, most| {
        Err(Error::ModelTooLarge {
            model: 1,
            limit,
            need,
            most,
        })
    };
    assert_eq!(ours(&models, with(5.0, 100)), alone(Limit::Rate, 7.0, 5.0));
    assert_eq!(
        ours(&models, with(9.0, 29)),
        alone(Limit::Memory, 30.0, 29.0)
    );
    let text = ours(&models, with(9.0, 29)).unwrap_err().to_string();
    assert!(
        text.contains("`30` of `29` (the memory of a device)"),
        "{text}"
    );
    let many = rates(&[4.0; 6]);
    let error = ours(&many, with(11.0, 100)).unwrap_err();
    assert!(
        matches!(error, Error::TooMuch { limit: Limit::Rate, need, most } if need == 24.0 && most == 22.0),
        "{error}"
    );
}

#[test]
fn only_the_solver_says_that_there_is_none() {
    // The rates sum up to 15 of 16, but three models of 5 do not fit into two sub-clusters of 8.
    let models = rates(&[5.0, 5.0, 5.0]);
    let limits = Limits {
        rate_rps: 8.0,
        ..Limits::none(2)
    };
    let limit = Limit::Rate;
    assert_eq!(ours(&models, limits), Err(Error::NotFound { limit }));
    assert_eq!(drawn(&models, limits, 100), Err(Error::NotFound { limit }));
    assert_eq!(exact(&models, limits), Err(Error::Impossible { limit }));
    // Neither model may move, and both do not fit where they are.
    let stuck = [at(model(5.0, 0, 0), 0), at(model(5.0, 0, 0), 0)];
    let limits = Limits {
        move_cost: 0.0,
        ..limits
    };
    assert_eq!(ours(&stuck, limits), Err(Error::NotFound { limit }));
    assert_eq!(exact(&stuck, limits), Err(Error::Impossible { limit }));
}
