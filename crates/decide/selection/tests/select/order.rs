//! Selection against an independent brute force, and its order of preference.

use proptest::prelude::*;
use sextant_selection::{
    BLOCK, Decision, Demand, Entry, Index, Load, Readiness, SUGGESTIONS, best_effort,
    mark_dominated, select, verdict,
};
use sextant_types::{
    LeastQuality,
    index::{KindIx, VariantIx},
};

#[derive(Debug, Clone)]
pub struct WaitTimes(pub Vec<f64>);

impl Load for WaitTimes {
    fn wait_ms(&self, ordinal: VariantIx, _kind: KindIx) -> f64 {
        self.0[ordinal.get() as usize]
    }

    fn extra_ms(&self, _ordinal: VariantIx, _kind: KindIx, rows: u32) -> f64 {
        f64::from(rows - 1) * 0.5
    }
}

pub fn entry(
    ordinal: u32,
    cost: f64,
    latency_ms: f64,
    quality: f64,
    readiness: Readiness,
) -> Entry {
    Entry {
        ordinal: VariantIx::new(ordinal),
        kind: KindIx::new(0),
        quality_bound: quality,
        agreement: false,
        latency_ms,
        load_ms: 100.0,
        cost_per_1k_usd: cost,
        max_rows: 8,
        dominated: false,
        readiness,
    }
}

pub fn demand(latency_ms: f64, min_quality: f64) -> Demand {
    Demand {
        latency_ms,
        least_quality: LeastQuality::new(Some(min_quality), None),
        max_cost_per_1k_usd: f64::INFINITY,
        rows: 1,
        prefer: Default::default(),
    }
}

fn readiness() -> impl Strategy<Value = Readiness> {
    prop_oneof![
        Just(Readiness::Active),
        Just(Readiness::Degraded),
        Just(Readiness::Loading),
        Just(Readiness::Inactive),
        Just(Readiness::Failed),
    ]
}

prop_compose! {
    fn entries()(
        raw in proptest::collection::vec(
            (0..12u32, 1..40u32, 0..20u32, 1..60u32, 1..9u32, any::<bool>(), readiness(), 0..30u32,
                any::<bool>()),
            0..4 * BLOCK,
        )
    ) -> (Vec<Entry>, WaitTimes) {
        let waits = raw.iter().map(|raw| f64::from(raw.7)).collect();
        let entries = raw.into_iter().enumerate().map(|(at, raw)| {
            let (cost, latency, quality, load, max_rows, dominated, readiness, _, agreement) = raw;
            Entry {
                ordinal: VariantIx::new(at as u32),
                kind: KindIx::new(0),
                quality_bound: f64::from(quality) / 20.0,
                agreement,
                latency_ms: f64::from(latency),
                load_ms: f64::from(load),
                cost_per_1k_usd: f64::from(cost),
                max_rows,
                dominated,
                readiness,
            }
        });
        (entries.collect(), WaitTimes(waits))
    }
}

prop_compose! {
    fn demands()(
        latency in proptest::option::of(1..80u32),
        quality in proptest::option::of(0..20u32),
        agreement in proptest::option::of(0..20u32),
        cost in proptest::option::of(0..12u32),
        rows in 1..6u32,
    ) -> Demand {
        Demand {
            latency_ms: latency.map_or(f64::INFINITY, f64::from),
            least_quality: LeastQuality::new(
                quality.map(|quality| f64::from(quality) / 20.0),
                agreement.map(|share| f64::from(share) / 20.0),
            ),
            max_cost_per_1k_usd: cost.map_or(f64::INFINITY, f64::from),
            rows,
            prefer: Default::default(),
        }
    }
}

