//! Each condition of the selection from both sides. A lone query's run takes 5 ms, each row more half a
//! millisecond, a load 100 ms.

use sextant_selection::{
    Decision, Demand, Entry, Index, Readiness,
    Readiness::{Active, Degraded, Failed, Inactive, Loading},
    answers_now, best_effort, expected_ms, select, verdict,
};

use crate::order::{WaitTimes, demand, entry};
use sextant_types::{LeastQuality, index::VariantIx};

/// Costs 1, takes 5 ms, is of quality 0.5.
fn one(readiness: Readiness) -> Entry {
    entry(0, 1.0, 5.0, 0.5, readiness)
}

/// Three rows, which take 6 ms.
fn three_rows(latency_ms: f64) -> Demand {
    Demand {
        rows: 3,
        max_cost_per_1k_usd: 1.0,
        ..demand(latency_ms, 0.5)
    }
}

fn waits(ms: f64) -> WaitTimes {
    WaitTimes(vec![ms; 8])
}

fn decide(entries: Vec<Entry>, demand: &Demand, wait_ms: f64) -> Decision {
    select(&Index::new(entries), demand, &waits(wait_ms))
}

#[test]
fn each_readiness_has_a_name() {
    let names = [Active, Degraded, Loading, Inactive, Failed].map(Readiness::name);
    assert_eq!(
        names,
        ["active", "degraded", "loading", "inactive", "failed"]
    );
}

#[test]
fn a_verdict_gives_each_reason_from_its_boundary_on() {
    let of = |entry: &Entry, demand: Demand, wait| verdict(entry, &demand, &waits(wait));
    let (active, asked) = (one(Active), three_rows(8.0));
    // Every target is met exactly: 5 + 1 ms of run and 2 ms of wait.
    assert_eq!(
        of(
            &active,
            Demand {
                rows: 8,
                ..three_rows(8.5)
            },
            0.0
        ),
        "dearer"
    );
    assert_eq!(of(&active, Demand { rows: 9, ..asked }, 0.0), "rows");
    assert_eq!(of(&active, asked, 2.0), "dearer");
    assert_eq!(of(&active, asked, 2.01), "busy");
    assert_eq!(of(&active, three_rows(6.0), 0.0), "dearer");
    assert_eq!(of(&active, three_rows(5.99), 0.0), "latency");
    let strict = Demand {
        least_quality: LeastQuality::new(Some(0.51), None),
        ..asked
    };
    assert_eq!(of(&active, strict, 0.0), "accuracy");
    let poor = Demand {
        max_cost_per_1k_usd: 0.99,
        ..asked
    };
    assert_eq!(of(&active, poor, 0.0), "cost");
    assert_eq!(of(&one(Degraded), asked, 2.0), "degraded");
    assert_eq!(of(&one(Degraded), asked, 2.01), "busy");
}

#[test]
fn a_verdict_on_what_is_not_loaded_says_what_its_load_would_do() {
    let of = |entry: &Entry, latency_ms| verdict(entry, &three_rows(latency_ms), &waits(0.0));
    for readiness in [Loading, Inactive] {
        // 5 + 1 ms of run and 100 ms of load.
        assert_eq!(of(&one(readiness), 106.0), "not_loaded");
        assert_eq!(of(&one(readiness), 105.9), "load");
        assert_eq!(of(&one(readiness), 5.9), "latency");
        let dominated = Entry {
            dominated: true,
            ..one(readiness)
        };
        assert_eq!(of(&dominated, 1000.0), "dominated");
    }
    assert_eq!(of(&one(Failed), 1000.0), "failed");
    assert_eq!(of(&one(Failed), 5.9), "latency");
}

#[test]
fn an_active_instance_answers_now_where_every_target_is_met() {
    let of = |entry: &Entry, demand: Demand| answers_now(entry, &demand, &waits(2.0));
    let (active, asked) = (one(Active), three_rows(8.0));
    assert!(of(&active, asked));
    assert!(!of(&active, three_rows(7.9)));
    assert!(of(
        &active,
        Demand {
            rows: 8,
            ..three_rows(10.5)
        }
    ));
    assert!(!of(
        &active,
        Demand {
            rows: 9,
            ..three_rows(100.0)
        }
    ));
    assert!(!of(
        &active,
        Demand {
            least_quality: LeastQuality::new(Some(0.51), None),
            ..asked
        }
    ));
    assert!(!of(
        &active,
        Demand {
            max_cost_per_1k_usd: 0.99,
            ..asked
        }
    ));
    for other in [Degraded, Loading, Inactive, Failed] {
        assert!(!of(&one(other), three_rows(1000.0)), "{other:?}");
    }
}

#[test]
fn the_expected_time_is_the_run_and_what_comes_before_it() {
    let of = |readiness| expected_ms(&one(readiness), &three_rows(1.0), &waits(2.0));
    assert_eq!([Active, Degraded].map(of), [8.0, 8.0]);
    assert_eq!([Loading, Inactive, Failed].map(of), [106.0; 3]);
}

#[test]
fn targets_that_are_met_exactly_are_met() {
    for ready in [Active, Degraded] {
        let of = |demand: Demand, wait| decide(vec![one(ready)], &demand, wait);
        let used = Decision::Use {
            ordinal: VariantIx::new(0),
        };
        assert_eq!(of(three_rows(8.0), 2.0), used);
        let busy = Decision::Busy {
            ordinal: VariantIx::new(0),
            wait_ms: 2.01,
        };
        assert_eq!(of(three_rows(8.0), 2.01), busy);
        let impossible = [
            Demand {
                rows: 9,
                ..three_rows(100.0)
            },
            Demand {
                least_quality: LeastQuality::new(Some(0.51), None),
                ..three_rows(100.0)
            },
            Demand {
                max_cost_per_1k_usd: 0.99,
                ..three_rows(100.0)
            },
            three_rows(5.9),
        ];
        for demand in impossible {
            let decision = of(demand, 0.0);
            assert!(
                matches!(decision, Decision::Infeasible { .. }),
                "{demand:?}"
            );
        }
    }
}

