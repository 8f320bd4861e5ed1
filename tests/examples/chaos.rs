//! Runs a campaign of faults; `cargo xtask chaos` builds and starts it.
//!
//! `chaos --seed S --runs N [--seconds T] [--json]` carries out the runs of the seeds from S on. Each run reports what
//! was wrong, where its history is, and how to repeat it. `chaos --again FILE` carries out the plan of a history, and
//! `chaos --check FILE` checks a history again. It fails if anything is wrong.

#![expect(clippy::print_stdout, reason = "results go to standard output")]
#![expect(clippy::print_stderr, reason = "and progress to standard error")]

use std::{collections::BTreeMap, path::Path, process::ExitCode};

use serde_json::{Value, json};
use sextant_tests::{
    chaos::{
        self, Outcome, Plan, Violation,
        command::{self, ChaosOptions},
        history,
    },
    scratch,
};
use tokio::signal::unix::{SignalKind, signal};

/// Number of violations of each rule that are printed on standard error; the JSON has all.
const TOLD: usize = 5;

#[tokio::main]
async fn main() -> ExitCode {
    let wrong = |problem: String| {
        eprintln!("{problem}");
        ExitCode::from(2)
    };
    let asked = match ChaosOptions::read(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(problem) => return wrong(problem),
    };
    if let Some(file) = &asked.check {
        return check(file);
    }
    let plans = match asked.plans() {
        Ok(plans) => plans,
        Err(problem) => return wrong(problem),
    };
    let Ok(mut terminated) = signal(SignalKind::terminate()) else {
        return wrong("it cannot be said what happens at SIGTERM".to_owned());
    };
    // A dropped run ends what it has started.
    tokio::select! {
        code = carry_out(&asked, plans) => code,
        _ = terminated.recv() => ExitCode::from(128 + 15),
        _ = tokio::signal::ctrl_c() => ExitCode::from(128 + 2),
    }
}

async fn carry_out(asked: &ChaosOptions, plans: Vec<Plan>) -> ExitCode {
    let folder = scratch().join("chaos");
    let mut runs = Vec::new();
    let mut violations = 0;
    for plan in plans {
        let seed = plan.seed;
        let outcome = chaos::run(plan, &folder).await;
        say(asked, seed, &outcome);
        violations += outcome.violations.len();
        runs.push(describe(seed, &outcome));
    }
    if asked.is_json {
        let all = json!({"chaos_runs": runs.len(), "chaos_violations": violations, "runs": runs});
        println!("{all}");
    } else {
        println!("{} runs, {violations} violations", runs.len());
    }
    ExitCode::from(u8::from(violations > 0))
}

fn check(file: &Path) -> ExitCode {
    match history::read(file) {
        Ok(entries) => {
            let violations = chaos::check::check(&entries);
            violations.iter().for_each(|it| println!("{it}"));
            ExitCode::from(u8::from(!violations.is_empty()))
        }
        Err(problem) => {
            eprintln!("`{}`: {problem}", file.display());
            ExitCode::from(2)
        }
    }
}

fn say(asked: &ChaosOptions, seed: u64, outcome: &Outcome) {
    let [answered, refused, broken] = outcome.queries;
    let wrong = outcome.violations.len();
    eprintln!(
        "seed {seed}: {answered} answered, {refused} refused, {broken} broken; {wrong} violations"
    );
    let mut told: BTreeMap<&str, usize> = BTreeMap::new();
    for violation in &outcome.violations {
        let count = told.entry(violation.rule).or_default();
        *count += 1;
        if *count <= TOLD {
            eprintln!("    {violation}");
        }
    }
    for (rule, count) in told.into_iter().filter(|(_, count)| *count > TOLD) {
        eprintln!("    {rule}: {count} in all");
    }
    if wrong > 0 {
        eprintln!("    history and logs: {}", outcome.folder.display());
        let again = command::again(seed, asked.seconds, &outcome.folder);
        eprintln!("    again: {again}");
    }
}

fn describe(seed: u64, outcome: &Outcome) -> Value {
    let [answered, refused, broken] = outcome.queries;
    let violations: Vec<String> = outcome
        .violations
        .iter()
        .map(Violation::to_string)
        .collect();
    json!({
        "seed": seed, "answered": answered, "refused": refused, "broken": broken,
        "violations": violations, "history": outcome.folder.join("history.jsonl")
    })
}
