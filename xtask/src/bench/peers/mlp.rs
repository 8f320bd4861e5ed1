//! The MLP 64-256-256-10 in JSON: the model costs microseconds, so the service around it decides.

use anyhow::Result;

use super::contestants::{self, Model};
use super::{Series, figure, in_turns, tell};
use crate::bench::bed::Bench;
use crate::bench::load::Sample;
use crate::bench::report::Report;

const MLP: Model = Model {
    name: "mlp",
    input: "pixels",
    row: &[64],
    latency_ms: 50.0,
};

/// Measures all of them at 1 and 64 connections.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let mut contestants = contestants::start(bench, report, MLP)?;
    contestants.push(contestants::floor(&contestants[0].body)?);
    let all = in_turns(bench, &contestants, &[1, 64])?;
    tell(report, "mlp_json", &contestants, &all);
    let [ours, peers @ .., floor] = all.as_slice() else {
        return Ok(());
    };
    // Against the quickest of the others.
    let worst =
        |of: &dyn Fn(&[Series]) -> f64| peers.iter().map(|peer| of(peer)).fold(0.0, f64::max);
    let p50: fn(&Sample) -> f64 = |sample| sample.p50_ms;
    let rps: fn(&Sample) -> f64 = |sample| sample.per_s;
    let slowest = worst(&|peer| ours[0].over(&peer[0], p50));
    report.add(figure(
        "mlp_json_c1_p50_vs_best_peer_ratio",
        slowest,
        "ratio",
        Some("<= 1"),
    ));
    let best = 1.0 / worst(&|peer| peer[1].over(&ours[1], rps));
    report.add(figure(
        "mlp_json_c64_vs_best_peer_ratio",
        best,
        "ratio",
        None,
    ));
    let mosec = contestants.iter().position(|of| of.name == "mosec");
    if let Some(mosec) = mosec {
        let ratio = ours[1].over(&all[mosec][1], rps);
        report.add(figure(
            "mlp_json_c64_vs_mosec_ratio",
            ratio,
            "ratio",
            Some(">= 3"),
        ));
    }
    let ratio = ours[1].over(&floor[1], rps);
    report.add(figure(
        "mlp_json_c64_vs_floor_ratio",
        ratio,
        "ratio",
        Some(">= 0.70"),
    ));
    Ok(())
}
