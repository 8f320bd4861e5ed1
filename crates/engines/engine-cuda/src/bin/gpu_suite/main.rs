//! The GPU suite: the program that `cargo xtask gpu-kit` and `cargo xtask gpu-test` run, part by part (docs/gpu.md).
//!
//! A process runs one part, so that a failure costs only that part. It prints one JSON object per line with
//! `experiment`, `part`, `cell`, `metric`, `value` and `unit`, each as soon as it is known. It exits with 2 if there is
//! no device or a library is missing, and with 1 if something is wrong or differs too much.
#![expect(clippy::print_stdout, reason = "results go to standard output")]

mod agreement;
mod arguments;
mod copies;
mod describe;
mod latency;
mod loading;
mod mapping;
mod operations;
mod providers;
mod record;
mod setup;
mod throughput;

use std::process::ExitCode;

use sextant_engine::Error;

use arguments::{Arguments, Invocation, Part};

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(Invocation::Run(arguments)) => arguments,
        Ok(Invocation::Help) => {
            print!("{}", arguments::help());
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::FAILURE;
        }
    };
    // The logs warn of libraries that cannot be loaded.
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    record::begin(arguments.part.name());
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            let is_missing = matches!(error, Error::Unavailable { .. });
            ExitCode::from(if is_missing { 2 } else { 1 })
        }
    }
}

/// Whether all comparisons agreed.
fn run(arguments: &Arguments) -> Result<bool, Error> {
    match arguments.part {
        Part::Device => describe::device(arguments),
        Part::Operators => agreement::operators(arguments),
        Part::Networks => agreement::networks(arguments),
        Part::Copies => copies::run(arguments),
        Part::Throughput => throughput::run(arguments),
        Part::Operations => operations::run(arguments),
        Part::Loads => loading::run(arguments),
        Part::InferAndLoad => latency::infer_and_load(arguments),
        Part::TwoModels => latency::two_models(arguments),
        Part::Jitter => latency::jitter(arguments),
        Part::Providers => providers::run(arguments),
        Part::Compile => describe::compile(),
    }
}
