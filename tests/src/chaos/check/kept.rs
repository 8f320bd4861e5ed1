//! What one process keeps: a backup is complete, another registry removes nothing from a store, and registrations take
//! turns.

use super::{Violation, pace};
use crate::chaos::{
    Plan,
    history::{Entry, Event},
};

/// Longest time on an idle machine for which the only registration of an application may wait for those of another one,
/// the first of which takes long, milliseconds.
const WAIT_MS: u64 = 10_000;

/// Number of the other registrations that may end before it: one that had begun, and one whose turn it was.
const PASSED_BY: usize = 2;

/// The code with which a sweep with a foreign registry is refused.
const MISMATCH: &str = "store_mismatch";

/// What was acknowledged before a backup began exists where it is restored, and answers.
pub fn restored(_: &Plan, history: &[Entry]) -> Vec<Violation> {
    let missing = history.iter().filter_map(|entry| match &entry.event {
        Event::Restored { missing } => Some(missing),
        _ => None,
    });
    let violation = |what: &String| Violation::new("restored", what.clone());
    missing.flatten().map(violation).collect()
}

/// A registry removes nothing from a store that is not its own, and its service reports the mismatch.
pub fn strangers(_: &Plan, history: &[Entry]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for entry in history {
        let Event::Estranged {
            is_warned,
            code,
            lost,
        } = &entry.event
        else {
            continue;
        };
        let mut wrong = |what: String| violations.push(Violation::new("strangers", what));
        if *lost > 0 {
            wrong(format!(
                "{lost} files of a store that is not its own were swept"
            ));
        }
        if code != MISMATCH {
            wrong(format!("its sweep was told `{code}`"));
        }
        if !is_warned {
            wrong("`GET /health/ready` says nothing of it".to_owned());
        }
    }
    violations
}

/// The only registration of an application ends although another application has many, one of which takes long.
pub fn fair(_: &Plan, history: &[Entry]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for entry in history {
        let Event::Queued {
            state,
            waited_ms,
            passed_by,
        } = &entry.event
        else {
            continue;
        };
        let most_ms = pace::stretched_before(history, entry.at_ms, WAIT_MS);
        if state != "succeeded" || *waited_ms > most_ms {
            let what = format!("it is {state} after {waited_ms} ms behind one that takes long");
            violations.push(Violation::new("fair", what));
        }
        if *passed_by > PASSED_BY {
            let what = format!("{passed_by} of another application went before the only one");
            violations.push(Violation::new("fair", what));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::{super::scene::Scene, *};

    #[test]
    fn a_backup_without_something() {
        let mut scene = Scene::default();
        scene.add(Event::Restored {
            missing: Vec::new(),
        });
        scene.breaks(&[]);
        scene.add(Event::Restored {
            missing: vec!["`a` of models".to_owned(), "`b` of jobs".to_owned()],
        });
        scene.breaks(&["restored", "restored"]);
    }

    #[test]
    fn a_stranger_that_sweeps_or_says_nothing() {
        for (is_warned, code, lost, rules) in [
            (true, MISMATCH, 0, &[][..]),
            (true, MISMATCH, 3, &["strangers"]),
            (true, "", 0, &["strangers"]),
            (false, MISMATCH, 0, &["strangers"]),
        ] {
            let mut scene = Scene::default();
            scene.add(Event::Estranged {
                is_warned,
                code: code.to_owned(),
                lost,
            });
            scene.breaks(rules);
        }
    }

    #[test]
    fn a_registration_that_waits_for_those_of_another() {
        for (state, waited_ms, passed_by, rules) in [
            ("succeeded", WAIT_MS, PASSED_BY, &[][..]),
            ("succeeded", WAIT_MS + 1, 0, &["fair"]),
            ("succeeded", 1, PASSED_BY + 1, &["fair"]),
            ("queued", 1, 0, &["fair"]),
        ] {
            let mut scene = Scene::default();
            scene.add(Event::Queued {
                state: state.to_owned(),
                waited_ms,
                passed_by,
            });
            scene.breaks(rules);
        }
    }
}
