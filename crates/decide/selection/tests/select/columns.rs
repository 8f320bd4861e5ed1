//! The index: entries in order of cost, in blocks that are passed over together.

use sextant_selection::{
    BLOCK, Decision, Demand, Entry, Index,
    Readiness::{Active, Inactive},
    select,
};

use crate::order::{WaitTimes, demand, entry};
use sextant_types::index::{KindIx, VariantIx};

/// Three and a half blocks of entries that cost the same, take 5 ms and are of quality 0.5.
fn alike() -> Vec<Entry> {
    let ordinals = 0..(3 * BLOCK + BLOCK / 2) as u32;
    ordinals
        .map(|ordinal| entry(ordinal, 1.0, 5.0, 0.5, Active))
        .collect()
}

fn used(entries: &[Entry], demand: &Demand, waits: &WaitTimes) -> Option<u32> {
    match select(&Index::new(entries.to_vec()), demand, waits) {
        Decision::Use { ordinal } => Some(ordinal.get()),
        _ => None,
    }
}

fn idle(entries: &[Entry]) -> WaitTimes {
    WaitTimes(vec![0.0; entries.len()])
}

#[test]
fn the_only_feasible_entry_is_found_wherever_it_stands() {
    for at in 0..alike().len() {
        let mut entries = alike();
        entries[at].quality_bound = 0.75;
        let waits = idle(&entries);
        assert_eq!(used(&entries, &demand(5.0, 0.75), &waits), Some(at as u32));
        let mut entries = alike();
        entries[at].latency_ms = 4.0;
        assert_eq!(used(&entries, &demand(4.0, 0.5), &waits), Some(at as u32));
        let mut entries = alike();
        entries[at].max_rows = 9;
        let nine = Demand {
            rows: 9,
            ..demand(9.0, 0.5)
        };
        assert_eq!(used(&entries, &nine, &waits), Some(at as u32));
    }
}

#[test]
fn of_entries_that_cost_the_same_the_least_loaded_answers_across_blocks() {
    let entries = alike();
    for at in 0..entries.len() {
        let mut waits = WaitTimes(vec![3.0; entries.len()]);
        waits.0[at] = 2.0;
        assert_eq!(used(&entries, &demand(50.0, 0.5), &waits), Some(at as u32));
    }
    // Of equally loaded ones the first by number.
    assert_eq!(used(&entries, &demand(50.0, 0.5), &idle(&entries)), Some(0));
}

#[test]
fn a_dearer_entry_does_not_answer_because_it_is_less_loaded() {
    for dearer in [1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK] {
        let mut entries = alike();
        for entry in &mut entries[dearer..] {
            entry.cost_per_1k_usd = 2.0;
        }
        let mut waits = WaitTimes(vec![3.0; entries.len()]);
        waits.0[dearer..].fill(0.0);
        assert_eq!(used(&entries, &demand(50.0, 0.5), &waits), Some(0));
    }
}

#[test]
fn the_most_that_may_be_paid_is_paid() {
    // One entry at each price.
    let mut entries = alike();
    for (at, entry) in entries.iter_mut().enumerate() {
        entry.cost_per_1k_usd = at as f64;
        entry.quality_bound = at as f64;
    }
    let waits = idle(&entries);
    for at in 0..entries.len() {
        let paying = |most: f64| Demand {
            max_cost_per_1k_usd: most,
            ..demand(50.0, at as f64)
        };
        assert_eq!(used(&entries, &paying(at as f64), &waits), Some(at as u32));
        assert_eq!(used(&entries, &paying(at as f64 - 0.5), &waits), None);
        // Of those that are good enough the cheapest.
        assert_eq!(used(&entries, &paying(1e6), &waits), Some(at as u32));
    }
}

#[test]
fn an_index_keeps_the_entries_as_they_were_given() {
    let entries = vec![
        entry(7, 2.0, 5.0, 0.5, Inactive),
        entry(3, 1.0, 5.0, 0.5, Active),
        Entry {
            kind: KindIx::new(1),
            ..entry(7, 3.0, 5.0, 0.5, Active)
        },
    ];
    let index = Index::new(entries.clone());
    assert_eq!(index.entries(), entries);
    assert_eq!(index.entry(VariantIx::new(7)), Some(&entries[0]));
    assert_eq!(index.entry(VariantIx::new(3)), Some(&entries[1]));
    assert_eq!(index.entry(VariantIx::new(0)), None);
}

/// A wait that depends on the kind of device.
struct ByKind;

impl sextant_selection::Load for ByKind {
    fn wait_ms(&self, _ordinal: VariantIx, kind: KindIx) -> f64 {
        [9.0, 1.0, 5.0][kind.get() as usize]
    }

    fn extra_ms(&self, _ordinal: VariantIx, kind: KindIx, rows: u32) -> f64 {
        f64::from(rows - 1) * [1.0, 20.0, 2.0][kind.get() as usize]
    }
}

#[test]
fn load_is_asked_for_the_kind_of_device_that_an_entry_is_for() {
    let on = |ordinal, kind, readiness| Entry {
        kind,
        ..entry(ordinal, 1.0, 5.0, 0.5, readiness)
    };
    let of = |entries: [Entry; 3], latency_ms, rows| {
        let asked = Demand {
            rows,
            ..demand(latency_ms, 0.5)
        };
        select(&Index::new(entries.to_vec()), &asked, &ByKind)
    };
    let active = [0, 1, 2].map(|at| on(at, KindIx::new(at), Active));
    assert_eq!(
        of(active.clone(), 50.0, 1),
        Decision::Use {
            ordinal: VariantIx::new(1)
        }
    );
    // Two rows: 5 + 9 + 1, 5 + 1 + 20, 5 + 5 + 2 ms.
    assert_eq!(
        of(active, 12.0, 2),
        Decision::Use {
            ordinal: VariantIx::new(2)
        }
    );
    // Loads of 100 ms: only the first takes at most 106 ms for two rows.
    let cold = [0, 1, 2].map(|at| on(at, KindIx::new(at), Inactive));
    assert_eq!(
        of(cold, 106.0, 2),
        Decision::LoadThenUse {
            ordinal: VariantIx::new(0)
        }
    );
}
