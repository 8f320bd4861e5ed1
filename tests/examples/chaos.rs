//! Runs of a campaign of faults: `cargo xtask chaos` builds and starts it.
//!
//! `chaos --seed S --runs N [--seconds T] [--json]` carries out the runs of the seeds from S on; each says
//! what was wrong, where its history is, and how to see it again. `chaos --check FILE` checks a history
//! again. It fails where anything is wrong.

#![expect(clippy::print_stdout, reason = "results go to standard output")]
#![expect(clippy::print_stderr, reason = "and progress to standard error")]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitCode,
};

use serde_json::{Value, json};
use sextant_tests::{
    chaos::{self, Outcome, Plan, Violation, history},
    scratch,
};

/// Violations of each rule that are told on standard error; the JSON has all.
const TOLD: usize = 5;

/// What the command line asks for.
struct Asked {
    seed: u64,
    runs: u64,
    length_ms: Option<u64>,
    is_json: bool,
    check: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let asked = match read(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    if let Some(file) = &asked.check {
        return check(file);
    }
    let folder = scratch().join("chaos");
    let mut runs = Vec::new();
    let mut violations = 0;
    for seed in asked.seed..asked.seed.saturating_add(asked.runs) {
        let outcome = chaos::run(Plan::draw(seed, asked.length_ms), &folder).await;
        say(&asked, seed, &outcome);
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

fn say(asked: &Asked, seed: u64, outcome: &Outcome) {
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
        let length = asked
            .length_ms
            .map(|ms| format!(" --seconds {}", ms / 1000));
        let length = length.unwrap_or_default();
        eprintln!("    history and logs: {}", outcome.folder.display());
        eprintln!("    again: cargo xtask chaos --seed {seed} --runs 1{length}");
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

fn read(arguments: impl Iterator<Item = String>) -> Result<Asked, String> {
    let mut asked = Asked {
        seed: 0,
        runs: 1,
        length_ms: None,
        is_json: false,
        check: None,
    };
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        if argument == "--json" {
            asked.is_json = true;
            continue;
        }
        let value = arguments.next();
        let value = value.ok_or_else(|| format!("`{argument}` needs a value"))?;
        let number = || value.parse().map_err(|_| format!("`{value}` is no number"));
        match argument.as_str() {
            "--seed" => asked.seed = number()?,
            "--runs" => asked.runs = number()?,
            "--seconds" => asked.length_ms = Some(number()?.max(3) * 1000),
            "--check" => asked.check = Some(value.into()),
            _ => {
                return Err(format!(
                    "`{argument}` is unknown: see this program's documentation"
                ));
            }
        }
    }
    Ok(asked)
}
