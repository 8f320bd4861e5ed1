//! How far a variant misses its targets, which are suggested, and which are needless.

use sextant_selection::{
    Decision, Demand, Entry, Index,
    Readiness::{Active, Failed, Inactive},
    SUGGESTIONS, distance, mark_dominated, select, verdict,
};

use crate::order::{WaitTimes, demand, entry};
use sextant_types::{
    LeastQuality,
    index::{KindIx, VariantIx},
};

/// Costs 3, takes 6 ms, is of quality 0.25.
fn one() -> Entry {
    entry(0, 3.0, 6.0, 0.25, Active)
}

#[test]
fn the_distance_sums_what_is_missed_relative_to_what_is_asked() {
    let none = demand(f64::INFINITY, f64::NEG_INFINITY);
    assert_eq!(distance(&one(), &none), 0.0);
    // (6 - 4) / 4, (0.5 - 0.25) / 0.5 and (3 - 2) / 2.
    assert_eq!(distance(&one(), &demand(4.0, f64::NEG_INFINITY)), 0.5);
    assert_eq!(distance(&one(), &demand(f64::INFINITY, 0.5)), 0.5);
    let cheap = |most| Demand {
        max_cost_per_1k_usd: most,
        ..none
    };
    assert_eq!(distance(&one(), &cheap(2.0)), 0.5);
    assert_eq!(distance(&one(), &cheap(1.0)), 2.0);
    let all = Demand {
        max_cost_per_1k_usd: 1.0,
        ..demand(2.0, 0.5)
    };
    assert_eq!(distance(&one(), &all), 2.0 + 0.5 + 2.0);
    // What is met by far makes up for nothing.
    let met = Demand {
        max_cost_per_1k_usd: 100.0,
        ..demand(4.0, 0.01)
    };
    assert_eq!(distance(&one(), &met), 0.5);
    // A quality below zero, as that of a loss, is relative to its size.
    let loss = Entry {
        quality_bound: -3.0,
        ..one()
    };
    assert_eq!(distance(&loss, &demand(f64::INFINITY, -2.0)), 0.5);
    // Nothing is divided by zero.
    assert_eq!(
        distance(&one(), &demand(0.0, f64::NEG_INFINITY)),
        6.0 / 1e-9
    );
}

#[test]
fn agreement_meets_no_accuracy_and_dominates_none() {
    let agrees = Entry {
        quality_bound: 1.0,
        agreement: true,
        ..entry(1, 1.0, 2.0, 1.0, Active)
    };
    let labelled = Entry {
        ordinal: VariantIx::new(0),
        ..one()
    };
    let all = || vec![labelled.clone(), agrees.clone()];
    let waits = WaitTimes(vec![0.0; 2]);
    let chosen = |least_quality| {
        let demand = Demand {
            least_quality,
            ..demand(f64::INFINITY, 0.0)
        };
        (
            select(&Index::new(all()), &demand, &waits),
            verdict(&agrees, &demand, &waits),
        )
    };
    let (labelled, other) = ([0, 1]).map(VariantIx::new).into();
    let ordinal = |ordinal| Decision::Use { ordinal };
    // Cheaper, quicker and `1.0`: and yet no answer to what asks for an accuracy.
    let accuracy = chosen(LeastQuality::new(Some(0.2), None));
    assert_eq!(accuracy, (ordinal(labelled), "agreement"));
    let refused = chosen(LeastQuality::new(Some(0.9), None)).0;
    assert!(
        matches!(&refused, Decision::Infeasible { closest } if closest[0] == labelled),
        "{refused:?}"
    );
    assert_eq!(chosen(LeastQuality::NONE).0, ordinal(other));
    let share = chosen(LeastQuality::new(Some(0.9), Some(0.99)));
    assert_eq!(share.0, ordinal(other));
    let mut entries = all();
    mark_dominated(&mut entries, &[0, 1]);
    assert!(entries.iter().all(|entry| !entry.dominated));
}

