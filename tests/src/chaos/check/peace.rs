//! Queries in time: each has an outcome soon after its target, none waits long in peace, and none is lost with a
//! worker.

use std::collections::BTreeMap;

use super::{Span, Violation, pace};
use crate::chaos::{
    Plan,
    history::{Entry, Event},
    plan::Setting,
};

/// Longest wait of a query without a target, milliseconds: `fleet.query_limit_ms`.
const LONGEST_MS: u64 = 60_000;
/// Largest delay of an outcome after its target, not counting faults, milliseconds.
const LATE_MS: u64 = 10_000;
/// Longest wait of a modest application in peace, milliseconds: some batches of others and its own.
const PROMPT_MS: u64 = 2000;
/// Share of its queries that must not wait for longer.
const PROMPT: f64 = 0.5;
/// If the looks at processes are further apart than this, milliseconds, the machine has no time for the service, and
/// the waits of queries have no meaning.
const STALLED_MS: u64 = 750;
/// With fewer queries a share has no meaning.
const ENOUGH: usize = 10;
/// Time from the end of the last fault to the start of peace, milliseconds.
const SETTLED_MS: u64 = 1000;
/// Longest time in peace that a query from before peace may still take, milliseconds.
const FORGOTTEN_MS: u64 = 3000;
/// Time after the end of a fault for which it still has effects, milliseconds.
const FELT_MS: u64 = 2000;
/// Parts of the service that queries do not need.
const APART: [&str; 3] = ["postgres", "autoscaler", "variant-gen"];
/// Processes of which there are several, so that another one takes over.
const REPLACED: [&str; 2] = ["worker-", "dispatcher"];
/// Codes which say that nothing could answer.
const NOBODY: [&str; 2] = ["unavailable", "warming"];

/// A query with its outcome.
struct Query<'a> {
    number: u64,
    application: usize,
    front_end: &'a str,
    asked_ms: u64,
    ended_ms: u64,
    ended: &'a Event,
}

/// A query has an outcome soon after its target, or after the longest wait if it has none.
pub fn in_time(plan: &Plan, history: &[Entry]) -> Vec<Violation> {
    let faults = faults(history);
    let wrong = |query: Query<'_>| {
        let target_ms = plan.applications[query.application].latency_ms;
        let span = Span {
            from_ms: query.asked_ms,
            until_ms: query.ended_ms,
        };
        let hit = faults.iter().filter(|(_, fault)| fault.overlaps(span));
        let held_ms: u64 = hit
            .map(|(_, fault)| fault.until_ms.saturating_sub(fault.from_ms))
            .fold(0, u64::saturating_add);
        let most_ms = target_ms.unwrap_or(LONGEST_MS) + LATE_MS;
        let took_ms = query.ended_ms - query.asked_ms;
        let what = format!("query {} took {took_ms} ms", query.number);
        (took_ms > most_ms.saturating_add(held_ms)).then(|| Violation::new("in_time", what))
    };
    queries(history).filter_map(wrong).collect()
}

/// In peace an application that asks for less than its share does not wait long, whatever others send.
pub fn prompt(plan: &Plan, history: &[Entry]) -> Vec<Violation> {
    let peace = peace_of(history);
    if peace.iter().any(|span| is_stalled(history, *span)) {
        return Vec::new();
    }
    let mut counts: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for query in queries(history) {
        let is_asked = plan.applications[query.application].is_modest
            && peace.iter().any(|it| it.has(query.asked_ms));
        if is_asked && matches!(query.ended, Event::Answered { .. } | Event::Refused { .. }) {
            let (all, prompt) = counts.entry(query.application).or_default();
            *all += 1;
            *prompt += usize::from(query.ended_ms - query.asked_ms <= PROMPT_MS);
        }
    }
    let wrong = |(application, (all, prompt)): (usize, (usize, usize))| {
        let name = &plan.applications[application].name;
        let what =
            format!("of {all} queries of `{name}` in peace {prompt} took {PROMPT_MS} ms or less");
        let is_wrong = all >= ENOUGH && (prompt as f64) < PROMPT * all as f64;
        is_wrong.then(|| Violation::new("prompt", what))
    };
    counts.into_iter().filter_map(wrong).collect()
}

/// In peace an application that asks for less than its share is answered.
pub fn peace(plan: &Plan, history: &[Entry]) -> Vec<Violation> {
    let peace = peace_of(history);
    let is_meant = |query: &Query<'_>| {
        plan.applications[query.application].is_modest
            && peace.iter().any(|it| it.has(query.asked_ms))
    };
    let wrong = |query: Query<'_>| match query.ended {
        Event::Refused { code, .. } if NOBODY.contains(&&**code) && is_meant(&query) => {
            let what = format!("query {} was refused as `{code}`", query.number);
            Some(Violation::new("peace", what))
        }
        _ => None,
    };
    queries(history).filter_map(wrong).collect()
}

