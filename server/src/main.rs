//! The one binary of Sextant: reads the command line, does what it says, exits.
//!
//! Exit codes: 0 done, 1 refused or failed, 2 used wrongly (arguments or configuration).

use std::process::ExitCode;

use clap::Parser;

mod cli;
mod logging;
mod serve;

fn main() -> ExitCode {
    let arguments = cli::Arguments::parse();
    let json = arguments.json;
    match cli::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error.report(json);
            ExitCode::from(error.exit_code())
        }
    }
}
