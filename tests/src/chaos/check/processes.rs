//! Processes: only killed ones die, none grows without bound, and all come back.

use std::collections::BTreeMap;

use super::{MEMORY_BYTES, Span, Violation, pace};
use crate::chaos::{
    Plan,
    history::{Entry, Event},
};

/// Time on an idle machine that a process may need to report that a store is away, milliseconds.
const AWAY_MS: u64 = 30_000;

/// No process ends that was not killed, none panics, and each ends successfully when it is asked to.
pub fn nobody_dies(plan: &Plan, history: &[Entry]) -> Vec<Violation> {
    let wrong = |entry: &Entry| match &entry.event {
        Event::Died { process } => Some(format!("`{process}` died at {} ms", entry.at_ms)),
        Event::Panicked { process, line } => Some(format!("`{process}` logged: {line}")),
        Event::Stopped {
            process,
            is_success: false,
            cause,
        } => Some(format!("`{process}` did not end well: {cause}")),
        _ => None,
    };
    let found = history.iter().filter_map(wrong);
    let mut violations: Vec<_> = found
        .map(|what| Violation::new("nobody_dies", what))
        .collect();
    for name in plan.processes() {
        let is_stopped = |entry: &Entry| matches!(&entry.event, Event::Stopped { process, .. } if *process == name);
        if !history.iter().any(is_stopped) {
            let what = format!("`{name}` was not there to be ended");
            violations.push(Violation::new("nobody_dies", what));
        }
    }
    violations
}

/// A process starts at once unless a store is away or has just come back, or the machine is starved.
pub fn starts(plan: &Plan, history: &[Entry]) -> Vec<Violation> {
    let is_store = |fault: usize| plan.faults[fault].kind.is_of_store();
    let mut away = Span::between(
        history,
        |event| matches!(event, Event::FaultBegan { fault } if is_store(*fault)),
        |event| *event == Event::Healed,
    );
    for span in &mut away {
        let after_ms = pace::stretched_before(history, span.until_ms, AWAY_MS);
        span.until_ms = span.until_ms.saturating_add(after_ms);
    }
    let wrong = |entry: &Entry| {
        let Event::NotStarted { process, cause } = &entry.event else {
            return None;
        };
        let before = Span {
            from_ms: entry.at_ms.saturating_sub(AWAY_MS),
            until_ms: entry.at_ms,
        };
        let is_explained = pace::is_starved(history, before)
            || away
                .iter()
                .any(|span| (span.from_ms..=span.until_ms).contains(&entry.at_ms));
        let what = format!("`{process}` at {} ms: {cause}", entry.at_ms);
        (!is_explained).then(|| Violation::new("starts", what))
    };
    history.iter().filter_map(wrong).collect()
}

/// No process uses more memory than its limit.
pub fn memory(_: &Plan, history: &[Entry]) -> Vec<Violation> {
    let mut most: BTreeMap<&str, u64> = BTreeMap::new();
    for entry in history {
        if let Event::Memory { process, bytes } = &entry.event {
            let most = most.entry(process).or_default();
            *most = (*most).max(*bytes);
        }
    }
    most.retain(|_, bytes| *bytes > MEMORY_BYTES);
    most.into_iter()
        .map(|(process, bytes)| Violation::new("memory", format!("`{process}`: {bytes} bytes")))
        .collect()
}

/// Once everything is back, every front end is ready and answers every application.
pub fn healed(plan: &Plan, history: &[Entry]) -> Vec<Violation> {
    let state = |name: &str| {
        history.iter().find_map(|entry| match &entry.event {
            Event::Ready { process } if process == name => Some(None),
            Event::NotReady { process, cause } if process == name => Some(Some(&**cause)),
            _ => None,
        })
    };
    let wrong = |name: String| {
        let cause = state(&name).unwrap_or(Some("nobody looked"))?;
        Some(Violation::new("healed", format!("`{name}`: {cause}")))
    };
    plan.front_ends().into_iter().filter_map(wrong).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::scene::Scene, *};

    #[test]
    fn a_process_that_dies_panics_or_ends_badly() {
        let process = || "worker-1".to_owned();
        for event in [
            Event::Died { process: process() },
            Event::Panicked {
                process: process(),
                line: "panicked at ..".to_owned(),
            },
            Event::Stopped {
                process: process(),
                is_success: false,
                cause: "signal: 6".to_owned(),
            },
        ] {
            let mut scene = Scene::default();
            scene.add(event);
            scene.breaks(&["nobody_dies"]);
        }
        let mut scene = Scene::default();
        scene.remove(
            |event| matches!(event, Event::Stopped { process, .. } if process == "worker-1"),
        );
        scene.breaks(&["nobody_dies"]);
    }

    #[test]
    fn a_process_that_does_not_start_while_the_stores_are_there() {
        let mut scene = Scene::default();
        scene.add_at(
            900,
            Event::NotStarted {
                process: "worker-1".to_owned(),
                cause: "status 1".to_owned(),
            },
        );
        scene.add_at(800, Event::FaultBegan { fault: 0 });
        scene.breaks(&["starts"]);
        scene.add_at(800, Event::FaultBegan { fault: 1 });
        scene.breaks(&[]);
    }

    #[test]
    fn a_process_that_grows() {
        let mut scene = Scene::default();
        for bytes in [MEMORY_BYTES, MEMORY_BYTES + 1, 5] {
            let process = "worker-1".to_owned();
            scene.add(Event::Memory { process, bytes });
        }
        scene.breaks(&["memory"]);
    }

    #[test]
    fn a_front_end_that_does_not_come_back() {
        let mut scene = Scene::default();
        scene.remove(|event| matches!(event, Event::Ready { .. }));
        scene.breaks(&["healed"]);
        scene.add(Event::NotReady {
            process: "api-1".to_owned(),
            cause: "503".to_owned(),
        });
        scene.breaks(&["healed"]);
    }
}