/// Queries that an application with less than its share asked before peace end soon after its start: none is forgotten.
pub fn not_forgotten(plan: &Plan, history: &[Entry]) -> Vec<Violation> {
    let is_calm = |entry: &&Entry| entry.event == Event::Calm;
    let Some(calm_ms) = history.iter().find(is_calm).map(|entry| entry.at_ms) else {
        return Vec::new();
    };
    let wrong = |query: Query<'_>| {
        let most_ms = pace::stretched_before(history, query.ended_ms, FORGOTTEN_MS);
        let is_late = query.asked_ms < calm_ms && query.ended_ms > calm_ms + most_ms;
        let what = format!(
            "query {} of {} ms ended at {} ms, and peace began at {calm_ms} ms",
            query.number, query.asked_ms, query.ended_ms
        );
        (is_late && plan.applications[query.application].is_modest)
            .then(|| Violation::new("not_forgotten", what))
    };
    queries(history).filter_map(wrong).collect()
}

/// The queries of a lost worker are placed again, and those of a lost dispatcher are asked at another one: every query
/// with time left is answered.
pub fn placed_again(plan: &Plan, history: &[Entry]) -> Vec<Violation> {
    if plan.setting == Setting::One {
        return Vec::new();
    }
    let mut faults = faults(history);
    for (_, span) in &mut faults {
        span.until_ms = span.until_ms.saturating_add(FELT_MS);
    }
    let wrong = |query: Query<'_>| {
        let Event::Refused { code, .. } = query.ended else {
            return None;
        };
        let span = Span {
            from_ms: query.asked_ms,
            until_ms: query.ended_ms,
        };
        let hit: Vec<String> = faults
            .iter()
            .filter(|(_, fault)| fault.overlaps(span))
            .map(|(fault, _)| plan.faults[*fault].kind.target())
            .filter(|target| !APART.contains(&target.as_str()))
            .filter(|target| !plan.front_ends().contains(target) || *target == query.front_end)
            .collect();
        // A disturbed wire has its own target, "worker-1 to ..", and does not end a process.
        let is_one = hit.first().is_some_and(|first| {
            let is_process = REPLACED.iter().any(|name| first.starts_with(name));
            is_process && !first.contains(' ') && hit.iter().all(|other| other == first)
        });
        // Without processor time a takeover takes longer than any client waits.
        let is_patient =
            plan.applications[query.application].is_modest && !pace::is_starved(history, span);
        let what = format!(
            "query {} was refused as `{code}` and lost but {hit:?}",
            query.number
        );
        (is_one && is_patient && NOBODY.contains(&&**code))
            .then(|| Violation::new("placed_again", what))
    };
    queries(history).filter_map(wrong).collect()
}

/// Whether the campaign itself made no progress.
fn is_stalled(history: &[Entry], span: Span) -> bool {
    let looks = history.iter().filter_map(|entry| match entry.event {
        Event::Memory { .. } if span.has(entry.at_ms) => Some(entry.at_ms),
        _ => None,
    });
    let looks: Vec<u64> = looks.collect();
    let mut gaps = looks.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
    gaps.any(|gap| gap > STALLED_MS)
}

fn queries(history: &[Entry]) -> impl Iterator<Item = Query<'_>> {
    let mut asked: BTreeMap<u64, (u64, usize, &str)> = BTreeMap::new();
    history.iter().filter_map(move |entry| {
        let (Event::Answered { query, .. }
        | Event::Refused { query, .. }
        | Event::Broken { query, .. }
        | Event::GivenUp { query }) = &entry.event
        else {
            if let Event::Asked {
                query,
                application,
                front_end,
            } = &entry.event
            {
                asked.insert(*query, (entry.at_ms, *application, front_end));
            }
            return None;
        };
        let (asked_ms, application, front_end) = *asked.get(query)?;
        Some(Query {
            number: *query,
            application,
            front_end,
            asked_ms,
            ended_ms: entry.at_ms,
            ended: &entry.event,
        })
    })
}