#[test]
fn a_load_has_to_be_in_time_with_all_rows_of_the_query() {
    for cold in [Loading, Inactive] {
        for dominated in [false, true] {
            let of = |latency_ms| {
                let entry = Entry {
                    dominated,
                    ..one(cold)
                };
                // A variant that is not loaded has no queue in which to wait.
                decide(vec![entry], &three_rows(latency_ms), 50.0)
            };
            assert_eq!(
                of(106.0),
                Decision::LoadThenUse {
                    ordinal: VariantIx::new(0)
                }
            );
            let warming = Decision::Warming {
                ordinal: VariantIx::new(0),
                load_ms: 100.0,
            };
            assert_eq!(of(105.9), warming);
            assert_eq!(of(6.0), warming);
            assert!(matches!(of(5.9), Decision::Infeasible { .. }));
        }
    }
}

#[test]
fn of_busy_variants_the_one_is_named_that_is_free_first() {
    let ready = vec![
        entry(0, 1.0, 5.0, 0.5, Active),
        entry(1, 1.0, 5.0, 0.5, Degraded),
        entry(2, 1.0, 5.0, 0.5, Inactive),
        entry(3, 1.0, 5.0, 0.4, Active),
    ];
    let index = Index::new(ready);
    let of = |waits: [f64; 4]| select(&index, &demand(10.0, 0.5), &WaitTimes(waits.to_vec()));
    let busy = |ordinal, wait_ms| Decision::Busy {
        ordinal: VariantIx::new(ordinal),
        wait_ms,
    };
    assert_eq!(of([8.0, 9.0, 0.0, 1.0]), busy(0, 8.0));
    assert_eq!(of([9.0, 8.0, 0.0, 1.0]), busy(1, 8.0));
    // Of equal ones the first by number.
    assert_eq!(of([9.0, 9.0, 0.0, 1.0]), busy(0, 9.0));
}

#[test]
fn what_is_loaded_as_the_last_resort_is_the_best_of_the_feasible() {
    // Too slow to load for this query, so that nothing is in a class that answers it.
    let of = |raw: &[(f64, bool)]| {
        let entries = raw.iter().enumerate().map(|(at, (cost, dominated))| Entry {
            dominated: *dominated,
            ..entry(at as u32, *cost, 5.0, 0.5, Inactive)
        });
        match decide(entries.collect(), &demand(20.0, 0.5), 0.0) {
            Decision::Warming { ordinal, load_ms } => (ordinal.get(), load_ms),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(of(&[(1.0, true), (9.0, false)]), (1, 100.0));
    assert_eq!(of(&[(2.0, true), (1.0, true)]), (1, 100.0));
    assert_eq!(of(&[(2.0, false), (1.0, false)]), (1, 100.0));
    assert_eq!(of(&[(1.0, false), (1.0, false)]), (0, 100.0));
}

#[test]
fn the_cheapest_failed_variant_is_named_where_only_failed_ones_could() {
    let entries = vec![
        entry(0, 2.0, 5.0, 0.5, Failed),
        entry(1, 1.0, 5.0, 0.5, Failed),
        entry(2, 0.5, 5.0, 0.4, Failed),
    ];
    let decision = decide(entries.clone(), &demand(20.0, 0.5), 0.0);
    assert_eq!(
        decision,
        Decision::Unavailable {
            ordinal: VariantIx::new(1)
        }
    );
    let cold = entry(3, 9.0, 5.0, 0.5, Loading);
    let decision = decide([entries, vec![cold]].concat(), &demand(20.0, 0.5), 0.0);
    assert!(matches!(decision, Decision::Warming { ordinal, .. } if ordinal.get() == 3));
}

#[test]
fn the_best_effort_is_the_closest_that_is_loaded() {
    let of = |entries: &[Entry], rows| {
        let asked = Demand {
            rows,
            ..demand(4.0, 0.5)
        };
        best_effort(&Index::new(entries.to_vec()), &asked).map(VariantIx::get)
    };
    let slow = |ordinal, latency_ms, readiness| entry(ordinal, 1.0, latency_ms, 0.5, readiness);
    for ready in [Active, Degraded] {
        let both = [
            slow(0, 5.0, Inactive),
            slow(1, 50.0, ready),
            slow(2, 60.0, ready),
        ];
        assert_eq!(of(&both, 1), Some(1));
        let dominated = Entry {
            dominated: true,
            ..slow(1, 50.0, ready)
        };
        assert_eq!(of(&[slow(0, 5.0, Inactive), dominated], 1), Some(1));
    }
    let dominated = Entry {
        dominated: true,
        ..slow(1, 5.0, Inactive)
    };
    let cold = [
        slow(0, 5.0, Failed),
        dominated,
        slow(2, 6.0, Loading),
        slow(3, 7.0, Inactive),
    ];
    assert_eq!(of(&cold, 1), Some(2));
    assert_eq!(
        of(&cold, 8),
        Some(2),
        "eight rows are the most that it takes"
    );
    assert_eq!(of(&cold, 9), None);
    assert_eq!(of(&cold[..2], 1), None);
    assert_eq!(of(&[], 1), None);
}
