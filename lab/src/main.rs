//! The command `sextant-lab`: runs and lists experiments.

use std::process::ExitCode;

mod cli;

fn main() -> ExitCode {
    cli::run()
}
