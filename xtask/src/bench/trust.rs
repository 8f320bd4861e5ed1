//! Figures of fairness and faults: the harm that one application or fault can do to others.

mod campaigns;
mod fairness;
mod isolation;
mod memory;
mod restarts;

use std::process::Command;

use anyhow::Result;

use super::{Arguments, bed::Bench, report::Figure, report::Report};
use crate::{provision, shell};

/// The parts that `--parts` may name.
pub const PARTS: [&str; 12] = [
    "fairness",
    "isolation",
    "memory",
    "restarts",
    "box",
    "restore",
    "hostile",
    "chaos",
    "fuzz",
    "planted",
    "mutants",
    "compose",
];

/// Measures the requested parts.
pub fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    if ["fairness", "isolation", "memory", "restarts"]
        .iter()
        .any(|part| arguments.wants(part))
    {
        measure(arguments, report)?;
    }
    for campaign in &campaigns::CAMPAIGNS {
        if arguments.wants(campaign.part) {
            campaigns::run(campaign, report)?;
        }
    }
    Ok(())
}

/// Measures the parts that need a release build.
fn measure(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let bench = Bench::prepare(arguments, provision::runtime()?, "bench-trust")?;
    let version = shell::output(Command::new(&bench.binary).arg("--version"))?;
    report.version("sextant", version.trim().trim_start_matches("sextant "));
    if arguments.wants("fairness") {
        fairness::run(&bench, report)?;
    }
    if arguments.wants("isolation") {
        isolation::run(&bench, report)?;
    }
    if arguments.wants("memory") {
        memory::run(&bench, report)?;
    }
    if arguments.wants("restarts") {
        restarts::run(&bench, report)?;
    }
    Ok(())
}

/// A figure of this experiment.
fn figure(metric: &str, value: f64, unit: &'static str, goal: Option<&'static str>) -> Figure {
    Figure::new("trust", metric, value, unit, goal)
}
