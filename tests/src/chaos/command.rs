//! The command line of the campaign, and the one that repeats a run.

use std::path::{Path, PathBuf};

use super::{
    Plan,
    history::{self, Event},
};

/// Shortest length of a run, seconds.
const LEAST_SECONDS: u64 = 3;

/// The options of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChaosOptions {
    /// The first run's seed.
    pub seed: u64,
    /// Number of runs.
    pub runs: u64,
    /// Time for which the load of a run is exposed to faults, seconds.
    pub seconds: Option<u64>,
    /// Whether one JSON object is printed.
    pub is_json: bool,
    /// A history to check instead.
    pub check: Option<PathBuf>,
    /// A history whose plan is carried out again instead, whatever plan its seed gives now.
    pub again: Option<PathBuf>,
}

impl ChaosOptions {
    /// Reads the arguments.
    ///
    /// # Errors
    /// The error in the arguments.
    pub fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut asked = Self {
            seed: 0,
            runs: 1,
            seconds: None,
            is_json: false,
            check: None,
            again: None,
        };
        while let Some(argument) = arguments.next() {
            if argument == "--json" {
                asked.is_json = true;
                continue;
            }
            let value = arguments.next();
            let value = value.ok_or_else(|| format!("`{argument}` needs a value"))?;
            let number = || {
                value
                    .parse()
                    .map_err(|_| format!("`{value}` is not a number"))
            };
            match argument.as_str() {
                "--seed" => asked.seed = number()?,
                "--runs" => asked.runs = number()?,
                "--seconds" => asked.seconds = Some(number()?),
                "--check" => asked.check = Some(value.into()),
                "--again" => asked.again = Some(value.into()),
                _ => {
                    return Err(format!(
                        "`{argument}` is unknown: see this program's documentation"
                    ));
                }
            }
        }
        Ok(asked)
    }

    /// The plans to carry out, in order.
    ///
    /// # Errors
    /// If a plan cannot be read from a history.
    pub fn plans(&self) -> Result<Vec<Plan>, String> {
        if let Some(file) = &self.again {
            return Ok(vec![planned(file)?]);
        }
        let seeds = self.seed..self.seed.saturating_add(self.runs);
        Ok(seeds.map(|seed| plan(seed, self.seconds)).collect())
    }
}

/// The run of a seed and a length in seconds.
pub fn plan(seed: u64, seconds: Option<u64>) -> Plan {
    let length_ms = seconds.map(|seconds| seconds.max(LEAST_SECONDS) * 1000);
    Plan::draw(seed, length_ms)
}

/// The commands that repeat the run of a seed: with the seed, and with the plan in its history, which remains valid if
/// the seed gives another plan later.
pub fn again(seed: u64, seconds: Option<u64>, folder: &Path) -> String {
    let seconds = seconds.map(|seconds| format!(" --seconds {seconds}"));
    let history = folder.join("history.jsonl");
    format!(
        "cargo xtask chaos --seed {seed} --runs 1{}\n           or: cargo xtask chaos --again {}",
        seconds.unwrap_or_default(),
        history.display()
    )
}

fn planned(file: &Path) -> Result<Plan, String> {
    let wrong = |cause: String| format!("`{}`: {cause}", file.display());
    let entries = history::read(file).map_err(wrong)?;
    match entries.into_iter().next().map(|entry| entry.event) {
        Some(Event::Planned { plan }) => Ok(plan),
        _ => Err(wrong("it does not begin with its plan".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::history::History;

    fn read(line: &str) -> ChaosOptions {
        ChaosOptions::read(line.split_whitespace().map(str::to_owned)).unwrap()
    }

    #[test]
    fn the_commands_that_are_told_repeat_the_run() {
        let folder = tempfile::tempdir().unwrap();
        for (seed, seconds) in [(7, None), (206, Some(5))] {
            let plan = plan(seed, seconds);
            let history = History::new(&folder.path().join("history.jsonl")).unwrap();
            history.note(Event::Planned { plan: plan.clone() });
            let told = again(seed, seconds, folder.path());
            let lines: Vec<_> = told.lines().collect();
            assert_eq!(lines.len(), 2);
            for line in lines {
                let (_, arguments) = line.split_once("cargo xtask chaos ").unwrap();
                assert_eq!(
                    read(arguments).plans().unwrap(),
                    std::slice::from_ref(&plan),
                    "{line}"
                );
            }
        }
    }

    #[test]
    fn runs_have_seeds_in_a_row() {
        let seeds = |line: &str| -> Vec<u64> {
            let plans = read(line).plans().unwrap();
            plans.into_iter().map(|plan| plan.seed).collect()
        };
        assert_eq!(seeds(""), [0]);
        assert_eq!(seeds("--seed 4 --runs 3 --json"), [4, 5, 6]);
        let wrong = ["--seed", "--seed x", "--sed 1", "--again /nowhere"];
        for line in wrong {
            let words = line.split_whitespace().map(str::to_owned);
            assert!(
                ChaosOptions::read(words).and_then(|it| it.plans()).is_err(),
                "{line}"
            );
        }
    }
}
