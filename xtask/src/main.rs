//! `cargo xtask`: development commands.
//!
//! Progress goes to standard error; standard output has only results.
#![expect(clippy::print_stdout, reason = "results go to standard output")]

mod bare;
mod bench;
mod chaos;
mod chart_test;
mod checks;
mod compatibility;
mod compose_test;
mod containers;
mod demo;
mod floors;
mod fuzz;
mod gpu_kit;
mod gpu_test;
mod http;
mod models;
mod mutants;
mod openapi;
mod packages;
mod pages;
mod paths;
mod planted;
mod provision;
mod server;
mod shell;
mod tree;
mod upgrade_test;
mod wheel;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "Development commands"
)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Fetch what is missing into the cache folder: ONNX Runtime, Python packages, tools
    Provision,
    /// Build Sextant, start it with the digits application and print queries to try
    Demo(demo::Arguments),
    /// Run all tests, then the format, lint, dependency and documentation checks
    Test(checks::Arguments),
    /// Prove `demo` and `test` in containers that have Debian, a Rust toolchain, Python 3 and nothing else
    Bare(bare::Arguments),
    /// Lint and render the Helm chart, and hold it against the schemas of three Kubernetes versions
    ChartTest,
    /// Run clients and testers that others have written against a service
    Compatibility(compatibility::Arguments),
    /// Start the local stack with Docker, break and upgrade it under load, and count the answers
    ComposeTest(compose_test::Arguments),
    /// Build a folder that checks and measures the CUDA engine on a machine without Rust and without a network
    GpuKit(gpu_kit::Arguments),
    /// Compare the CUDA engine with ONNX Runtime on a GPU and measure it
    GpuTest(gpu_test::Arguments),
    /// Write large models with random weights into `target/models`, for performance work
    Models(models::Arguments),
    /// Write `openapi/sextant.json` as the server reports it
    Openapi,
    /// Write the README's picture of the pages into `docs/images`
    Picture,
    /// Break parts of the running service by a seed, under load, and check what became of everything
    Chaos(chaos::Arguments),
    /// Make up bytes for every reader of what comes from outside, and report what breaks
    Fuzz(fuzz::Arguments),
    /// Change code in small ways, one at a time, and tell which of the changes no test notices
    Mutants(mutants::Arguments),
    /// Plant known bugs, one at a time, and tell which of them the campaign of faults notices
    Planted(planted::Arguments),
    /// Upgrade a fleet of an earlier commit's binary to this one under load, and check that nothing fails or is lost
    UpgradeTest(upgrade_test::Arguments),
    /// Write a Python wheel with the service's binary and the client into `dist`
    Wheel(wheel::Arguments),
    /// Measure the figures of docs/figures.md
    Bench(bench::Arguments),
}

fn main() -> anyhow::Result<std::process::ExitCode> {
    match Arguments::parse().task {
        Task::Provision => provision::everything()?.deny.map(drop)?,
        Task::Demo(arguments) => demo::run(&arguments)?,
        Task::Test(arguments) => return checks::run(&arguments),
        Task::Bare(arguments) => return bare::run(&arguments),
        Task::ChartTest => chart_test::run()?,
        Task::Compatibility(arguments) => return compatibility::run(&arguments),
        Task::ComposeTest(arguments) => return compose_test::run(&arguments),
        Task::GpuKit(arguments) => gpu_kit::run(&arguments)?,
        Task::GpuTest(arguments) => return gpu_test::run(&arguments),
        Task::Models(arguments) => models::run(&arguments)?,
        Task::Openapi => openapi::run()?,
        Task::Picture => pages::picture()?,
        Task::Chaos(arguments) => return chaos::run(&arguments),
        Task::Fuzz(arguments) => return fuzz::run(&arguments),
        Task::Mutants(arguments) => return mutants::run(&arguments),
        Task::Planted(arguments) => return planted::run(&arguments),
        Task::UpgradeTest(arguments) => return upgrade_test::run(&arguments),
        Task::Wheel(arguments) => wheel::run(&arguments)?,
        Task::Bench(arguments) => bench::run(&arguments)?,
    }
    Ok(std::process::ExitCode::SUCCESS)
}
