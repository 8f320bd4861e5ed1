//! The MLP 64-256-256-10 in JSON: the model costs microseconds, so the service around it decides.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{cell, figure, flapping_share, warm};
use crate::bench::bed::{Bench, numbers};
use crate::bench::load::{Load, Sample};
use crate::bench::report::Report;
use crate::bench::{example, median};
use crate::provision::python;
use crate::server::{self, Server};
use crate::shell;

/// The targets of the application. Mosec runs the file as it is, so no less accurate variant may answer here.
const TARGETS: &str = r#","targets":{"latency_ms":50,"min_relative_accuracy":0.99}"#;
const MOSEC: &str = include_str!("../../../bench/peers/requirements-mosec.txt");
/// The wait that serves mosec best under both loads; with 2 ms it answers a quarter less at 64 connections.
const MOSEC_WAIT_MS: &str = "1";
/// Queries whose added latency is measured, after the same number that warm up.
const QUERIES: usize = 5_000;

/// A server under a kind of query.
struct Contestant {
    name: &'static str,
    server: Rc<Server>,
    path: &'static str,
    body: PathBuf,
    one: Vec<Sample>,
    many: Vec<Sample>,
}

/// Measures Sextant in its default configuration, mosec and the floor in turns. Sextant gets queries as applications
/// send them, with a target and without, and queries for one variant by its name.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let sextant = Rc::new(bench.sextant("mlp", &[])?);
    bench.register(&sextant, "mlp")?;
    let body = |addressee: &str| {
        let pixels = numbers(64);
        format!(
            r#"{{{addressee},"inputs":[{{"name":"pixels","shape":[1,64],"datatype":"FP32","data":[{pixels}]}}]}}"#
        )
    };
    let asked = body(&format!(r#""application":"mlp"{TARGETS}"#));
    warm(&sextant, "mlp")?;
    let answer = sextant.ask("/v1/queries", &serde_json::from_str(&asked)?)?;
    let variant = answer["variant"].as_str();
    let variant = variant.context("an answer tells its `variant`")?;
    report.version("mlp by", variant);
    let ways = [
        ("sextant", "mlp.json", asked.clone()),
        (
            "sextant-no-target",
            "mlp-no-target.json",
            body(r#""application":"mlp""#),
        ),
        (
            "sextant-by-variant",
            "mlp-by-variant.json",
            body(&format!(r#""variant":"{variant}""#)),
        ),
    ];
    let mut contestants = Vec::new();
    for (name, file, body) in ways {
        let file = bench.write(file, &body)?;
        contestants.push(contestant(name, &sextant, "/v1/queries", &file));
    }
    let file = contestants[0].body.clone();
    contestants.push(mosec(bench, report, &file)?);
    contestants.push(floor(&file)?);
    for contestant in &contestants {
        let body = serde_json::from_slice(&std::fs::read(&contestant.body)?)?;
        let answer = contestant.server.ask(contestant.path, &body);
        answer.with_context(|| format!("{} does not answer", contestant.name))?;
    }
    report.add(figure(
        "added_latency_p50_us",
        added_latency_us(&sextant, asked.as_bytes())?,
        "us",
        Some("<= 130"),
    ));
    for _ in 0..bench.arguments.repetitions {
        for contestant in &mut contestants {
            let load = |connections| Load {
                address: contestant.server.address,
                path: contestant.path,
                body: &contestant.body,
                connections,
                seconds: bench.arguments.seconds,
            };
            contestant.one.push(load(1).run()?);
            contestant.many.push(load(64).run()?);
        }
    }
    summarise(&contestants, report);
    let load = Load {
        address: sextant.address,
        path: "/v1/queries",
        body: &file,
        connections: 8,
        seconds: 3 * bench.arguments.seconds,
    };
    report.add(figure(
        "mlp_flapping_share",
        flapping_share(&sextant, &load)?,
        "share",
        Some("<= 0.02"),
    ));
    Ok(())
}

fn summarise(contestants: &[Contestant], report: &mut Report) {
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
    let [ours @ .., mosec, floor] = contestants else {
        return;
    };
    for (contestant, goals) in ours.iter().zip([true, false, false]) {
        let goal = |goal| goals.then_some(goal);
        let one = contestant.one.iter().map(|sample| sample.p50_ms).collect();
        for (metric, value, unit, goal) in [
            ("mlp_json_c1_p50_ms", median(one), "ms", goal("<= 0.15")),
            (
                "mlp_json_c64_vs_mosec_ratio",
                ratio(contestant, mosec),
                "ratio",
                goal(">= 2"),
            ),
            (
                "mlp_json_c64_vs_floor_ratio",
                ratio(contestant, floor),
                "ratio",
                goal(">= 0.65"),
            ),
        ] {
            let figure = figure(metric, value, unit, goal);
            report.add(match goals {
                true => figure,
                false => figure.of(contestant.name),
            });
        }
    }
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

fn contestant(
    name: &'static str,
    server: &Rc<Server>,
    path: &'static str,
    body: &Path,
) -> Contestant {
    Contestant {
        name,
        server: Rc::clone(server),
        path,
        body: body.to_owned(),
        one: Vec::new(),
        many: Vec::new(),
    }
}

fn mosec(bench: &Bench<'_>, report: &mut Report, body: &Path) -> Result<Contestant> {
    let folder = bench.provisioned.cache.join("peers/mosec");
    let interpreter = python::environment(&folder, MOSEC)?;
    report.version("mosec", python::version(&interpreter, "mosec")?);
    let address = server::free_address()?;
    let mut command = python::script(&interpreter, "bench/peers/mosec_server.py");
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
    Ok(contestant("mosec", &Rc::new(server), "/inference", body))
}

fn floor(body: &Path) -> Result<Contestant> {
    let address = server::free_address()?;
    let mut command = shell::command(example("xtask", "floor")?);
    command.arg(address.to_string());
    let server = Server::start("the axum floor", command, address, "/health/ready")?;
    Ok(contestant("floor", &Rc::new(server), "/v1/queries", body))
}

/// The client's time less the engine's, as the median over queries that are sent one after the other.
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
