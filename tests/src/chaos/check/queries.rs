//! Queries: each has one outcome, the right one, with a reason.

use std::collections::BTreeMap;

use super::{EXPLAINED, Span, Violation, pace};
use crate::chaos::{
    Plan,
    history::{Entry, Event},
    worth,
};

/// Share of the queries of a modest application that must be answered on an idle machine while nothing is wrong.
const ANSWERED: f64 = 0.9;
/// With fewer queries a share has no meaning.
const ENOUGH: usize = 10;
/// Time on an idle machine after its cause within which a client sees a broken connection, milliseconds.
const NOTICED_MS: u64 = 1000;

/// Each sent query has exactly one outcome, and there are no other outcomes.
pub fn one_outcome(_: &Plan, history: &[Entry]) -> Vec<Violation> {
    let mut outcomes: BTreeMap<u64, usize> = BTreeMap::new();
    let mut violations = Vec::new();
    let mut wrong = |what| violations.push(Violation::new("one_outcome", what));
    for Entry { event, .. } in history {
        match event {
            Event::Asked { query, .. } if outcomes.insert(*query, 0).is_some() => {
                wrong(format!("query {query} was sent twice"));
            }
            Event::Answered { query, .. }
            | Event::Refused { query, .. }
            | Event::GivenUp { query }
            | Event::Broken { query, .. } => match outcomes.get_mut(query) {
                Some(count) => *count += 1,
                None => wrong(format!("query {query} has an outcome and was not sent")),
            },
            _ => {}
        }
    }
    for (query, count) in outcomes.into_iter().filter(|(_, count)| *count != 1) {
        wrong(format!("query {query} has {count} outcomes"));
    }
    violations
}

/// An answer belongs to the query's own inputs.
pub fn right_answer(plan: &Plan, history: &[Entry]) -> Vec<Violation> {
    let asked = |entry: &Entry| match entry.event {
        Event::Asked { query, .. } => Some(query),
        _ => None,
    };
    let wrong = |entry: &Entry| {
        let Event::Answered { query, scores } = &entry.event else {
            return None;
        };
        if worth::answer(plan.seed, *query) == *scores {
            return None;
        }
        let mut queries = history.iter().filter_map(asked);
        let what = match queries.find(|other| worth::answer(plan.seed, *other) == *scores) {
            Some(other) => format!("query {query} got the answer to query {other}"),
            None => format!("query {query} got an answer to nothing that was asked: {scores:?}"),
        };
        Some(Violation::new("right_answer", what))
    };
    history.iter().filter_map(wrong).collect()
}

/// A refusal has a reason, and something explains it.
pub fn refused_with_reason(plan: &Plan, history: &[Entry]) -> Vec<Violation> {
    let wrong = |entry: &Entry| match &entry.event {
        Event::Refused {
            query,
            status,
            code,
        } if !EXPLAINED.contains(&&**code) && !is_of_batch(plan, code) => {
            let what = format!("query {query} was refused as {status} `{code}`");
            Some(Violation::new("refused_with_reason", what))
        }
        _ => None,
    };
    history.iter().filter_map(wrong).collect()
}

/// Whether a device that fails on purpose explains a refusal.
fn is_of_batch(plan: &Plan, code: &str) -> bool {
    plan.failing.batches > 0 && code == "engine_failed"
}

/// A connection breaks only if the process at its other end was killed meanwhile.
pub fn broken_with_its_front_end(_: &Plan, history: &[Entry]) -> Vec<Violation> {
    let asked: BTreeMap<u64, (u64, &str)> = history
        .iter()
        .filter_map(|entry| match &entry.event {
            Event::Asked {
                query, front_end, ..
            } => Some((*query, (entry.at_ms, &**front_end))),
            _ => None,
        })
        .collect();
    let wrong = |entry: &Entry| {
        let Event::Broken { query, cause } = &entry.event else {
            return None;
        };
        let (from_ms, front_end) = asked.get(query)?;
        let noticed_ms = pace::stretched_before(history, *from_ms, NOTICED_MS);
        let span = Span {
            from_ms: from_ms.saturating_sub(noticed_ms),
            until_ms: entry.at_ms,
        };
        let is_down = down(history, front_end).iter().any(|it| it.overlaps(span));
        // On a starved machine the client is as slow as the service: it is cut off, or gives up.
        if pace::is_starved(history, span) {
            return None;
        }
        let what = format!("query {query} at `{front_end}`, which was there: {cause}");
        (!is_down).then(|| Violation::new("broken_with_its_front_end", what))
    };
    history.iter().filter_map(wrong).collect()
}

/// When a process was down because it was ended on purpose.
fn down(history: &[Entry], name: &str) -> Vec<Span> {
    Span::between(
        history,
        |event| matches!(event, Event::Down { process } if process == name),
        |event| matches!(event, Event::Up { process } if process == name),
    )
}

