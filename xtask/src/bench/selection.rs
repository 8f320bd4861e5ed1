//! The time of one selection alone.

use anyhow::Result;

use super::report::Report;
use crate::shell;

/// Passes on the figures of selection's own benchmark.
pub fn run(report: &mut Report) -> Result<()> {
    let mut command = shell::command("cargo");
    command
        .args([
            "run",
            "--release",
            "--quiet",
            "--package",
            "sextant-selection",
        ])
        .args(["--example", "selection_bench", "--", "--json"]);
    eprintln!("$ {}", shell::show(&command));
    shell::output(&mut command)?
        .lines()
        .try_for_each(|line| report.pass(line))
}
