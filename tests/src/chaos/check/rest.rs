//! After the load: nothing of it is left, and front ends end well.

use super::{Violation, pace};
use crate::chaos::{
    Plan,
    history::{Entry, Event},
};

/// Time on an idle machine that workers may need at the start of peace to announce themselves again, milliseconds.
const ANNOUNCED_MS: u64 = 2000;

/// Long after the load no query counts as open, no instance is still loading or draining, every worker is known, one
/// dispatcher leads, and the store has exactly what is referred to and accepts files.
pub fn settled(_: &Plan, history: &[Entry]) -> Vec<Violation> {
    let wrong = |entry: &Entry| match &entry.event {
        Event::Unsettled { process, what } => {
            Some(Violation::new("settled", format!("`{process}`: {what}")))
        }
        _ => None,
    };
    history.iter().filter_map(wrong).collect()
}

/// In peace exactly the existing workers are known: none loses its lease for a moment.
pub fn seen(_: &Plan, history: &[Entry]) -> Vec<Violation> {
    let calm = history.iter().find(|entry| entry.event == Event::Calm);
    let calm_ms = calm.map_or(u64::MAX, |entry| entry.at_ms);
    let is_new = |at_ms: u64| {
        let announced_ms = pace::stretched_before(history, at_ms, ANNOUNCED_MS);
        at_ms <= calm_ms.saturating_add(announced_ms)
    };
    let wrong = |entry: &Entry| match &entry.event {
        Event::Seen { process, workers }
            if !is_new(entry.at_ms) && !pace::was_starved(history, entry.at_ms) =>
        {
            let what = format!("`{process}` sees {workers} workers at {} ms", entry.at_ms);
            Some(Violation::new("seen", what))
        }
        _ => None,
    };
    history.iter().filter_map(wrong).collect()
}

/// A front end that is asked to end says so and answers the queries that it has begun.
pub fn parted(_: &Plan, history: &[Entry]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for entry in history {
        let Event::Parted {
            process,
            is_ready,
            broken,
        } = &entry.event
        else {
            continue;
        };
        let mut wrong = |what: String| {
            let what = format!("`{process}` {what}");
            violations.push(Violation::new("parted", what));
        };
        if *is_ready {
            wrong("was asked to end and says that it is ready".to_owned());
        }
        if *broken > 0 {
            wrong(format!("ended and left {broken} queries without an answer"));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::{super::scene::Scene, *};

    #[test]
    fn something_is_left_of_the_load() {
        let mut scene = Scene::default();
        scene.add(Event::Unsettled {
            process: "api-1".to_owned(),
            what: "sextant_queries_in_flight 3".to_owned(),
        });
        scene.breaks(&["settled"]);
    }

    #[test]
    fn a_worker_that_is_not_seen_in_peace() {
        let seen = |at_ms| {
            let mut scene = Scene::default();
            scene.remove(|event| matches!(event, Event::Calm));
            scene.add_at(2500, Event::Calm);
            let process = "dispatcher".to_owned();
            scene.add_at(
                at_ms,
                Event::Seen {
                    process,
                    workers: 1,
                },
            );
            scene
        };
        // A forgotten worker announces itself again.
        seen(2500 + ANNOUNCED_MS).breaks(&[]);
        let mut scene = seen(2501 + ANNOUNCED_MS);
        scene.breaks(&["seen"]);
        scene.add_at(3000, Event::Pace { waited: 0.9 });
        scene.breaks(&[]);
    }

    #[test]
    fn a_front_end_that_ends_badly() {
        for (is_ready, broken, rules) in [
            (false, 0, &[][..]),
            (true, 0, &["parted"]),
            (true, 2, &["parted", "parted"]),
        ] {
            let mut scene = Scene::default();
            scene.add(Event::Parted {
                process: "api-1".to_owned(),
                is_ready,
                broken,
            });
            scene.breaks(rules);
        }
    }
}
