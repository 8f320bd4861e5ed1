//! The main job's figures: what Sextant adds to a query, and how it stands beside mosec, a bare
//! HTTP server and the engine alone. All ratios are of measurements taken in turns in one run.

mod memory;
mod mlp;
mod resnet;

use std::process::Command;

use anyhow::Result;

use super::bed::Bench;
use super::report::{Figure, Report};
use super::{Arguments, selection};
use crate::{provision, shell};

/// Parts that can be asked for one by one.
pub const PARTS: [&str; 4] = ["selection", "mlp", "resnet", "memory"];

/// Measures everything that is asked for.
pub fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    if arguments.wants("selection") {
        selection::run(report)?;
    }
    if !["mlp", "resnet", "memory"]
        .iter()
        .any(|part| arguments.wants(part))
    {
        return Ok(());
    }
    let bench = Bench::prepare(arguments, provision::runtime()?, "bench")?;
    let version = shell::output(Command::new(&bench.binary).arg("--version"))?;
    report.version("sextant", version.trim().trim_start_matches("sextant "));
    report.version("ONNX Runtime", "1.31.1");
    if arguments.wants("mlp") {
        mlp::run(&bench, report)?;
    }
    if arguments.wants("resnet") {
        resnet::run(&bench, report)?;
    }
    if arguments.wants("memory") {
        memory::run(&bench, report)?;
    }
    Ok(())
}

/// A figure of this experiment.
fn figure(metric: &str, value: f64, unit: &'static str, goal: Option<&'static str>) -> Figure {
    Figure::new("main-job", metric, value, unit, goal)
}

/// A figure that several servers have.
fn cell(cell: &str, metric: &str, value: f64, unit: &'static str) -> Figure {
    figure(metric, value, unit, None).of(cell)
}
