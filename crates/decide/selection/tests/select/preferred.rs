//! Queries that prefer accuracy or latency to a low price.

use sextant_selection::{
    Decision, Demand, Entry, Index,
    Readiness::{Active, Degraded, Inactive},
    select, verdict,
};
use sextant_types::{
    Prefer,
    index::{KindIx, VariantIx},
};

use crate::order::{WaitTimes, demand, entry};

fn preferring(prefer: Prefer, latency_ms: f64, min_quality: f64) -> Demand {
    Demand {
        prefer,
        ..demand(latency_ms, min_quality)
    }
}

fn decided(entries: &[Entry], demand: &Demand, waits: &[f64]) -> Decision {
    select(
        &Index::new(entries.to_vec()),
        demand,
        &WaitTimes(waits.to_vec()),
    )
}

fn used(at: u32) -> Decision {
    Decision::Use {
        ordinal: VariantIx::new(at),
    }
}

/// A cheap one, a quick one and an accurate one.
fn three() -> [Entry; 3] {
    [
        entry(0, 1.0, 20.0, 0.7, Active),
        entry(1, 3.0, 5.0, 0.8, Active),
        entry(2, 2.0, 50.0, 0.9, Active),
    ]
}

#[test]
fn of_those_that_meet_the_targets_the_preferred_one_answers() {
    let idle = [0.0; 3];
    for (prefer, at) in [
        (Prefer::Cost, 0),
        (Prefer::Latency, 1),
        (Prefer::Accuracy, 2),
    ] {
        let asked = preferring(prefer, 100.0, 0.0);
        assert_eq!(decided(&three(), &asked, &idle), used(at), "{prefer:?}");
    }
    // Latency, accuracy and price still bind.
    let asked = preferring(Prefer::Accuracy, 40.0, 0.0);
    assert_eq!(decided(&three(), &asked, &idle), used(1));
    let asked = preferring(Prefer::Latency, 100.0, 0.85);
    assert_eq!(decided(&three(), &asked, &idle), used(2));
    let poor = Demand {
        max_cost_per_1k_usd: 1.5,
        ..preferring(Prefer::Accuracy, 100.0, 0.0)
    };
    assert_eq!(decided(&three(), &poor, &idle), used(0));
}

#[test]
fn accuracy_gives_way_while_the_wait_still_leaves_time() {
    let asked = preferring(Prefer::Accuracy, 100.0, 0.0);
    // 50 ms beside twice the wait.
    assert_eq!(decided(&three(), &asked, &[25.0; 3]), used(2));
    assert_eq!(decided(&three(), &asked, &[25.1; 3]), used(0));
    // 5 ms beside twice the first 5 ms and, as it costs three times as much as the cheapest, six times the rest.
    let accurate_is_busy = |wait| [wait, wait, 30.0];
    assert_eq!(decided(&three(), &asked, &accurate_is_busy(19.1)), used(1));
    assert_eq!(decided(&three(), &asked, &accurate_is_busy(19.2)), used(0));
    let strict = preferring(Prefer::Accuracy, 100.0, 0.85);
    assert_eq!(decided(&three(), &strict, &[50.0; 3]), used(2));
    assert!(matches!(
        decided(&three(), &strict, &[50.1; 3]),
        Decision::Busy { .. }
    ));
}

/// On a lone device half of the queries may find another one there, which says nothing of too many.
#[test]
fn a_wait_no_longer_than_a_run_is_no_sign_of_too_many() {
    let pair = [
        entry(0, 1.0, 1.0, 0.7, Active),
        entry(1, 100.0, 100.0, 0.9, Active),
    ];
    let asked = preferring(Prefer::Accuracy, 400.0, 0.0);
    assert_eq!(decided(&pair, &asked, &[100.0; 2]), used(1));
    assert_eq!(decided(&pair, &asked, &[101.0; 2]), used(0));
}

/// The quick one holds the device three times as long as the cheap one.
#[test]
fn the_quickest_is_the_one_that_makes_others_wait_least_where_they_wait() {
    let asked = preferring(Prefer::Latency, 1000.0, 0.0);
    // 5 ms and three waits against 20 ms and one.
    assert_eq!(decided(&three(), &asked, &[7.4; 3]), used(1));
    assert_eq!(decided(&three(), &asked, &[7.6; 3]), used(0));
    // Another kind of device has prices of its own: nobody waits for it.
    let mut apart = three();
    apart[1].kind = KindIx::new(1);
    assert_eq!(decided(&apart, &asked, &[30.0; 3]), used(1));
    assert_eq!(decided(&apart, &asked, &[30.0, 46.0, 30.0]), used(0));
    // Devices that cost nothing tell nothing.
    let free = three().map(|it| Entry {
        cost_per_1k_usd: 0.0,
        ..it
    });
    assert_eq!(decided(&free, &asked, &[100.0; 3]), used(1));
}

#[test]
fn where_devices_are_full_the_cheapest_goes_first() {
    let full = three().map(|it| Entry {
        readiness: Degraded,
        ..it
    });
    let asked = preferring(Prefer::Accuracy, 100.0, 0.0);
    assert_eq!(decided(&full, &asked, &[0.0; 3]), used(0));
}

#[test]
fn what_has_to_be_loaded_is_the_preferred_one_too() {
    let cold = three().map(|it| Entry {
        readiness: Inactive,
        ..it
    });
    let asked = preferring(Prefer::Accuracy, 1000.0, 0.0);
    let load = Decision::LoadThenUse {
        ordinal: VariantIx::new(2),
    };
    assert_eq!(decided(&cold, &asked, &[0.0; 3]), load);
    // One that is loaded goes before a better one that is not.
    let mut mixed = cold;
    mixed[0].readiness = Active;
    assert_eq!(decided(&mixed, &asked, &[0.0; 3]), used(0));
}

#[test]
fn why_another_one_was_not_taken_is_said() {
    let words = [
        (Prefer::Cost, "dearer"),
        (Prefer::Accuracy, "less_accurate"),
        (Prefer::Latency, "slower"),
    ];
    for (prefer, word) in words {
        let asked = preferring(prefer, 100.0, 0.0);
        let said = verdict(&three()[1], &asked, &WaitTimes(vec![0.0; 3]));
        assert_eq!(said, word);
    }
}
