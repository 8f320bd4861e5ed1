//! Composite variants beside the variants of the dispatcher: pipelines that the front end of a query could run.

use sextant_rpc::{Candidate, Composite, CompositeChoice, Explanation};
use sextant_selection as select;
use sextant_selection::{Decision, Demand, Index};
use sextant_types::{AccuracyKind, Route};

use crate::{ask::Ask, explain::candidate, live_load::LiveLoad};

/// The composite variant that answers a query in place of the decision, if there is one.
pub(crate) fn instead(
    ask: &Ask,
    (index, decision): (&Index, &Decision),
    demand: &Demand,
    load: &LiveLoad<'_>,
) -> Option<CompositeChoice> {
    // A version that is tried is addressed by its name.
    if ask.composites.is_empty() || !matches!(ask.route, Route::Application(_)) {
        return None;
    }
    let figures = ask.composites.iter().map(figures);
    let at = select::composite(figures, (index, decision), demand, load)?;
    let variant = ask.composites.get(at)?.variant.clone();
    let explanation = ask.explain.then(|| {
        let known = index.entries().iter();
        let known = known.filter_map(|entry| Some((load.snapshot.known(entry.ordinal)?, entry)));
        let candidates = known.map(|(known, entry)| candidate(known, entry, demand, load));
        let explanation = Explanation {
            reason: format!("`{variant}`, a pipeline, is the best that meets the targets now"),
            candidates: candidates.collect(),
            considered: index.entries().len(),
            steps: Vec::new(),
        };
        let mut all = beside(explanation, &ask.composites, demand);
        if let Some(own) = all.candidates.iter_mut().find(|it| it.variant == variant) {
            own.verdict = "selected".into();
        }
        all.candidates.sort_by_key(|it| it.verdict != "selected");
        all.candidates.truncate(Explanation::MOST);
        all
    });
    Some(CompositeChoice {
        variant,
        explanation,
    })
}

/// Adds the composite variants that were considered to an explanation.
pub(crate) fn beside(
    mut explanation: Explanation,
    composites: &[Composite],
    demand: &Demand,
) -> Explanation {
    explanation.considered += composites.len();
    let candidates = composites.iter().map(|it| Candidate {
        variant: it.variant.clone(),
        device_type: None,
        quality_bound: it.quality_bound,
        kind: AccuracyKind::Accuracy,
        expected_ms: figures(it).expected_ms(demand),
        cost_per_1k_usd: it.cost_per_1k_usd,
        estimated: false,
        state: "active".into(),
        verdict: figures(it).verdict(demand).into(),
    });
    // They are placed right after the selected variant, where they are seen.
    let at = explanation.candidates.len().min(1);
    explanation.candidates.splice(at..at, candidates);
    explanation.candidates.truncate(Explanation::MOST);
    explanation
}

fn figures(of: &Composite) -> select::Composite {
    select::Composite {
        quality_bound: of.quality_bound,
        latency_ms: of.latency_ms,
        cost_per_1k_usd: of.cost_per_1k_usd,
    }
}