/// The span of each fault of the history.
fn faults(history: &[Entry]) -> Vec<(usize, Span)> {
    let began = history.iter().filter_map(|entry| match entry.event {
        Event::FaultBegan { fault } => Some((fault, entry.at_ms)),
        _ => None,
    });
    let ended = |number: usize| {
        let is_end =
            |entry: &&Entry| matches!(entry.event, Event::FaultEnded { fault } if fault == number);
        history.iter().find(is_end).map(|entry| entry.at_ms)
    };
    began
        .map(|(fault, from_ms)| {
            let until_ms = ended(fault).unwrap_or(u64::MAX);
            (fault, Span { from_ms, until_ms })
        })
        .collect()
}

/// The spans in which nothing is wrong any more and the load goes on.
fn peace_of(history: &[Entry]) -> Vec<Span> {
    let spans = Span::between(
        history,
        |event| *event == Event::Calm,
        |event| *event == Event::Rest,
    );
    let later = spans.into_iter().map(|span| Span {
        from_ms: span.from_ms + SETTLED_MS,
        ..span
    });
    later.collect()
}

#[cfg(test)]
mod tests {
    use super::{super::scene::Scene, *};

    fn ends_at(at_ms: u64) -> Scene {
        let mut scene = Scene::default();
        let scores = scene.answer(4);
        scene.remove(|event| matches!(event, Event::Answered { query: 4, .. }));
        scene.add_at(at_ms, Event::Answered { query: 4, scores });
        scene
    }

    #[test]
    fn a_query_that_waits_for_ever() {
        let ended = |at_ms| {
            let mut scene = ends_at(at_ms);
            scene.remove(|event| matches!(event, Event::Calm));
            scene
        };
        ended(LONGEST_MS).breaks(&[]);
        ended(LONGEST_MS + 2 * LATE_MS).breaks(&["in_time"]);
    }

    #[test]
    fn a_query_that_is_forgotten_when_peace_comes() {
        let ended = |after_ms: u64| {
            let mut scene = ends_at(5000 + after_ms);
            scene.remove(|event| matches!(event, Event::Calm));
            scene.add_at(5000, Event::Calm);
            scene
        };
        ended(FORGOTTEN_MS).breaks(&[]);
        ended(FORGOTTEN_MS + 1).breaks(&["not_forgotten"]);
        let mut scene = ended(FORGOTTEN_MS + 1);
        scene.add_at(8000, Event::Pace { waited: 0.5 });
        scene.breaks(&[]);
    }

    #[test]
    fn in_peace_the_modest_do_not_wait_and_nobody_is_sent_away() {
        let late = |number: u64, ended: fn(u64, &Scene) -> Event| {
            let mut scene = Scene::default();
            scene.remove(|event| {
                matches!(event, Event::Calm | Event::Rest | Event::Answered { .. })
            });
            scene.add_at(0, Event::Calm);
            scene.add(Event::Rest);
            for query in 0..40 {
                let is_slow = query % 2 == 0 && query / 2 % number == 0;
                let at_ms = scene.asked_at(query) + 20 + if is_slow { PROMPT_MS } else { 0 };
                let outcome = match is_slow {
                    true => ended(query, &scene),
                    false => answered(query, &scene),
                };
                scene.add_at(at_ms, outcome);
            }
            scene
        };
        late(1, answered).breaks(&["prompt"]);
        let mut scene = late(1, answered);
        for at_ms in [2000, 2000 + STALLED_MS + 1] {
            let process = "worker-1".to_owned();
            let bytes = 1;
            scene.add_at(at_ms, Event::Memory { process, bytes });
        }
        scene.breaks(&[]);
        late(20, answered).breaks(&[]);
        let refused = |query, _: &Scene| Event::Refused {
            query,
            status: 503,
            code: "unavailable".to_owned(),
        };
        let found = peace(&plan_of(&late(10, refused)), &late(10, refused).history());
        assert_eq!(found.len(), 1, "{found:?}");
    }

    fn answered(query: u64, scene: &Scene) -> Event {
        let scores = scene.answer(query);
        Event::Answered { query, scores }
    }

    fn plan_of(scene: &Scene) -> Plan {
        match &scene.history()[0].event {
            Event::Planned { plan } => plan.clone(),
            _ => unreachable!("a history begins with its plan"),
        }
    }

    #[test]
    fn a_query_that_goes_with_its_worker() {
        let mut scene = Scene::default();
        scene.replace(|event| match event {
            Event::Answered { query: 4, .. } => Some(Event::Refused {
                query: 4,
                status: 503,
                code: "unavailable".to_owned(),
            }),
            _ => None,
        });
        let at_ms = scene.asked_at(4);
        scene.add_at(at_ms, Event::FaultBegan { fault: 2 });
        scene.breaks(&["placed_again"]);
        scene.add_at(at_ms, Event::FaultBegan { fault: 1 });
        scene.breaks(&[]);
    }
}
