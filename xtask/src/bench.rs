//! `cargo xtask bench`: the figures of docs/figures.md, each with one command.

mod autoscaling;
mod bed;
mod build;
mod controller;
mod fleet;
mod generator;
mod learning;
mod load;
mod main_job;
mod models;
mod ocr;
mod page;
pub mod peers;
mod pipelines;
pub mod report;
mod right;
mod scheduler;
mod selection;
mod trust;
mod worker;

use std::path::PathBuf;

use anyhow::{Result, bail};

use report::Report;

use crate::{paths, shell};

/// Options of `cargo xtask bench`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Experiments to run [default: all]: autoscaling, build, controller, fleet, generator, learning, main-job, models, ocr,
    /// page, peers, pipelines, right, scheduler, trust, worker
    names: Vec<String>,
    /// Only these parts: planners, ramp of autoscaling; demo, check, lines of build; overhead, tensors, feed, failover
    /// of fleet; switch, judging, feedback, cache, queries of learning; selection, mlp, resnet, memory, offline,
    /// parallelism, growth of main-job; exports, published, gain, large of models; pages, install of page; mlp, resnet,
    /// steps, idle of peers; alarms, grid, live, optimal, speed, spikes, steps of pipelines; answers, overhead of
    /// right; core, instructions of controller and scheduler; growth of controller; simulator, agreement, prices of
    /// scheduler; fairness, isolation, memory, restarts, box, restore, hostile, chaos, fuzz, planted, mutants, compose
    /// of trust; clockwork, shapes, weights, windows of worker
    #[arg(long, value_delimiter = ',')]
    parts: Vec<String>,
    /// Seconds of load for each measurement
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Measurements of each server under each load, taken in turns
    #[arg(long, default_value_t = 5)]
    repetitions: usize,
    /// Scheduling policy that `scheduler` and `worker` measure
    #[arg(long, default_value = "sextant")]
    policy: String,
    /// `autoscaling` alone: a fleet of emulated devices that follows a compressed trace, and its simulation
    #[arg(long)]
    live: bool,
    /// How long the trace takes in `--live`, minutes
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Seed of the queries of `--live`
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Applications that `growth` of `main-job` registers
    #[arg(long, default_value_t = 1000)]
    applications: usize,
    /// `learning` alone: a fourth of the feedback, fewer simulated trials, and one engine
    #[arg(long)]
    quick: bool,
    /// Print one JSON object per line instead of a table
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn includes(&self, experiment: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| name == experiment)
    }

    fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|name| name == part)
    }
}

/// Runs the experiments that are asked for.
pub fn run(arguments: &Arguments) -> Result<()> {
    known(
        &arguments.names,
        &[
            "autoscaling",
            "build",
            "controller",
            "fleet",
            "generator",
            "learning",
            "main-job",
            "models",
            "ocr",
            "page",
            "peers",
            "pipelines",
            "right",
            "scheduler",
            "trust",
            "worker",
        ],
        "experiment",
    )?;
    let parts = [
        &build::PARTS[..],
        &autoscaling::PARTS,
        &controller::PARTS,
        &fleet::PARTS,
        &learning::PARTS,
        &main_job::PARTS,
        &models::PARTS,
        &page::PARTS,
        &peers::PARTS,
        &pipelines::PARTS,
        &right::PARTS,
        &scheduler::PARTS,
        &trust::PARTS,
        &worker::PARTS,
    ];
    let parts = parts.concat();
    known(&arguments.parts, &parts, "part")?;
    let mut report = Report::new(arguments.json);
    if arguments.includes("autoscaling") {
        autoscaling::run(arguments, &mut report)?;
    }
    if arguments.includes("build") {
        build::run(arguments, &mut report)?;
    }
    if arguments.includes("controller") {
        controller::run(arguments, &mut report)?;
    }
    if arguments.includes("fleet") {
        fleet::run(arguments, &mut report)?;
    }
    if arguments.includes("generator") {
        generator::run(arguments, &mut report)?;
    }
    if arguments.includes("learning") {
        learning::run(arguments, &mut report)?;
    }
    if arguments.includes("main-job") {
        main_job::run(arguments, &mut report)?;
    }
    if arguments.includes("models") {
        models::run(arguments, &mut report)?;
    }
    // This runs only if it is named, because its packages take a hundred megabytes.
    if arguments.names.iter().any(|name| name == "ocr") {
        ocr::run(arguments, &mut report)?;
    }
    if arguments.includes("page") {
        page::run(arguments, &mut report)?;
    }
    if arguments.includes("peers") {
        peers::run(arguments, &mut report)?;
    }
    if arguments.includes("pipelines") {
        pipelines::run(arguments, &mut report)?;
    }
    if arguments.includes("right") {
        right::run(arguments, &mut report)?;
    }
    if arguments.includes("scheduler") {
        scheduler::run(arguments, &mut report)?;
    }
    if arguments.includes("trust") {
        trust::run(arguments, &mut report)?;
    }
    if arguments.includes("worker") {
        worker::run(arguments, &mut report)?;
    }
    report.finish()
}

fn known(given: &[String], known: &[&str], kind: &str) -> Result<()> {
    match given.iter().find(|name| !known.contains(&name.as_str())) {
        Some(name) => bail!("unknown {kind} `{name}`; there are: {}", known.join(", ")),
        None => Ok(()),
    }
}

/// Builds an example of a package in release and returns its path.
fn example(package: &str, name: &str) -> Result<PathBuf> {
    shell::run(
        shell::command("cargo")
            .args(["build", "--release", "--package", package])
            .args(["--example", name]),
    )?;
    Ok(paths::target("release/examples").join(name))
}

/// The median of some measurements.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        _ if values.is_empty() => f64::NAN,
        0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_halfway_between_two() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = known(&["main".to_owned()], &["main-job"], "experiment").unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown experiment `main`; there are: main-job"
        );
    }
}