/// Latency and cost of every feasible entry of a class, without an index.
fn feasible(
    entries: &[Entry],
    demand: &Demand,
    class: impl Fn(&Entry) -> bool,
    time: impl Fn(&Entry) -> f64,
) -> Option<f64> {
    entries
        .iter()
        .filter(|entry| class(entry) && entry.max_rows >= demand.rows)
        .filter(|entry| demand.least_quality.is_met_by(entry.quality()))
        .filter(|entry| entry.cost_per_1k_usd <= demand.max_cost_per_1k_usd)
        .filter(|entry| time(entry) <= demand.latency_ms)
        .map(|entry| entry.cost_per_1k_usd)
        .min_by(f64::total_cmp)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_brute_force((entries, waits) in entries(), demand in demands()) {
        let index = Index::new(entries.clone());
        let run = |entry: &Entry| entry.latency_ms + waits.extra_ms(VariantIx::new(0), KindIx::new(0), demand.rows);
        let busy = |entry: &Entry| run(entry) + waits.wait_ms(entry.ordinal, entry.kind);
        let active = feasible(&entries, &demand, |e| e.readiness == Readiness::Active, busy);
        let cold = feasible(
            &entries,
            &demand,
            |e| matches!(e.readiness, Readiness::Loading | Readiness::Inactive) && !e.dominated,
            |e| run(e) + e.load_ms,
        );
        let degraded = feasible(&entries, &demand, |e| e.readiness == Readiness::Degraded, busy);
        let decision = select(&index, &demand, &waits);
        let cost = |ordinal: VariantIx| entries[ordinal.get() as usize].cost_per_1k_usd;
        match (active, cold, degraded, &decision) {
            (Some(best), _, _, Decision::Use { ordinal })
            | (None, _, Some(best), Decision::Use { ordinal })
            | (None, Some(best), None, Decision::LoadThenUse { ordinal }) => {
                prop_assert_eq!(cost(*ordinal), best);
            }
            (None, None, None, Decision::LoadThenUse { ordinal }) => {
                let entry = &entries[ordinal.get() as usize];
                prop_assert!(entry.dominated && run(entry) + entry.load_ms <= demand.latency_ms);
            }
            (None, None, None, Decision::Warming { .. }) => {
                prop_assert!(demand.latency_ms.is_finite(), "it could wait");
            }
            (None, None, None, Decision::Busy { .. }) => {}
            (None, None, None, Decision::Unavailable { ordinal }) => {
                let entry = &entries[ordinal.get() as usize];
                prop_assert_eq!(entry.readiness, Readiness::Failed);
            }
            (None, None, None, Decision::Infeasible { closest }) => {
                prop_assert!(closest.len() <= SUGGESTIONS);
            }
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn order_of_entries_does_not_matter((entries, waits) in entries(), demand in demands()) {
        let forward = select(&Index::new(entries.clone()), &demand, &waits);
        let backward: Vec<Entry> = entries.iter().rev().cloned().collect();
        prop_assert_eq!(forward, select(&Index::new(backward), &demand, &waits));
    }
}

#[test]
fn active_first_even_when_a_cold_one_is_cheaper() {
    let index = Index::new(vec![
        entry(0, 1.0, 5.0, 0.9, Readiness::Inactive),
        entry(1, 2.0, 5.0, 0.9, Readiness::Active),
    ]);
    let decision = select(&index, &demand(500.0, 0.8), &WaitTimes(vec![0.0; 2]));
    assert_eq!(
        decision,
        Decision::Use {
            ordinal: VariantIx::new(1)
        }
    );
}

#[test]
fn cheapest_feasible_then_least_loaded() {
    let index = Index::new(vec![
        entry(0, 1.0, 9.0, 0.99, Readiness::Active),
        entry(1, 2.0, 5.0, 0.9, Readiness::Active),
        entry(2, 2.0, 5.0, 0.9, Readiness::Active),
    ]);
    let waits = WaitTimes(vec![0.0, 2.0, 1.0]);
    assert_eq!(
        select(&index, &demand(8.0, 0.8), &waits),
        Decision::Use {
            ordinal: VariantIx::new(2)
        }
    );
    assert_eq!(
        select(&index, &demand(20.0, 0.8), &waits),
        Decision::Use {
            ordinal: VariantIx::new(0)
        }
    );
}

#[test]
fn loads_when_the_load_fits_and_warms_when_it_does_not() {
    let index = Index::new(vec![entry(0, 1.0, 5.0, 0.9, Readiness::Inactive)]);
    let waits = WaitTimes(vec![0.0]);
    let fits = select(&index, &demand(200.0, 0.9), &waits);
    assert_eq!(
        fits,
        Decision::LoadThenUse {
            ordinal: VariantIx::new(0)
        }
    );
    let warms = select(&index, &demand(20.0, 0.9), &waits);
    assert_eq!(
        warms,
        Decision::Warming {
            ordinal: VariantIx::new(0),
            load_ms: 100.0
        }
    );
}

#[test]
fn a_busy_variant_is_told_from_an_infeasible_target() {
    let index = Index::new(vec![entry(0, 1.0, 5.0, 0.9, Readiness::Active)]);
    let busy = select(&index, &demand(10.0, 0.9), &WaitTimes(vec![7.0]));
    assert_eq!(
        busy,
        Decision::Busy {
            ordinal: VariantIx::new(0),
            wait_ms: 7.0
        }
    );
    let never = select(&index, &demand(4.0, 0.9), &WaitTimes(vec![0.0]));
    assert_eq!(
        never,
        Decision::Infeasible {
            closest: vec![VariantIx::new(0)]
        }
    );
    let best = best_effort(&index, &demand(4.0, 0.99));
    assert_eq!(best, Some(VariantIx::new(0)));
}

#[test]
fn degraded_instances_come_before_loads_where_they_are_in_time() {
    let index = Index::new(vec![
        entry(0, 5.0, 5.0, 0.9, Readiness::Degraded),
        entry(1, 1.0, 5.0, 0.9, Readiness::Inactive),
    ]);
    let waiting = |ms| WaitTimes(vec![ms, 0.0]);
    for latency_ms in [500.0, f64::INFINITY] {
        let decision = select(&index, &demand(latency_ms, 0.8), &waiting(50.0));
        assert_eq!(
            decision,
            Decision::Use {
                ordinal: VariantIx::new(0)
            }
        );
    }
    let late = select(&index, &demand(500.0, 0.8), &waiting(600.0));
    assert_eq!(
        late,
        Decision::LoadThenUse {
            ordinal: VariantIx::new(1)
        }
    );
    let neither = select(&index, &demand(50.0, 0.8), &waiting(600.0));
    assert!(matches!(neither, Decision::Busy { ordinal, .. } if ordinal.get() == 0));
}

#[test]
fn a_query_without_a_latency_target_waits_for_whatever_can_be_loaded() {
    let mut dominated = entry(0, 1.0, 5.0, 0.9, Readiness::Inactive);
    dominated.dominated = true;
    let index = Index::new(vec![dominated.clone()]);
    let waits = WaitTimes(vec![0.0; 2]);
    let decision = select(&index, &demand(f64::INFINITY, 0.8), &waits);
    assert_eq!(
        decision,
        Decision::LoadThenUse {
            ordinal: VariantIx::new(0)
        }
    );
    let better = entry(1, 2.0, 5.0, 0.9, Readiness::Inactive);
    let index = Index::new(vec![dominated, better]);
    let decision = select(&index, &demand(f64::INFINITY, 0.8), &waits);
    assert_eq!(
        decision,
        Decision::LoadThenUse {
            ordinal: VariantIx::new(1)
        }
    );
}

#[test]
fn what_no_worker_can_load_is_told_from_what_nothing_can_do() {
    let index = Index::new(vec![entry(0, 1.0, 5.0, 0.9, Readiness::Failed)]);
    let waits = WaitTimes(vec![0.0]);
    let able = select(&index, &demand(50.0, 0.9), &waits);
    assert_eq!(
        able,
        Decision::Unavailable {
            ordinal: VariantIx::new(0)
        }
    );
    let never = select(&index, &demand(4.0, 0.9), &waits);
    assert!(matches!(never, Decision::Infeasible { .. }));
}

#[test]
fn dominance_is_judged_within_the_entries_given() {
    let of = |costs: &[f64], readiness| -> Vec<Entry> {
        let entries = costs.iter().enumerate();
        entries
            .map(|(at, cost)| entry(at as u32, *cost, 5.0, 0.9, readiness))
            .collect()
    };
    let dominated = |mut entries: Vec<Entry>, unsure: &[usize]| -> Vec<bool> {
        mark_dominated(&mut entries, unsure);
        entries.iter().map(|entry| entry.dominated).collect()
    };
    let alike = of(&[2.0, 1.0, 1.0], Readiness::Inactive);
    assert_eq!(dominated(alike.clone(), &[0, 1, 2]), [true, false, true]);
    assert_eq!(dominated(alike.clone(), &[0, 1]), [true, false, false]);
    let mut unlike = alike;
    unlike[0].quality_bound = 0.95;
    unlike[2].max_rows = 64;
    assert_eq!(dominated(unlike, &[0, 1, 2]), [false, true, false]);
    let mut broken = of(&[2.0, 1.0], Readiness::Inactive);
    broken[1].readiness = Readiness::Failed;
    assert_eq!(dominated(broken, &[0, 1]), [false, false]);
}

#[test]
fn overloaded_instances_come_after_active_ones() {
    let index = Index::new(vec![
        entry(0, 1.0, 5.0, 0.9, Readiness::Degraded),
        entry(1, 9.0, 5.0, 0.9, Readiness::Active),
    ]);
    let waits = WaitTimes(vec![0.0; 2]);
    assert_eq!(
        select(&index, &demand(50.0, 0.9), &waits),
        Decision::Use {
            ordinal: VariantIx::new(1)
        }
    );
    let alone = Index::new(vec![entry(0, 1.0, 5.0, 0.9, Readiness::Degraded)]);
    assert_eq!(
        select(&alone, &demand(50.0, 0.9), &waits),
        Decision::Use {
            ordinal: VariantIx::new(0)
        }
    );
}

#[test]
fn verdicts_name_the_first_reason() {
    let waits = WaitTimes(vec![0.0, 50.0]);
    let mut one = entry(0, 1.0, 5.0, 0.9, Readiness::Active);
    assert_eq!(verdict(&one, &demand(10.0, 0.95), &waits), "accuracy");
    assert_eq!(verdict(&one, &demand(4.0, 0.9), &waits), "latency");
    assert_eq!(verdict(&one, &demand(10.0, 0.9), &waits), "dearer");
    one.ordinal = VariantIx::new(1);
    assert_eq!(verdict(&one, &demand(10.0, 0.9), &waits), "busy");
    one.readiness = Readiness::Inactive;
    assert_eq!(verdict(&one, &demand(10.0, 0.9), &waits), "load");
}
