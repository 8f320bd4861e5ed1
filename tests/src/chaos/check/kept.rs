//! What one process keeps: a backup has all of it, a store loses nothing to a stranger, and registrations take turns.

use super::{Violation, pace};
use crate::chaos::{
    Plan,
    history::{Entry, Event},
};

/// How long the only registration of an application may wait on an idle machine for those of another, the first of which
/// takes long, milliseconds.
const WAIT_MS: u64 = 10_000;

/// So many of the others may end before it: one that had begun, and one whose turn it was.
const PASSED_BY: usize = 2;

/// What the sweep of a stranger is refused with.
const MISMATCH: &str = "store_mismatch";

/// What was acknowledged before a backup began is there where it is restored, and answers.
pub fn restored(_: &Plan, history: &[Entry]) -> Vec<Violation> {
    let missing = history.iter().filter_map(|entry| match &entry.event {
        Event::Restored { missing } => Some(missing),
        _ => None,
    });
    let violation = |what: &String| Violation::new("restored", what.clone());
    missing.flatten().map(violation).collect()
}

/// Beside a store that is not its own a registry removes nothing, and its service says so.
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

/// The only registration of an application comes to its end although another application has many, and one that takes long.
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