fn suggested(entries: Vec<Entry>, demand: &Demand) -> Vec<u32> {
    match select(&Index::new(entries), demand, &WaitTimes(vec![0.0; 16])) {
        Decision::Infeasible { closest } => closest.into_iter().map(VariantIx::get).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn suggestions_are_the_closest_then_the_cheapest_then_the_first() {
    let of = |ordinal, cost, latency_ms| entry(ordinal, cost, latency_ms, 0.5, Active);
    let entries = vec![
        of(0, 1.0, 9.0),
        of(1, 2.0, 7.0),
        of(2, 1.0, 7.0),
        of(3, 1.0, 7.0),
    ];
    assert_eq!(suggested(entries, &demand(5.0, 0.5)), [2, 3, 1, 0]);
    let many = (0..9).map(|at| of(at, 1.0, 20.0 - f64::from(at)));
    let best = suggested(many.collect(), &demand(5.0, 0.5));
    assert_eq!(best, [8, 7, 6, 5, 4]);
    assert_eq!(best.len(), SUGGESTIONS);
}

#[test]
fn a_suggestion_takes_the_rows_is_not_dominated_and_comes_once() {
    let of = |ordinal| entry(ordinal, 1.0, 9.0, 0.5, Inactive);
    let entries = vec![
        Entry {
            max_rows: 7,
            ..of(0)
        },
        Entry {
            dominated: true,
            ..of(1)
        },
        Entry {
            kind: KindIx::new(1),
            ..of(2)
        },
        of(2),
        Entry {
            readiness: Failed,
            ..of(3)
        },
    ];
    let eight = Demand {
        rows: 8,
        ..demand(5.0, 0.5)
    };
    assert_eq!(suggested(entries, &eight), [2, 3]);
}

/// Which of two entries are marked: the second is like the first, but for what `change` does.
fn marked(change: impl Fn(&mut Entry)) -> [bool; 2] {
    let mut entries = [one(), entry(1, 3.0, 6.0, 0.25, Active)];
    change(&mut entries[1]);
    mark_dominated(&mut entries, &[0, 1]);
    let marked = entries.clone().map(|entry| entry.dominated);
    // The order in which they are given decides nothing.
    entries.reverse();
    for entry in &mut entries {
        entry.dominated = false;
    }
    mark_dominated(&mut entries, &[0, 1]);
    entries.reverse();
    assert_eq!(entries.map(|entry| entry.dominated), marked);
    marked
}

#[test]
fn an_entry_is_needless_beside_one_that_is_as_good_in_everything() {
    let (first, second) = ([true, false], [false, true]);
    assert_eq!(marked(|_| {}), second, "of equal ones the first stays");
    assert_eq!(marked(|it| it.cost_per_1k_usd = 2.0), first);
    assert_eq!(marked(|it| it.cost_per_1k_usd = 4.0), second);
    assert_eq!(marked(|it| it.quality_bound = 0.5), first);
    assert_eq!(marked(|it| it.quality_bound = 0.125), second);
    assert_eq!(marked(|it| it.latency_ms = 5.0), first);
    assert_eq!(marked(|it| it.latency_ms = 7.0), second);
    assert_eq!(marked(|it| it.load_ms = 99.0), first);
    assert_eq!(marked(|it| it.load_ms = 101.0), second);
    assert_eq!(marked(|it| it.max_rows = 9), first);
    assert_eq!(marked(|it| it.max_rows = 7), second);
}

#[test]
fn an_entry_that_is_better_in_anything_is_needed() {
    let neither = [false, false];
    let dearer = |it: &mut Entry| it.cost_per_1k_usd = 4.0;
    let with = |better: fn(&mut Entry)| {
        marked(|it| {
            dearer(it);
            better(it);
        })
    };
    assert_eq!(with(|it| it.quality_bound = 0.5), neither);
    assert_eq!(with(|it| it.latency_ms = 5.0), neither);
    assert_eq!(with(|it| it.load_ms = 99.0), neither);
    assert_eq!(with(|it| it.max_rows = 9), neither);
    assert_eq!(with(|it| it.kind = KindIx::new(1)), neither);
    // Beside one that cannot be loaded as well; which is needless itself.
    assert_eq!(marked(|it| it.readiness = Failed), [false, true]);
    let cheaper_but_failed = |it: &mut Entry| {
        it.cost_per_1k_usd = 2.0;
        it.readiness = Failed;
    };
    assert_eq!(marked(cheaper_but_failed), neither);
}
