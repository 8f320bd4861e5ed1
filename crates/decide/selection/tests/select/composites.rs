//! Composite variants beside those of models.

use sextant_selection::{
    Composite, Decision, Demand, Index,
    Readiness::{Active, Inactive},
    composite, select,
};
use sextant_types::Prefer;

use crate::order::{WaitTimes, demand, entry};

/// A cheap variant of 0.9, and a dear one of 0.97.
fn index() -> Index {
    Index::new(vec![
        entry(0, 1.0, 2.0, 0.9, Active),
        entry(1, 10.0, 8.0, 0.97, Active),
    ])
}

fn idle() -> WaitTimes {
    WaitTimes(vec![0.0; 8])
}

/// As good as the dear one, for a third.
const CASCADE: Composite = Composite {
    quality_bound: 0.965,
    latency_ms: 11.0,
    cost_per_1k_usd: 3.0,
};

fn least(accuracy: f64) -> Demand {
    demand(100.0, accuracy)
}

fn chosen(index: &Index, demand: &Demand) -> Option<usize> {
    let decision = select(index, demand, &idle());
    composite([CASCADE], (index, &decision), demand, &idle())
}

#[test]
fn it_answers_where_it_is_the_cheapest_that_is_good_enough() {
    let index = index();
    assert_eq!(
        chosen(&index, &least(0.5)),
        None,
        "a cheaper one is good enough"
    );
    assert_eq!(chosen(&index, &least(0.95)), Some(0));
    assert_eq!(chosen(&index, &least(0.97)), None, "it is not good enough");
    assert_eq!(CASCADE.verdict(&least(0.97)), "accuracy");
    assert_eq!(CASCADE.verdict(&least(0.5)), "dearer");
}

#[test]
fn its_time_its_price_and_rows_count() {
    let index = index();
    let hurried = Demand {
        latency_ms: 10.0,
        ..least(0.95)
    };
    assert_eq!(
        (chosen(&index, &hurried), CASCADE.verdict(&hurried)),
        (None, "latency")
    );
    let poor = Demand {
        max_cost_per_1k_usd: 2.0,
        ..least(0.95)
    };
    assert_eq!(
        (chosen(&index, &poor), CASCADE.verdict(&poor)),
        (None, "cost")
    );
    let many = Demand {
        rows: 65,
        ..least(0.95)
    };
    assert_eq!(
        (chosen(&index, &many), CASCADE.verdict(&many)),
        (None, "rows")
    );
    // Its rows are taken to run one after the other.
    let of = |rows| Demand {
        rows,
        latency_ms: 2.5 * CASCADE.latency_ms,
        ..least(0.95)
    };
    assert_eq!(chosen(&index, &of(2)), Some(0));
    assert_eq!(CASCADE.expected_ms(&of(2)), 2.0 * CASCADE.latency_ms);
    assert_eq!(
        (chosen(&index, &of(3)), CASCADE.verdict(&of(3))),
        (None, "latency")
    );
}

#[test]
fn a_preference_decides_between_it_and_a_variant() {
    let index = index();
    let prefer = |prefer| Demand {
        prefer,
        ..least(0.95)
    };
    assert_eq!(chosen(&index, &prefer(Prefer::Accuracy)), None);
    assert_eq!(chosen(&index, &prefer(Prefer::Latency)), None);
    assert_eq!(chosen(&index, &prefer(Prefer::Cost)), Some(0));
}

#[test]
fn it_goes_before_a_load_and_a_refusal_and_the_cheapest_of_several_answers() {
    let none = Index::new(Vec::new());
    let refusal = Decision::Infeasible {
        closest: Vec::new(),
    };
    let cheaper = Composite {
        cost_per_1k_usd: 2.0,
        ..CASCADE
    };
    let all = [CASCADE, cheaper, cheaper];
    let taken = composite(all, (&none, &refusal), &least(0.95), &idle());
    assert_eq!(taken, Some(1));
    let cold = Index::new(vec![entry(0, 0.5, 2.0, 0.97, Inactive)]);
    assert_eq!(chosen(&cold, &least(0.95)), Some(0), "it needs no load");
    assert_eq!(composite([], (&none, &refusal), &least(0.5), &idle()), None);
}
