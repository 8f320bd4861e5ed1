//! Offline jobs: they end, and every record is answered once.

use std::collections::BTreeMap;

use super::{Span, Violation, pace};
use crate::chaos::{
    Plan,
    history::{Entry, Event},
    worth,
};

/// Every accepted job succeeds. If the store was full or the machine was starved meanwhile, it may fail for that
/// reason.
pub fn jobs_end(plan: &Plan, history: &[Entry]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut wrong = |what| violations.push(Violation::new("jobs_end", what));
    for submitted in submitted(history) {
        let name = &plan.jobs[submitted.job].name;
        let over: Vec<_> = history
            .iter()
            .filter_map(|entry| match &entry.event {
                Event::JobOver { job, state, code } if *job == submitted.job => {
                    Some((entry.at_ms, state, code))
                }
                _ => None,
            })
            .collect();
        let [(until_ms, state, code)] = over[..] else {
            wrong(format!("`{name}` ended {} times", over.len()));
            continue;
        };
        let from_ms = submitted.at_ms;
        let span = Span { from_ms, until_ms };
        let is_explained = state == "failed" && gives_up(plan, history, span, code);
        if state != "succeeded" && !is_explained {
            wrong(format!("`{name}` is {state}, `{code}`"));
        }
    }
    violations
}

/// Every record of a successful job is in its output exactly once, with the right answer.
pub fn each_record_once(plan: &Plan, history: &[Entry]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (number, job) in plan.jobs.iter().enumerate() {
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        let mut wrong = |what| {
            let what = format!("`{}`, {what}", job.name);
            violations.push(Violation::new("each_record_once", what));
        };
        for entry in history {
            let Event::Record { job, index, scores } = &entry.event else {
                continue;
            };
            if *job != number {
                continue;
            }
            *counts.entry(*index).or_default() += 1;
            let record = Plan::record_number(number, *index);
            // A batch failed, and the record says so.
            let has_failed = plan.failing.batches > 0 && scores.is_empty();
            if !has_failed && *scores != worth::answer(plan.seed, record) {
                wrong(format!("record {index}: another answer"));
            }
        }
        let has_succeeded = history.iter().any(|entry| {
            matches!(&entry.event, Event::JobOver { job, state, .. }
                if *job == number && state == "succeeded")
        });
        let expected = if has_succeeded { job.records } else { 0 };
        for index in 0..expected {
            let count = counts.remove(&index).unwrap_or(0);
            if count != 1 {
                wrong(format!("record {index}: {count} times"));
            }
        }
        for index in counts.into_keys().filter(|_| has_succeeded) {
            wrong(format!("record {index}: there is none"));
        }
    }
    violations
}

struct Submission {
    at_ms: u64,
    job: usize,
}

fn submitted(history: &[Entry]) -> impl Iterator<Item = Submission> {
    history.iter().filter_map(|entry| match entry.event {
        Event::Submitted { job } => Some(Submission {
            at_ms: entry.at_ms,
            job,
        }),
        _ => None,
    })
}

/// Whether something that waits for a store for a limited time may have given up with this code.
pub(super) fn gives_up(plan: &Plan, history: &[Entry], span: Span, code: &str) -> bool {
    match code {
        "storage_full" => was_full(plan, history, span),
        // The stores were not away, but answered too late.
        "unavailable" => pace::is_starved(history, span),
        _ => false,
    }
}

pub(super) fn was_full(plan: &Plan, history: &[Entry], span: Span) -> bool {
    let is_disk = |fault: usize| plan.faults[fault].kind.is_of_disk();
    let spans = Span::between(
        history,
        |event| matches!(event, Event::FaultBegan { fault } if is_disk(*fault)),
        |event| matches!(event, Event::FaultEnded { fault } if is_disk(*fault)),
    );
    spans.into_iter().any(|full| full.overlaps(span))
}

#[cfg(test)]
mod tests {
    use super::{super::scene::Scene, *};

    fn ends(state: &str, code: &str) -> Scene {
        let mut scene = Scene::default();
        scene.remove(|event| matches!(event, Event::Record { .. }));
        scene.replace(|event| match event {
            Event::JobOver { job, .. } => Some(Event::JobOver {
                job: *job,
                state: state.to_owned(),
                code: code.to_owned(),
            }),
            _ => None,
        });
        scene
    }

    #[test]
    fn a_job_that_never_ends_and_one_that_fails() {
        let mut scene = Scene::default();
        scene.remove(|event| matches!(event, Event::JobOver { .. } | Event::Record { .. }));
        scene.breaks(&["jobs_end"]);
        ends("failed", "unavailable").breaks(&["jobs_end"]);
        ends("cancelled", "").breaks(&["jobs_end"]);
    }

    #[test]
    fn a_full_disk_explains_that_a_job_fails() {
        ends("failed", "storage_full").breaks(&["jobs_end"]);
        let mut scene = ends("failed", "storage_full");
        scene.add_at(1000, Event::FaultBegan { fault: 0 });
        scene.breaks(&[]);
    }

    #[test]
    fn a_starved_machine_explains_that_a_job_gives_up() {
        let mut scene = ends("failed", "unavailable");
        scene.add_at(1000, Event::Pace { waited: 0.5 });
        scene.breaks(&["jobs_end"]);
        scene.add_at(1000, Event::Pace { waited: 0.99 });
        scene.add_at(1000, Event::Pace { waited: 0.99 });
        scene.breaks(&[]);
    }

    #[test]
    fn records_twice_missing_wrong_and_too_many() {
        let record = |scene: &Scene, index: u64, of: u64| Event::Record {
            job: 0,
            index,
            scores: scene.answer(Plan::record_number(0, of)),
        };
        let mut scene = Scene::default();
        scene.add(record(&scene, 2, 2));
        scene.breaks(&["each_record_once"]);
        let mut scene = Scene::default();
        scene.remove(|event| matches!(event, Event::Record { index: 2, .. }));
        scene.breaks(&["each_record_once"]);
        scene.add(record(&scene, 2, 3));
        scene.breaks(&["each_record_once"]);
        let mut scene = Scene::default();
        scene.add(record(&scene, 7777, 7777));
        scene.breaks(&["each_record_once"]);
    }
}
