//! Losses at the end: no client is refused meanwhile, or waits longer than it takes to go on without the lost process.

use std::collections::BTreeMap;

use super::{STEADY_NUMBERS, Span, Violation, pace};
use crate::chaos::{
    Plan,
    history::{Entry, Event},
};

/// Longest wait for an answer on an idle machine, milliseconds: a process is away for longer, and leases end sooner.
const SPARED_MS: u64 = 5000;

/// Each query that is asked while processes are lost is answered, and before the lost process returns.
pub fn spared(_: &Plan, history: &[Entry]) -> Vec<Violation> {
    let mut asked: BTreeMap<u64, u64> = BTreeMap::new();
    let mut violations = Vec::new();
    for Entry { at_ms, event } in history {
        let (query, ended) = match event {
            Event::Asked { query, .. } => {
                if *query >= STEADY_NUMBERS {
                    asked.insert(*query, *at_ms);
                }
                continue;
            }
            Event::Answered { query, .. } => (query, None),
            Event::Refused { query, code, .. } => (query, Some(format!("was refused as `{code}`"))),
            Event::Broken { query, cause } => (query, Some(format!("broke: {cause}"))),
            _ => continue,
        };
        let Some(from_ms) = asked.get(query).copied() else {
            continue;
        };
        let until_ms = *at_ms;
        let had = pace::to_be_had(history, Span { from_ms, until_ms });
        let took_ms = until_ms - from_ms;
        let is_late = took_ms as f64 * had > SPARED_MS as f64;
        let what = match ended {
            Some(what) if !pace::is_starved(history, Span { from_ms, until_ms }) => what,
            _ if is_late => format!("took {took_ms} ms"),
            _ => continue,
        };
        let what = format!("query {query} of {from_ms} ms {what}");
        violations.push(Violation::new("spared", what));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::{super::scene::Scene, *};

    fn ended(after_ms: u64, is_answered: bool) -> Scene {
        let mut scene = Scene::default();
        let (query, application) = (STEADY_NUMBERS, 0);
        let front_end = "api-1".to_owned();
        scene.add(Event::Asked {
            query,
            application,
            front_end,
        });
        let outcome = match is_answered {
            true => Event::Answered {
                query,
                scores: scene.answer(query),
            },
            false => Event::Refused {
                query,
                status: 503,
                code: "unavailable".to_owned(),
            },
        };
        scene.add_at(5000 + after_ms, outcome);
        scene
    }

    #[test]
    fn nobody_waits_for_what_was_lost() {
        ended(SPARED_MS, true).breaks(&[]);
        let mut late = ended(SPARED_MS + 1, true);
        late.breaks(&["spared"]);
        late.add_at(8000, Event::Pace { waited: 0.5 });
        late.breaks(&[]);
    }

    #[test]
    fn nobody_is_sent_away() {
        let mut scene = ended(10, false);
        scene.breaks(&["spared"]);
        scene.add_at(5005, Event::Pace { waited: 0.9 });
        scene.breaks(&[]);
    }
}
