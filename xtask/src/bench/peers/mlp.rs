//! The MLP 64-256-256-10 in JSON: the model costs microseconds, so the service around it decides.

use anyhow::Result;

use super::contestants::{self, Contestant, Model};
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

/// Measures all servers at 1 and 64 connections.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let mut contestants = contestants::start(bench, report, MLP)?;
    contestants.push(contestants::floor(&contestants[0].body)?);
    let all = in_turns(bench, &contestants, &[1, 64])?;
    tell(report, "mlp_json", &contestants, &all);
    compare(&contestants, &all, report);
    let [ours, .., floor] = contestants.as_slice() else {
        return Ok(());
    };
    let binary = contestants::binary(bench, MLP, [ours, floor])?;
    let grpc = contestants::grpc(bench, MLP, ours)?;
    for (way, goal, pair) in [("binary", ">= 0.65", binary), ("grpc", ">= 0.6", grpc)] {
        let all = in_turns(bench, &pair, &[1, 64])?;
        tell(report, &format!("mlp_{way}"), &pair, &all);
        let ratio = all[0][1].over(&all[1][1], |sample| sample.per_s);
        let metric = format!("mlp_{way}_c64_vs_floor_ratio");
        report.add(figure(&metric, ratio, "ratio", Some(goal)));
    }
    Ok(())
}

/// Adds the ratios between Sextant and the others. The first of `all` is Sextant, the last is the floor.
fn compare(contestants: &[Contestant], all: &[Vec<Series>], report: &mut Report) {
    let [ours, peers @ .., floor] = all else {
        return;
    };
    // The ratios are those against the quickest of the others.
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
}
