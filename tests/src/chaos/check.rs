//! Checks whether a history is right. Pure: everything that the check needs is in the history.
//!
//! Each rule is a separate function that returns its violations. No rule relies on another one.

mod aside;
mod changes;
mod jobs;
mod kept;
mod losses;
mod pace;
mod peace;
mod processes;
mod queries;
mod rest;
#[cfg(test)]
mod scene;

use std::fmt;

use serde::Serialize;

use super::{
    Plan,
    history::{Entry, Event},
};

/// Largest memory of a process, bytes: many times what it needs for models of a few kilobytes.
pub const MEMORY_BYTES: u64 = 1 << 30;

/// First number of the queries that are asked while processes are lost at the end. No load reaches it.
pub const STEADY_NUMBERS: u64 = 1 << 29;

/// Codes of refusals that are explained by a fault, too many queries or too little time.
const EXPLAINED: [&str; 4] = ["unavailable", "deadline_exceeded", "overloaded", "warming"];

/// A violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The rule.
    pub rule: &'static str,
    /// What violates it.
    pub what: String,
}

impl Violation {
    fn new(rule: &'static str, what: impl Into<String>) -> Self {
        let what = what.into();
        Self { rule, what }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

/// Lists what in a history violates one rule.
type Rule = fn(&Plan, &[Entry]) -> Vec<Violation>;

/// All violations in a history.
pub fn check(history: &[Entry]) -> Vec<Violation> {
    let Some(Event::Planned { plan }) = history.first().map(|entry| &entry.event) else {
        return vec![Violation::new("history", "it does not begin with its plan")];
    };
    let rules: [Rule; 31] = [
        complete,
        queries::one_outcome,
        queries::right_answer,
        queries::refused_with_reason,
        queries::broken_with_its_front_end,
        queries::shares,
        peace::in_time,
        peace::prompt,
        peace::peace,
        peace::not_forgotten,
        peace::placed_again,
        jobs::jobs_end,
        jobs::each_record_once,
        aside::misasked,
        aside::repeated,
        aside::told,
        aside::learnt,
        processes::nobody_dies,
        processes::starts,
        processes::memory,
        processes::healed,
        changes::changes_refused_with_reason,
        changes::registrations_end,
        rest::seen,
        rest::settled,
        rest::parted,
        losses::spared,
        kept::restored,
        kept::strangers,
        kept::fair,
        audited,
    ];
    rules.iter().flat_map(|rule| rule(plan, history)).collect()
}

/// A run that stopped early proves nothing.
fn complete(_: &Plan, history: &[Entry]) -> Vec<Violation> {
    let troubles = history.iter().filter_map(|entry| match &entry.event {
        Event::Trouble { cause } => Some(Violation::new("trouble", cause)),
        _ => None,
    });
    let mut violations: Vec<_> = troubles.collect();
    let is_over = history.iter().any(|it| it.event == Event::Rest);
    if !is_over {
        violations.push(Violation::new(
            "complete",
            "the run did not come to its end",
        ));
    }
    violations
}

/// A change that took effect has exactly one entry in the audit record.
fn audited(_: &Plan, history: &[Entry]) -> Vec<Violation> {
    let mut left: Vec<(&str, &str)> = history
        .iter()
        .filter_map(|entry| match &entry.event {
            Event::Audited { action, subject } => Some((&**action, &**subject)),
            _ => None,
        })
        .collect();
    let mut violations = Vec::new();
    for entry in history {
        if let Event::Changed { action, subject } = &entry.event {
            match left.iter().position(|it| *it == (action, subject)) {
                Some(at) => drop(left.swap_remove(at)),
                None => {
                    let what = format!("`{action}` of `{subject}` at {} ms", entry.at_ms);
                    violations.push(Violation::new("audited", what));
                }
            }
        }
    }
    violations
}

/// A span of time, milliseconds; without an end, to the end of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    from_ms: u64,
    until_ms: u64,
}

impl Span {
    fn overlaps(self, other: Self) -> bool {
        self.from_ms <= other.until_ms && other.from_ms <= self.until_ms
    }

    fn has(self, at_ms: u64) -> bool {
        (self.from_ms..=self.until_ms).contains(&at_ms)
    }

    /// The spans from each event for which `begins` holds to the next one for which `ends` holds.
    fn between(
        history: &[Entry],
        begins: impl Fn(&Event) -> bool,
        ends: impl Fn(&Event) -> bool,
    ) -> Vec<Self> {
        let mut spans = Vec::new();
        let mut open = None;
        for Entry { at_ms, event } in history {
            if begins(event) {
                open.get_or_insert(*at_ms);
            } else if ends(event)
                && let Some(from_ms) = open.take()
            {
                let until_ms = *at_ms;
                spans.push(Self { from_ms, until_ms });
            }
        }
        let until_ms = u64::MAX;
        spans.extend(open.map(|from_ms| Self { from_ms, until_ms }));
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::{scene::Scene, *};

    #[test]
    fn a_history_without_a_fault_is_right() {
        assert_eq!(check(&Scene::default().history()), []);
    }

    #[test]
    fn a_history_that_stops_halfway_is_wrong() {
        let mut scene = Scene::default();
        scene.remove(|event| *event == Event::Rest);
        scene.breaks(&["complete"]);
        assert_eq!(check(&[])[0].rule, "history");
    }

    #[test]
    fn trouble_of_the_campaign_itself_is_told() {
        let mut scene = Scene::default();
        let cause = "a client could not be made".to_owned();
        scene.add(Event::Trouble { cause });
        scene.breaks(&["trouble"]);
    }

    #[test]
    fn each_change_needs_an_entry_of_its_own() {
        let change = || Event::Changed {
            action: "application.change".to_owned(),
            subject: "quiet".to_owned(),
        };
        let mut scene = Scene::default();
        scene.add(change());
        scene.breaks(&["audited"]);
        scene.add(Event::Audited {
            action: "application.change".to_owned(),
            subject: "quiet".to_owned(),
        });
        scene.breaks(&[]);
        scene.add(change());
        scene.breaks(&["audited"]);
    }
}
