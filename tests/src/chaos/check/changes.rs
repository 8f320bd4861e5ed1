//! Changes and registrations: each refusal has a reason, and no accepted one is lost.

use super::{
    Entry, Span, Violation,
    jobs::{gives_up, was_full},
};
use crate::chaos::{Plan, history::Event, worth};

/// Codes with which the service says that it cannot make a change now; queries are refused with the same codes.
const NOT_NOW: [&str; 3] = ["unavailable", "deadline_exceeded", "overloaded"];
/// Time after the end of its cause within which a refusal may still be seen, milliseconds.
const NOTICED_MS: u64 = 2000;

/// A refused change has a code that something explains: 507 `storage_full` if there was no room, 503 or 504 if
/// something was away.
pub fn changes_refused_with_reason(plan: &Plan, history: &[Entry]) -> Vec<Violation> {
    let wrong = |entry: &Entry| {
        let Event::ChangeRefused { what, status, code } = &entry.event else {
            return None;
        };
        let span = Span {
            from_ms: entry.at_ms.saturating_sub(NOTICED_MS),
            until_ms: entry.at_ms,
        };
        let is_full = *status == 507 && code == "storage_full" && was_full(plan, history, span);
        let is_explained = is_full || NOT_NOW.contains(&&**code);
        let what = format!(
            "{what} was refused as {status} `{code}` at {} ms",
            entry.at_ms
        );
        (!is_explained).then(|| Violation::new("changes_refused_with_reason", what))
    };
    history.iter().filter_map(wrong).collect()
}

/// An accepted registration ends with a model that answers. If there was no room or the machine was starved meanwhile,
/// it may fail for that reason.
pub fn registrations_end(plan: &Plan, history: &[Entry]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut wrong = |what| violations.push(Violation::new("registrations_end", what));
    for entry in history {
        let Event::Registered { registration } = entry.event else {
            continue;
        };
        let name = &plan.registrations[registration].name;
        let over: Vec<_> = history
            .iter()
            .filter(|it| matches!(it.event, Event::RegistrationOver { registration: of, .. } if of == registration))
            .collect();
        let [
            Entry {
                at_ms: until_ms,
                event:
                    Event::RegistrationOver {
                        state,
                        code,
                        scores,
                        ..
                    },
            },
        ] = over[..]
        else {
            wrong(format!("`{name}` ended {} times", over.len()));
            continue;
        };
        let span = Span {
            from_ms: entry.at_ms,
            until_ms: *until_ms,
        };
        if state == "failed" && gives_up(plan, history, span, code) {
            continue;
        }
        if state != "ready" {
            wrong(format!("`{name}` is {state}, `{code}`"));
        } else if *scores != worth::answer(plan.seed, 0) {
            wrong(format!("`{name}` gives another answer"));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::{super::scene::Scene, *};

    fn refused(status: u16, code: &str) -> Event {
        Event::ChangeRefused {
            what: "PATCH /v1/applications/quiet".to_owned(),
            status,
            code: code.to_owned(),
        }
    }

    fn over(state: &str, code: &str) -> Scene {
        let mut scene = Scene::default();
        scene.replace(|event| match event {
            Event::RegistrationOver {
                registration,
                scores,
                ..
            } => Some(Event::RegistrationOver {
                registration: *registration,
                state: state.to_owned(),
                code: code.to_owned(),
                scores: scores.clone(),
            }),
            _ => None,
        });
        scene
    }

    #[test]
    fn a_change_that_is_refused_without_a_reason() {
        for (status, code, rules) in [
            (503, "unavailable", &[][..]),
            (500, "internal", &["changes_refused_with_reason"]),
            (502, "", &["changes_refused_with_reason"]),
            (507, "storage_full", &["changes_refused_with_reason"]),
        ] {
            let mut scene = Scene::default();
            scene.add_at(900, refused(status, code));
            scene.breaks(rules);
        }
        let mut scene = Scene::default();
        scene.add_at(800, Event::FaultBegan { fault: 0 });
        scene.add_at(900, refused(507, "storage_full"));
        scene.breaks(&[]);
        scene.add_at(900, refused(500, "storage_full"));
        scene.breaks(&["changes_refused_with_reason"]);
    }

    #[test]
    fn a_registration_that_is_lost_or_fails_or_answers_wrongly() {
        over("missing", "").breaks(&["registrations_end"]);
        over("failed", "internal").breaks(&["registrations_end"]);
        over("failed", "storage_full").breaks(&["registrations_end"]);
        let mut scene = over("failed", "storage_full");
        scene.add_at(1000, Event::FaultBegan { fault: 0 });
        scene.breaks(&[]);
        let mut scene = Scene::default();
        scene.remove(|event| matches!(event, Event::RegistrationOver { .. }));
        scene.breaks(&["registrations_end"]);
        let mut scene = Scene::default();
        let other = scene.answer(1);
        scene.replace(|event| match event {
            Event::RegistrationOver {
                registration,
                state,
                code,
                ..
            } => Some(Event::RegistrationOver {
                registration: *registration,
                state: state.clone(),
                code: code.clone(),
                scores: other.clone(),
            }),
            _ => None,
        });
        scene.breaks(&["registrations_end"]);
    }
}
