//! What was considered for a query and why. It is composed only if the query asks for it.

use sextant_rpc::{Candidate, Explanation};
use sextant_selection as select;
use sextant_selection::{Decision, Demand, Entry, Index, Readiness, expected_ms, verdict};

use crate::live_load::LiveLoad;
use sextant_picture::IndexedVariant;
use sextant_types::Prefer;

/// One considered variant.
pub(crate) fn candidate(
    known: &IndexedVariant,
    entry: &Entry,
    demand: &Demand,
    load: &LiveLoad<'_>,
) -> Candidate {
    Candidate {
        variant: known.variant.id.clone(),
        device_type: known.type_of(entry.kind).cloned(),
        quality_bound: known.variant.accuracy.quality_bound(),
        kind: known.variant.accuracy.kind,
        expected_ms: expected_ms(entry, demand, load),
        cost_per_1k_usd: entry.cost_per_1k_usd,
        estimated: known.is_estimated(entry.kind, load.extent),
        state: entry.readiness.name().into(),
        verdict: verdict(entry, demand, load).into(),
    }
}

/// Says the selection in words: the chosen variant first, then the others that are nearest in cost.
pub(crate) fn explain(
    index: &Index,
    demand: &Demand,
    load: &LiveLoad<'_>,
    decision: &Decision,
    chosen: &IndexedVariant,
) -> Explanation {
    let mut entries: Vec<&Entry> = index.entries().iter().collect();
    entries.sort_by(|a, b| {
        let chosen_first = (b.ordinal == chosen.ordinal).cmp(&(a.ordinal == chosen.ordinal));
        let near = |entry: &Entry| select::distance(entry, demand);
        chosen_first
            .then(a.dominated.cmp(&b.dominated))
            .then(near(a).total_cmp(&near(b)))
            .then(a.cost_per_1k_usd.total_cmp(&b.cost_per_1k_usd))
            .then(a.ordinal.cmp(&b.ordinal))
    });
    let considered = entries.len();
    let candidates = entries
        .into_iter()
        .take(Explanation::MOST)
        .filter_map(|entry| Some((load.snapshot.known(entry.ordinal)?, entry)))
        .map(|(known, entry)| {
            let mut one = candidate(known, entry, demand, load);
            if known.ordinal == chosen.ordinal {
                one.verdict = "selected".into();
            }
            one
        })
        .collect();
    Explanation {
        reason: reason(decision, chosen, demand, load),
        candidates,
        considered,
        steps: Vec::new(),
    }
}

fn reason(
    decision: &Decision,
    chosen: &IndexedVariant,
    demand: &Demand,
    load: &LiveLoad<'_>,
) -> String {
    let id = &chosen.variant.id;
    match decision {
        Decision::Use { .. } if chosen.readiness == Readiness::Active => {
            format!(
                "`{id}` is the {} active variant that meets the targets",
                superlative(demand.prefer)
            )
        }
        Decision::Use { .. } => format!(
            "`{id}` is overloaded or interfered, yet the cheapest loaded one that meets the targets now"
        ),
        Decision::LoadThenUse { .. } => format!(
            "no loaded variant meets the targets; `{id}` is the {} that does when its load is counted in",
            superlative(demand.prefer)
        ),
        _ => format!(
            "nothing meets the targets; `{id}` is the closest (distance {:.3})",
            select::distance(&chosen.entry(load.extent), demand)
        ),
    }
}

/// The word for the property of a variant that a query prefers.
fn superlative(prefer: Prefer) -> &'static str {
    match prefer {
        Prefer::Cost => "cheapest",
        Prefer::Accuracy => "most accurate",
        Prefer::Latency => "quickest",
    }
}
