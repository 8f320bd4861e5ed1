//! The one binary of Sextant: reads the command line, does what it says, exits.
//!
//! Exit codes: 0 done, 1 refused or failed, 2 used wrongly (arguments or configuration).

use std::process::ExitCode;

use clap::Parser;

mod cli;
mod config;
mod logging;
mod serve;

/// Gives memory back to the system soon after it is freed, also what ONNX Runtime frees: loading
/// and measuring many variants would otherwise leave a multiple of what is loaded behind.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
