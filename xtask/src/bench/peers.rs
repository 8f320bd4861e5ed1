//! Compares Sextant with other model servers: the same ONNX file on one thread of ONNX Runtime, the load from the same
//! cores, all servers measured in turns in one run.
//!
//! Sextant gets queries as applications send them, by application and target. The other servers have their best known
//! setting, chosen by hand. A server that cannot be installed is left out, and the output says so.

pub mod contestants;
mod idle;
mod mlp;
mod resnet;
mod steps;

use anyhow::Result;

use super::Arguments;
use super::bed::Bench;
use super::load::Sample;
use super::median;
use super::report::{Figure, Report};
use crate::{provision, shell};

/// The parts that `--parts` may name.
pub const PARTS: [&str; 4] = ["mlp", "resnet", "steps", "idle"];

/// Fewest measurements of each server under each load.
const REPETITIONS: usize = 6;

/// Measures the requested parts.
pub fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    if !PARTS.iter().any(|part| arguments.wants(part)) {
        return Ok(());
    }
    let bench = Bench::prepare(arguments, provision::runtime()?, "peers")?;
    let version = shell::output(std::process::Command::new(&bench.binary).arg("--version"))?;
    report.version("sextant", version.trim().trim_start_matches("sextant "));
    if arguments.wants("mlp") {
        mlp::run(&bench, report)?;
    }
    if arguments.wants("resnet") {
        resnet::run(&bench, report)?;
    }
    if arguments.wants("steps") {
        steps::run(&bench, report)?;
    }
    if arguments.wants("idle") {
        idle::run(&bench, report)?;
    }
    Ok(())
}

/// A figure of this experiment.
fn figure(metric: &str, value: f64, unit: &'static str, goal: Option<&'static str>) -> Figure {
    Figure::new("peers", metric, value, unit, goal)
}

/// The samples of one server under one number of connections.
struct Series {
    connections: usize,
    samples: Vec<Sample>,
}

/// Measures all contestants in turns under each number of connections. The result has the order of both.
fn in_turns(
    bench: &Bench<'_>,
    contestants: &[contestants::Contestant],
    connections: &[usize],
) -> Result<Vec<Vec<Series>>> {
    let empty = || {
        let series = |&connections| Series {
            connections,
            samples: Vec::new(),
        };
        connections.iter().map(series).collect::<Vec<_>>()
    };
    let mut all: Vec<Vec<Series>> = contestants.iter().map(|_| empty()).collect();
    for _ in 0..bench.arguments.repetitions.max(REPETITIONS) {
        for (contestant, of) in contestants.iter().zip(&mut all) {
            for series in of {
                series
                    .samples
                    .push(contestant.load(bench, series.connections)?);
            }
        }
    }
    Ok(all)
}

impl Series {
    /// Median over the turns.
    fn middle(&self, pick: fn(&Sample) -> f64) -> f64 {
        median(self.samples.iter().map(pick).collect())
    }

    /// Median of the ratios of neighbouring measurements.
    fn over(&self, other: &Self, pick: fn(&Sample) -> f64) -> f64 {
        let pairs = self.samples.iter().zip(&other.samples);
        median(pairs.map(|(a, b)| pick(a) / pick(b)).collect())
    }
}

/// Adds the figures of every server under a load.
fn tell(
    report: &mut Report,
    model: &str,
    contestants: &[contestants::Contestant],
    all: &[Vec<Series>],
) {
    for (contestant, of) in contestants.iter().zip(all) {
        for series in of {
            let load = series.connections;
            for (what, value, unit) in [
                ("rps", series.middle(|sample| sample.per_s), "rps"),
                ("p50_ms", series.middle(|sample| sample.p50_ms), "ms"),
                ("p99_ms", series.middle(|sample| sample.p99_ms), "ms"),
                (
                    "refused_ratio",
                    series.middle(|sample| sample.refused),
                    "ratio",
                ),
            ] {
                let metric = format!("{model}_c{load}_{what}");
                report.add(figure(&metric, value, unit, None).of(contestant.name));
            }
        }
    }
}
