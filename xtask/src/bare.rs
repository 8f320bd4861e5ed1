//! `cargo xtask bare`: proves the two commands of the README on machines that have nothing.
//!
//! Each command runs in a container of its own. The container has Debian, a Rust toolchain with the linker that it
//! needs, Python 3, and the sources as git has them. The commands must fetch everything else themselves, as on the
//! machine of a newcomer. Downloads of package managers are kept between runs. If there is no container engine, the
//! command says so and succeeds.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;

use crate::containers::{self, engine, images, stand_ins};
use crate::shell::say;
use machine::Machine;

mod machine;

/// The base image of the containers.
const IMAGE: &str = "sextant-bare:debian";

/// Options of `cargo xtask bare`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Prove this command alone
    #[arg(long, value_enum)]
    only: Option<Proof>,
    /// Leave the containers up at the end
    #[arg(long)]
    keep: bool,
    /// Weight beside others who compute, of whom each has 1024
    #[arg(long, value_name = "WEIGHT", default_value_t = 1024)]
    cpu_shares: u32,
    /// Further arguments of the test command
    #[arg(last = true)]
    test_arguments: Vec<String>,
}

/// A command that is proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Proof {
    /// `cargo xtask demo`, until it has answered its queries
    Demo,
    /// `cargo xtask test`
    Test,
}

/// The result of a command.
struct ProofResult {
    name: &'static str,
    passed: bool,
    seconds: u64,
    /// Lines of its output that count what it did.
    counts: Vec<String>,
    /// Packages that it installed.
    packages: Vec<String>,
}

/// Proves the commands and prints the results.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let version = match engine::version() {
        Ok(version) => version,
        Err(reason) => {
            println!("xtask bare: skipped, no Docker engine answers: {reason}");
            return Ok(ExitCode::SUCCESS);
        }
    };
    say(format!("Docker engine {version}: found"));
    let _alone = containers::alone("bare")?;
    images::ensure_made(IMAGE, stand_ins::BARE)?;
    let wanted = |proof| arguments.only.is_none_or(|only| only == proof);
    let proofs = [Proof::Demo, Proof::Test].into_iter();
    let proved: Vec<ProofResult> = proofs
        .filter(|proof| wanted(*proof))
        .map(|proof| proof.prove(arguments))
        .collect::<Result<_>>()?;
    for proved in &proved {
        println!("{}", proved.line());
    }
    Ok(match proved.iter().all(|proved| proved.passed) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

// === impl Proof ===

impl Proof {
    fn name(self) -> &'static str {
        match self {
            Self::Demo => "demo",
            Self::Test => "test",
        }
    }

    /// The words after `cargo xtask`.
    fn words(self, arguments: &Arguments) -> Vec<&str> {
        let further = arguments.test_arguments.iter().map(String::as_str);
        match self {
            Self::Demo => vec!["demo", "--exit-after-ready"],
            Self::Test => ["test"].into_iter().chain(further).collect(),
        }
    }

    /// Runs the command on a machine of its own.
    fn prove(self, arguments: &Arguments) -> Result<ProofResult> {
        let name = self.name();
        let machine = Machine::start(&format!("sextant-bare-{name}"), IMAGE, arguments.cpu_shares)?;
        let begun = Instant::now();
        let mut counts = Vec::new();
        let words = [&["cargo", "xtask"], &self.words(arguments)[..]].concat();
        let passed = machine.run(&words, |line| {
            if counts_something(line) {
                counts.push(line.trim().to_owned());
            }
        })?;
        let seconds = begun.elapsed().as_secs();
        let packages = machine.installed()?;
        match arguments.keep {
            true => machine.keep(),
            false => drop(machine),
        }
        Ok(ProofResult {
            name,
            passed,
            seconds,
            counts,
            packages,
        })
    }
}

/// Whether a line of the output counts what was done.
fn counts_something(line: &str) -> bool {
    const PARTS: [&str; 4] = [
        " variants answered.",
        "Summary [",
        "   FLAKY ",
        "xtask test: ",
    ];
    PARTS.iter().any(|part| line.contains(part))
}

// === impl ProofResult ===

impl ProofResult {
    fn line(&self) -> String {
        let outcome = if self.passed { "passed" } else { "FAILED" };
        let or_nothing = |words: &[String], between| match words {
            [] => "nothing".to_owned(),
            words => words.join(between),
        };
        format!(
            "bare {}: {outcome} after {} s; said: {}; apt installed: {}",
            self.name,
            self.seconds,
            or_nothing(&self.counts, " | "),
            or_nothing(&self.packages, " ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_told_from_progress() {
        assert!(counts_something(
            "     Summary [  12.1s] 1 test run: 1 passed, 2588 skipped"
        ));
        assert!(counts_something("3 different variants answered."));
        assert!(counts_something("xtask test: everything passed in 3 s"));
        assert!(!counts_something(
            "        PASS [   0.1s] sextant-tests::sdk"
        ));
        assert!(!counts_something("test result: ok. 4 passed; 0 failed"));
    }

    #[test]
    fn a_line_says_all_of_a_command() {
        let proved = ProofResult {
            name: "demo",
            passed: true,
            seconds: 7,
            counts: vec!["3 different variants answered.".to_owned()],
            packages: Vec::new(),
        };
        assert_eq!(
            proved.line(),
            "bare demo: passed after 7 s; said: 3 different variants answered.; apt installed: nothing"
        );
    }
}
