//! Reports the results as tables or as JSON lines, and the failures.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::PhaseReport;
use super::outcomes::Tally;
use super::phases::{Phase, Tolerance};
use crate::containers::images::Images;
use crate::shell::say;

/// Times since `docker compose up`.
pub struct FirstAnswer {
    /// All containers are healthy.
    pub healthy: Duration,
    /// The first model is registered.
    pub registered: Duration,
    /// A query is answered.
    pub answered: Duration,
}

/// Collects and prints the results.
pub struct Report {
    json: bool,
    failures: Vec<String>,
    rows: Vec<String>,
}

impl Report {
    /// An empty one.
    pub fn new(json: bool) -> Self {
        Self {
            json,
            failures: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Reports that nothing can be tested here.
    pub fn skipped(&self, reason: &str) {
        match self.json {
            true => println!("{}", json!({"experiment": "compose", "skipped": reason})),
            false => println!("compose-test: skipped: {reason}"),
        }
    }

    /// Reports the images that are stand-ins.
    pub fn stand_ins(&self, images: &Images) {
        match self.json {
            true => println!(
                "{}",
                json!({"experiment": "compose", "stand_ins": images.stand_ins, "missing": images.missing})
            ),
            false => println!("stand-ins: {}", or_none(&images.stand_ins)),
        }
    }

    /// Reports the times from nothing to the first answer.
    pub fn first_answer(&self, times: &FirstAnswer) {
        for (metric, time) in [
            ("compose_healthy_s", times.healthy),
            ("compose_registered_s", times.registered),
            ("compose_first_answer_s", times.answered),
        ] {
            let value = (time.as_secs_f64() * 10.0).round() / 10.0;
            let figure =
                json!({"experiment": "compose", "metric": metric, "value": value, "unit": "s"});
            match self.json {
                true => println!("{figure}"),
                false => println!("{metric} = {value}"),
            }
        }
    }

    /// Reports the outcomes of a phase.
    pub fn phase(&mut self, phase: &Phase, seen: &PhaseReport) {
        for problem in problems(phase, seen) {
            self.fail(format!("{}: {problem}", phase.name));
        }
        if self.json {
            println!("{}", line(phase, seen));
            return;
        }
        let row = row(phase, seen);
        say(&row);
        self.rows.push(row);
    }

    /// Reports the check of a monitoring service; `None` if its image is not available.
    pub fn observed(&mut self, name: &str, outcome: Option<Result<()>>) {
        let said = match outcome {
            None => "skipped: its image cannot be had".to_owned(),
            Some(Ok(())) => "sees the stack".to_owned(),
            Some(Err(error)) => {
                self.fail(format!("{name}: {error:#}"));
                format!("{error:#}")
            }
        };
        match self.json {
            true => println!(
                "{}",
                json!({"experiment": "compose", "cell": name, "observed": said})
            ),
            false => println!("{name}: {said}"),
        }
    }

    /// Records a failure.
    pub fn fail(&mut self, what: String) {
        say(&what);
        self.failures.push(what);
    }

    /// Whether there was a failure.
    pub fn has_failed(&self) -> bool {
        !self.failures.is_empty()
    }

    /// Prints the table and the failures.
    pub fn finish(self) -> ExitCode {
        if !self.rows.is_empty() {
            println!(
                "\n| while | took, s | asked | answered | refused | asked again | broken | lost or wrong | longest wait, ms | longest gap, ms |"
            );
            println!("|---|---|---|---|---|---|---|---|---|---|");
            self.rows.iter().for_each(|row| println!("{row}"));
        }
        for failure in &self.failures {
            say(format!("FAILED: {failure}"));
        }
        match self.failures.is_empty() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }
}

/// The failures of a phase.
fn problems(phase: &Phase, PhaseReport { tally, counted, .. }: &PhaseReport) -> Vec<String> {
    let mut problems = Vec::new();
    if tally.answered == 0 {
        problems.push("nothing was answered".to_owned());
    }
    if tally.lost > 0 {
        problems.push(format!("{} queries got nothing back", tally.lost));
    }
    if let Some(wrong) = tally.wrong.first() {
        problems.push(format!("{} wrong answers: {wrong}", tally.wrong.len()));
    }
    if phase.allowed != Tolerance::BrokenConnections && tally.without_an_answer() > 0 {
        problems.push(format!("{} connections broke", tally.without_an_answer()));
    }
    if phase.allowed == Tolerance::Nothing && tally.refusals() > 0 {
        problems.push(format!("refused: {}", codes(tally)));
    }
    // A restarted front end has lost its counts.
    let got = tally.with_an_answer() + tally.asked_again;
    let same = *counted == Some(got);
    if phase.allowed != Tolerance::BrokenConnections && !same {
        problems.push(format!(
            "clients got {got} outcomes, the front end counted {counted:?}"
        ));
    }
    problems
}

fn line(
    phase: &Phase,
    PhaseReport {
        tally,
        took,
        counted,
    }: &PhaseReport,
) -> Value {
    json!({
        "experiment": "compose",
        "cell": phase.name,
        "took_s": took.as_secs_f64(),
        "asked": tally.asked,
        "answered": tally.answered,
        "refused": tally.refused,
        "asked_again": tally.asked_again,
        "not_connected": tally.not_connected,
        "broken": tally.broken,
        "lost": tally.lost,
        "wrong": tally.wrong.len(),
        "counted": counted,
        "longest_wait_ms": tally.longest.as_millis() as u64,
        "longest_gap_ms": tally.longest_gap.as_millis() as u64,
    })
}

fn row(phase: &Phase, PhaseReport { tally, took, .. }: &PhaseReport) -> String {
    format!(
        "| {} | {:.1} | {} | {} | {} | {} | {} | {} | {} | {} |",
        phase.name,
        took.as_secs_f64(),
        tally.asked,
        tally.answered,
        codes(tally),
        tally.asked_again,
        tally.without_an_answer(),
        tally.lost + tally.wrong.len() as u64,
        tally.longest.as_millis(),
        tally.longest_gap.as_millis(),
    )
}

fn codes(tally: &Tally) -> String {
    let codes = tally.refused.iter();
    let codes: Vec<String> = codes
        .map(|(code, count)| format!("{count} {code}"))
        .collect();
    match codes.is_empty() {
        true => "0".to_owned(),
        false => codes.join(", "),
    }
}

fn or_none(names: &[String]) -> String {
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcomes::Outcome;
    use super::*;

    fn seen(outcomes: &[Outcome]) -> PhaseReport {
        let mut tally = Tally::default();
        let now = std::time::Instant::now();
        for outcome in outcomes {
            tally.count(outcome.clone(), Duration::ZERO, now);
        }
        PhaseReport {
            counted: Some(tally.with_an_answer()),
            took: Duration::ZERO,
            tally,
        }
    }

    fn is_well(allowed: Tolerance, outcomes: &[Outcome]) -> bool {
        let phase = Phase {
            name: "a phase",
            act: |_| Ok(()),
            allowed,
        };
        problems(&phase, &seen(outcomes)).is_empty()
    }

    #[test]
    fn phases_allow_what_they_say() {
        use Tolerance::{BrokenConnections, Nothing, Refusals};
        let answered = Outcome::Answered;
        let refused = [answered.clone(), Outcome::Refused("unavailable".to_owned())];
        let broken = [answered.clone(), Outcome::Broken];
        let not_connected = [answered.clone(), Outcome::NotConnected];
        assert!(is_well(Nothing, &[answered]));
        assert!(is_well(Refusals, &refused) && !is_well(Nothing, &refused));
        assert!(is_well(BrokenConnections, &broken) && !is_well(Refusals, &broken));
        assert!(is_well(BrokenConnections, &not_connected) && !is_well(Refusals, &not_connected));
    }

    #[test]
    fn nothing_is_lost_wrong_or_counted_twice_in_any_phase() {
        let answered = Outcome::Answered;
        for bad in [Outcome::Lost, Outcome::Wrong("a 7".to_owned())] {
            assert!(!is_well(
                Tolerance::BrokenConnections,
                &[answered.clone(), bad]
            ));
        }
        assert!(!is_well(Tolerance::BrokenConnections, &[]));
        let phase = Phase {
            name: "a phase",
            act: |_| Ok(()),
            allowed: Tolerance::Refusals,
        };
        let mut seen = seen(&[answered]);
        seen.counted = Some(2);
        assert_eq!(problems(&phase, &seen).len(), 1);
    }
}
