//! The MLP 64-256-256-10 in JSON: the model costs microseconds, so the service around it decides.

use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{cell, figure};
use crate::bench::bed::{Bench, numbers};
use crate::bench::load::{Load, Sample};
use crate::bench::report::Report;
use crate::bench::{example, median};
use crate::provision::python;
use crate::server::{self, Server};
use crate::shell;

const VARIANT: &str = "mlp-ort-fp32-all-t1-b32";
const MOSEC: &str = include_str!("../../../bench/requirements-mosec.txt");
/// What serves mosec best under both loads; with 2 ms it answers a quarter less at 64 connections.
const MOSEC_WAIT_MS: &str = "1";
/// Queries whose added latency is measured, after as many to warm up.
const QUERIES: usize = 5_000;

struct Contestant {
    name: &'static str,
    server: Server,
    path: &'static str,
    one: Vec<Sample>,
    many: Vec<Sample>,
}

/// Measures Sextant, mosec and the floor in turns.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let body = format!(
        r#"{{"variant":"{VARIANT}","inputs":[{{"name":"pixels","shape":[1,64],"datatype":"FP32","data":[{}]}}]}}"#,
        numbers(64)
    );
    let file = bench.write("mlp.json", &body)?;
    let mut contestants = [sextant(bench)?, mosec(bench, report)?, floor()?];
    for contestant in &contestants {
        let answer = contestant
            .server
            .ask(contestant.path, &serde_json::from_str(&body)?);
        answer.with_context(|| format!("{} does not answer", contestant.name))?;
    }
    report.add(figure(
        "added_latency_p50_us",
        added_latency_us(&contestants[0].server, body.as_bytes())?,
        "us",
        Some("<= 150"),
    ));
    for _ in 0..bench.arguments.repetitions {
        for contestant in &mut contestants {
            let load = |connections| Load {
                address: contestant.server.address,
                path: contestant.path,
                body: &file,
                connections,
                seconds: bench.arguments.seconds,
            };
            contestant.one.push(load(1).run()?);
            contestant.many.push(load(64).run()?);
        }
    }
    summarise(&contestants, report);
    Ok(())
}

fn summarise(contestants: &[Contestant; 3], report: &mut Report) {
    for contestant in contestants {
        for (load, samples) in [("c1", &contestant.one), ("c64", &contestant.many)] {
            let middle = |pick: fn(&Sample) -> f64| median(samples.iter().map(pick).collect());
            let name = contestant.name;
            let metric = |what: &str| format!("mlp_json_{load}_{what}");
            report.add(cell(
                name,
                &metric("rps"),
                middle(|sample| sample.per_s),
                "rps",
            ));
            report.add(cell(
                name,
                &metric("median_ms"),
                middle(|sample| sample.p50_ms),
                "ms",
            ));
            report.add(cell(
                name,
                &metric("p99_ms"),
                middle(|sample| sample.p99_ms),
                "ms",
            ));
        }
    }
    let [sextant, mosec, floor] = contestants;
    let p50_ms = median(sextant.one.iter().map(|sample| sample.p50_ms).collect());
    report.add(figure("mlp_json_c1_p50_ms", p50_ms, "ms", Some("<= 0.3")));
    let vs_mosec = ratio(sextant, mosec);
    report.add(figure(
        "mlp_json_c64_vs_mosec_ratio",
        vs_mosec,
        "ratio",
        Some(">= 2"),
    ));
    let vs_floor = ratio(sextant, floor);
    report.add(figure(
        "mlp_json_c64_vs_floor_ratio",
        vs_floor,
        "ratio",
        Some(">= 0.55"),
    ));
}

/// Median of the ratios of neighbouring measurements at 64 connections.
fn ratio(one: &Contestant, other: &Contestant) -> f64 {
    median(
        one.many
            .iter()
            .zip(&other.many)
            .map(|(a, b)| a.per_s / b.per_s)
            .collect(),
    )
}

fn contestant(name: &'static str, server: Server, path: &'static str) -> Contestant {
    Contestant {
        name,
        server,
        path,
        one: Vec::new(),
        many: Vec::new(),
    }
}

fn sextant(bench: &Bench<'_>) -> Result<Contestant> {
    let settings = [
        "worker.cores=1",
        "variants.engines=ort",
        "variants.max_threads=1",
        "variants.max_batch=32",
    ];
    let server = bench.sextant("mlp", &settings)?;
    bench.register(&server, "mlp")?;
    Ok(contestant("sextant", server, "/v1/queries"))
}

fn mosec(bench: &Bench<'_>, report: &mut Report) -> Result<Contestant> {
    let folder = bench.provisioned.cache.join("mosec");
    let interpreter = python::environment(&folder, MOSEC)?;
    report.version("mosec", python::version(&interpreter, "mosec")?);
    let address = server::free_address()?;
    let mut command = python::script(&interpreter, "bench/mosec_server.py");
    command
        .args([
            "--address",
            "127.0.0.1",
            "--port",
            &address.port().to_string(),
        ])
        .args(["--log-level", "warning"])
        .env("MODEL", bench.models.join("mlp.onnx"))
        .env("WAIT_MS", MOSEC_WAIT_MS);
    let server = Server::start("mosec", command, address, "/")?;
    Ok(contestant("mosec", server, "/inference"))
}

fn floor() -> Result<Contestant> {
    let address = server::free_address()?;
    let mut command = shell::command(example("xtask", "floor")?);
    command.arg(address.to_string());
    let server = Server::start("the axum floor", command, address, "/health/ready")?;
    Ok(contestant("floor", server, "/v1/queries"))
}

/// Median over queries, one after the other, of the client's time less the engine's.
fn added_latency_us(server: &Server, body: &[u8]) -> Result<f64> {
    let mut connection = server.connect()?;
    let mut added = Vec::with_capacity(QUERIES);
    for query in 0..2 * QUERIES {
        let started = Instant::now();
        let response = connection.send("POST", "/v1/queries", "application/json", body)?;
        let total_us = started.elapsed().as_secs_f64() * 1e6;
        if query < QUERIES {
            continue;
        }
        let answer: Value = response.json()?;
        let compute_us = answer["timings"]["compute_us"].as_f64();
        added.push(total_us - compute_us.context("an answer tells its `compute_us`")?);
    }
    Ok(median(added))
}
