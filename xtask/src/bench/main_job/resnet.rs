//! ResNet-18 under a target of 200 ms, with queries that name the application. The engine decides, so the service must
//! not cost anything.

use anyhow::{Context, Result};
use serde_json::Value;

use super::{cell, figure, flapping_share, warm};
use crate::bench::bed::{Bench, numbers};
use crate::bench::load::{Load, Sample};
use crate::bench::report::Report;
use crate::bench::{example, median};
use crate::shell;

const TARGET_MS: f64 = 200.0;
const PIXELS: usize = 3 * 224 * 224;
/// Seconds that the engine alone gets for each batch size.
const CEILING_SECONDS: &str = "2";

/// Measures the engine alone and the service in turns.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let program = example("xtask", "engine_ceiling")?;
    let server = bench.sextant("resnet18", &[])?;
    bench.register(&server, "resnet18")?;
    warm(&server, "resnet18")?;
    let body = format!(
        r#"{{"application":"resnet18","targets":{{"latency_ms":{TARGET_MS}}},"inputs":[{{"name":"image","shape":[1,3,224,224],"datatype":"FP32","data":[{}]}}]}}"#,
        numbers(PIXELS)
    );
    let file = bench.write("resnet18.json", &body)?;
    let answer = server.ask("/v1/queries", &serde_json::from_str(&body)?)?;
    let variant = answer["variant"].as_str();
    // The variant may have another precision than fp32, which the engine alone runs.
    report.version(
        "ResNet-18 by",
        variant.context("an answer tells its `variant`")?,
    );

    let (mut ceilings, mut samples) = (Vec::new(), Vec::new());
    for _ in 0..bench.arguments.repetitions {
        let ceiling = ceiling(bench, &program)?;
        let load = Load {
            address: server.address,
            path: "/v1/queries",
            body: &file,
            connections: connections(ceiling),
            seconds: bench.arguments.seconds.max(10),
        };
        samples.push(load.run()?);
        ceilings.push(ceiling);
    }
    summarise(&ceilings, &samples, report);
    let load = Load {
        address: server.address,
        path: "/v1/queries",
        body: &file,
        connections: 8,
        seconds: bench.arguments.seconds.max(10),
    };
    report.add(figure(
        "resnet18_flapping_share",
        flapping_share(&server, &load)?,
        "share",
        Some("<= 0.02"),
    ));
    Ok(())
}

/// The number of queries under way that the engine answers in three quarters of the target.
fn connections(rows_per_s: f64) -> usize {
    ((0.75 * TARGET_MS / 1e3 * rows_per_s) as usize).max(1)
}

/// Rows per second of the engine's best batch size and way to use all cores.
fn ceiling(bench: &Bench<'_>, program: &std::path::Path) -> Result<f64> {
    let mut command = shell::command(program);
    command
        .arg(&bench.provisioned.onnxruntime)
        .arg(bench.models.join("resnet18.onnx"))
        .arg(CEILING_SECONDS)
        .arg(std::thread::available_parallelism()?.to_string());
    let output = shell::output(&mut command)?;
    let rates = output.lines().map(|line| {
        let value: Value = serde_json::from_str(line)?;
        value["rows_per_s"]
            .as_f64()
            .context("the engine's benchmark reports `rows_per_s`")
    });
    rates
        .collect::<Result<Vec<f64>>>()
        .map(|rates| rates.into_iter().fold(0.0, f64::max))
}

fn summarise(ceilings: &[f64], samples: &[Sample], report: &mut Report) {
    let middle = |pick: fn(&Sample) -> f64| median(samples.iter().map(pick).collect());
    report.add(cell(
        "engine",
        "resnet18_rps",
        median(ceilings.to_vec()),
        "rps",
    ));
    report.add(cell(
        "sextant",
        "resnet18_rps",
        middle(|sample| sample.per_s),
        "rps",
    ));
    report.add(cell(
        "sextant",
        "resnet18_p99_ms",
        middle(|sample| sample.p99_ms),
        "ms",
    ));
    report.add(cell(
        "sextant",
        "resnet18_refused_ratio",
        middle(|sample| sample.refused),
        "ratio",
    ));
    let ratios = samples
        .iter()
        .zip(ceilings)
        .map(|(sample, ceiling)| sample.per_s / ceiling);
    report.add(figure(
        "resnet18_vs_engine_ratio",
        median(ratios.collect()),
        "ratio",
        Some(">= 0.95"),
    ));
}
