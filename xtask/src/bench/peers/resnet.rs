//! ResNet-18 for images of 3x64x64 in JSON: the engine and the fill of its batches decide.

use anyhow::Result;

use super::contestants::{self, Model};
use super::{figure, in_turns, tell};
use crate::bench::bed::Bench;
use crate::bench::report::Report;
use crate::models;

/// The model.
pub const RESNET: Model = Model {
    name: "resnet18_small",
    input: "image",
    row: &[3, 64, 64],
    latency_ms: 2000.0,
};

/// Measures all servers at 16 and 64 connections.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    models::write(&bench.provisioned.python, &[RESNET.name])?;
    let contestants = contestants::start(bench, report, RESNET)?;
    let all = in_turns(bench, &contestants, &[16, 64])?;
    tell(report, "resnet18_64px", &contestants, &all);
    let [ours, peers @ ..] = all.as_slice() else {
        return Ok(());
    };
    let ratios = peers.iter();
    let ratios = ratios.map(|peer| ours[1].over(&peer[1], |sample| sample.p99_ms));
    report.add(figure(
        "resnet18_64px_c64_p99_vs_best_peer_ratio",
        ratios.fold(0.0, f64::max),
        "ratio",
        Some("< 1"),
    ));
    let ratios = peers.iter();
    let ratios = ratios.map(|peer| peer[1].over(&ours[1], |sample| sample.per_s));
    report.add(figure(
        "resnet18_64px_c64_vs_best_peer_ratio",
        1.0 / ratios.fold(0.0, f64::max),
        "ratio",
        None,
    ));
    Ok(())
}