/// An application that asks for less than its share is answered while nothing is wrong, whatever others send: before
/// the first fault, and after everything has healed. If the service gets half of the machine's time, half of the share
/// suffices.
pub fn shares(plan: &Plan, history: &[Entry]) -> Vec<Violation> {
    let mut calm = Span::between(
        history,
        |event| *event == Event::Calm,
        |event| *event == Event::Rest,
    );
    let first = plan.faults.iter().map(|fault| fault.at_ms).min();
    calm.push(Span {
        from_ms: 0,
        // Queries asked just before a fault are affected by it.
        until_ms: first.unwrap_or(plan.length_ms).saturating_sub(500),
    });
    let asks = |at_ms: u64, application: usize| {
        plan.applications[application].is_modest
            && calm
                .iter()
                .any(|span| (span.from_ms..=span.until_ms).contains(&at_ms))
    };
    let mut counts: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    let mut asked: BTreeMap<u64, usize> = BTreeMap::new();
    for Entry { at_ms, event } in history {
        match event {
            Event::Asked {
                query, application, ..
            } if asks(*at_ms, *application) => {
                asked.insert(*query, *application);
            }
            // The device failed on purpose, not the service.
            Event::Refused { code, .. } if is_of_batch(plan, code) => {}
            // A broken connection is not a refusal, and has a rule of its own.
            Event::Answered { query, .. } | Event::Refused { query, .. } => {
                if let Some(application) = asked.get(query) {
                    let (asked, answered) = counts.entry(*application).or_default();
                    *asked += 1;
                    *answered += usize::from(matches!(event, Event::Answered { .. }));
                }
            }
            _ => {}
        }
    }
    let to_be_had = calm.iter().map(|span| pace::to_be_had(history, *span));
    let owed = ANSWERED * to_be_had.fold(1.0, f64::min);
    let wrong = |(application, (asked, answered)): (usize, (usize, usize))| {
        let is_kept = answered as f64 >= owed * asked as f64;
        let name = &plan.applications[application].name;
        let what =
            format!("`{name}` asked {asked} times in peace and was answered {answered} times");
        (asked >= ENOUGH && !is_kept).then(|| Violation::new("shares", what))
    };
    counts.into_iter().filter_map(wrong).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::scene::Scene, *};

    fn answered(query: u64, scores: Vec<f32>) -> Event {
        Event::Answered { query, scores }
    }

    #[test]
    fn a_lost_query_and_one_with_two_outcomes() {
        let mut scene = Scene::default();
        scene.remove(|event| matches!(event, Event::Answered { query: 3, .. }));
        scene.breaks(&["one_outcome"]);
        let mut scene = Scene::default();
        scene.add(answered(3, scene.answer(3)));
        scene.breaks(&["one_outcome"]);
        let mut scene = Scene::default();
        scene.add(Event::Refused {
            query: 3,
            status: 503,
            code: "unavailable".to_owned(),
        });
        scene.breaks(&["one_outcome"]);
        let mut scene = Scene::default();
        scene.add(answered(9999, scene.answer(9999)));
        scene.breaks(&["one_outcome"]);
    }

    #[test]
    fn swapped_and_invented_answers() {
        let mut scene = Scene::default();
        let (one, other) = (scene.answer(4), scene.answer(5));
        scene.replace(|event| match event {
            Event::Answered { query: 4, .. } => Some(answered(4, other.clone())),
            Event::Answered { query: 5, .. } => Some(answered(5, one.clone())),
            _ => None,
        });
        scene.breaks(&["right_answer", "right_answer"]);
        let mut scene = Scene::default();
        let mut wrong = scene.answer(4);
        wrong[9] = 0.5;
        scene.replace(|event| match event {
            Event::Answered { query: 4, .. } => Some(answered(4, wrong.clone())),
            _ => None,
        });
        scene.breaks(&["right_answer"]);
    }

    #[test]
    fn refusals_without_a_reason() {
        for (code, rules) in [
            ("overloaded", &[][..]),
            ("internal", &["refused_with_reason"]),
            ("", &["refused_with_reason"]),
        ] {
            let mut scene = Scene::default();
            scene.replace(|event| match event {
                Event::Answered { query: 4, .. } => Some(Event::Refused {
                    query: 4,
                    status: 500,
                    code: code.to_owned(),
                }),
                _ => None,
            });
            scene.breaks(rules);
        }
    }

    #[test]
    fn a_connection_may_break_with_its_process_alone() {
        let broken = || {
            let mut scene = Scene::default();
            scene.replace(|event| match event {
                Event::Answered { query: 4, .. } => Some(Event::Broken {
                    query: 4,
                    cause: "reset".to_owned(),
                }),
                _ => None,
            });
            scene
        };
        broken().breaks(&["broken_with_its_front_end"]);
        let fall = |process: &str| {
            let mut scene = broken();
            let process = process.to_owned();
            let at_ms = scene.asked_at(4);
            let down = process.clone();
            scene.add_at(at_ms, Event::Down { process: down });
            scene.add_at(at_ms + 100, Event::Up { process });
            scene
        };
        fall("api-1").breaks(&[]);
        let mut scene = broken();
        scene.add_at(scene.asked_at(4), Event::Pace { waited: 0.95 });
        scene.breaks(&[]);
        fall("worker-1").breaks(&["broken_with_its_front_end"]);
    }

    #[test]
    fn a_modest_application_that_is_refused_in_peace() {
        let refuse = |application: usize| {
            let mut scene = Scene::default();
            let queries = scene.queries_of(application);
            scene.replace(|event| match event {
                Event::Answered { query, .. } if queries.contains(query) => Some(Event::Refused {
                    query: *query,
                    status: 503,
                    code: "overloaded".to_owned(),
                }),
                _ => None,
            });
            scene
        };
        refuse(0).breaks(&["shares"]);
        refuse(1).breaks(&[]);
        // Every application is answered, however busy the machine is.
        let mut scene = refuse(0);
        scene.add_at(100, Event::Pace { waited: 0.9 });
        scene.breaks(&["shares"]);
    }

    #[test]
    fn a_machine_that_is_busy_otherwise_owes_less() {
        let mut scene = Scene::default();
        let queries = scene.queries_of(0);
        scene.replace(|event| match event {
            Event::Answered { query, .. } if queries.contains(query) && query % 4 == 0 => {
                Some(Event::Refused {
                    query: *query,
                    status: 504,
                    code: "deadline_exceeded".to_owned(),
                })
            }
            _ => None,
        });
        scene.breaks(&["shares"]);
        scene.add_at(100, Event::Pace { waited: 0.6 });
        scene.breaks(&[]);
    }
}
