//! The main job's figures: what Sextant adds to a query, and how it compares with mosec, a bare HTTP server and the
//! engine alone. All ratios are of measurements taken in turns in one run.

mod growth;
mod memory;
mod mlp;
mod offline;
mod parallelism;
mod resnet;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::bed::Bench;
use super::load::Load;
use super::report::{Figure, Report};
use super::{Arguments, selection};
use crate::server::Server;
use crate::{provision, shell};

/// The parts that `--parts` may name.
pub const PARTS: [&str; 7] = [
    "selection",
    "mlp",
    "resnet",
    "memory",
    "offline",
    "parallelism",
    "growth",
];

/// Measures the requested parts.
pub fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    if arguments.wants("selection") {
        selection::run(report)?;
    }
    if !PARTS[1..].iter().any(|part| arguments.wants(part)) {
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
    if arguments.wants("offline") {
        offline::run(&bench, report)?;
    }
    if arguments.wants("parallelism") {
        parallelism::run(&bench, report)?;
    }
    if arguments.wants("growth") {
        growth::run(&bench, report)?;
    }
    Ok(())
}

/// A figure of this experiment.
fn figure(metric: &str, value: f64, unit: &'static str, goal: Option<&'static str>) -> Figure {
    Figure::new("main-job", metric, value, unit, goal)
}

/// A figure that several servers have; the cell names the server.
fn cell(cell: &str, metric: &str, value: f64, unit: &'static str) -> Figure {
    figure(metric, value, unit, None).of(cell)
}

/// Longest wait until all variants that should be loaded are loaded.
const WARM: Duration = Duration::from_secs(60);

/// Waits until every variant of an application that no other dominates is loaded. From then on the cheapest variant
/// that meets the targets answers.
pub(super) fn warm(server: &Server, application: &str) -> Result<()> {
    let path = format!("/v1/applications/{application}/variants");
    let deadline = Instant::now() + WARM;
    loop {
        let answer = server.connect()?.get(&path)?.json()?;
        let variants = answer["variants"].as_array();
        let variants = variants.context("there are variants")?;
        let mut frontier = variants.iter().filter(|of| of["dominated_by"].is_null());
        let is_loaded = |instances: &serde_json::Value| {
            let instances = instances.as_array();
            instances.is_some_and(|all| all.iter().any(|of| of["state"] == "active"))
        };
        if frontier.all(|of| is_loaded(&of["instances"])) {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("the variants of `{application}` were not loaded within {WARM:?}");
        }
        shell::pause(Duration::from_millis(50));
    }
}

/// The share of a load's queries that another variant answered than the one that answered most.
fn flapping_share(server: &Server, load: &Load<'_>) -> Result<f64> {
    let before = answered(server)?;
    load.run()?;
    let mut answered = answered(server)?;
    for (variant, count) in &mut answered {
        *count -= before.get(variant).copied().unwrap_or(0.0);
    }
    let all: f64 = answered.values().sum();
    let most = answered.values().copied().fold(0.0, f64::max);
    Ok(1.0 - most / all)
}

/// Queries answered up to now, by variant.
fn answered(server: &Server) -> Result<BTreeMap<String, f64>> {
    let metrics = server.connect()?.get("/metrics")?;
    let metrics = String::from_utf8(metrics.body)?;
    let counted = metrics.lines().filter_map(|line| {
        let (labels, count) = line
            .strip_prefix("sextant_queries_total{")?
            .split_once("} ")?;
        let (_, variant) = labels.split_once("variant=\"")?;
        Some((variant.trim_end_matches('"').to_owned(), count))
    });
    counted
        .map(|(variant, count)| Ok((variant, count.parse()?)))
        .collect()
}
