//! The one binary of Sextant: it reads the command line, runs the command and exits.
//!
//! Exit codes: 0 done, 1 refused or failed, 2 used wrongly (arguments or configuration).

use std::process::ExitCode;

mod cli;
mod environment;
mod logging;
mod serve;

/// Of this program and, because it takes the place of `malloc`, of the engines' libraries ([`environment`]).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = match cli::Arguments::of_process() {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    let json = arguments.json;
    match cli::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error.report(json);
            ExitCode::from(error.exit_code())
        }
    }
}

/// Help and what is wrong with the arguments, the latter as JSON where that is asked for.
fn refuse(error: &clap::Error) -> ExitCode {
    let is_mistake = error.use_stderr();
    // An argument that is not Unicode counts as well.
    if is_mistake && std::env::args_os().any(|argument| argument == "--json") {
        let detail = serde_json::json!({"detail": error.to_string().trim()});
        cli::tell(&detail.to_string());
        return ExitCode::from(2);
    }
    // If standard error is closed, the message is lost.
    error.print().ok();
    ExitCode::from(if is_mistake { 2 } else { 0 })
}
