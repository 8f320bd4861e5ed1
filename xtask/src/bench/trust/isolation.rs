//! What `worker.isolation = "process"` adds to a query of the digits-sized MLP: latency over one connection and
//! processor time over many, with and without, in turns. The setting `none` adds nothing.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::figure;
use crate::{
    bench::{
        bed::{Bench, numbers},
        load::Load,
        median,
        report::Report,
    },
    server::Server,
};

/// Connections of the load whose processor time is measured.
const CONNECTIONS: usize = 64;

/// The measurements of all turns, without and with processes.
type TurnTimes = [Vec<f64>; 2];

/// Measures both settings in turns.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let servers = [start(bench, "none")?, start(bench, "process")?];
    let files = [
        question(bench, &servers[0], "none")?,
        question(bench, &servers[1], "process")?,
    ];
    let lone = in_turns(bench, |at| {
        Ok(load(bench, &servers[at], (&files[at], 1)).run()?.p50_ms * 1e3)
    })?;
    let added = lone[1]
        .iter()
        .zip(&lone[0])
        .map(|(with, without)| with - without);
    let added = median(added.collect());
    let [own, other] = lone.map(median);
    report.add(figure("query_p50_us", own, "us", None).of("none"));
    report.add(figure("query_p50_us", other, "us", None).of("process"));
    report.add(figure("isolation_added_p50_us", added, "us", None).of("process"));
    let many = in_turns(bench, |at| {
        load(bench, &servers[at], (&files[at], CONNECTIONS)).cpu_us(&servers[at])
    })?;
    let ratios = many[1]
        .iter()
        .zip(&many[0])
        .map(|(with, without)| with / without);
    let ratio = median(ratios.collect());
    let [own, other] = many.map(median);
    report.add(figure("query_cpu_us", own, "us", None).of("none"));
    report.add(figure("query_cpu_us", other, "us", None).of("process"));
    report.add(figure("isolation_cpu_ratio", ratio, "ratio", None).of("process"));
    Ok(())
}

fn in_turns(bench: &Bench<'_>, measure: impl Fn(usize) -> Result<f64>) -> Result<TurnTimes> {
    let mut both = TurnTimes::default();
    for _ in 0..bench.arguments.repetitions {
        for (at, of) in both.iter_mut().enumerate() {
            of.push(measure(at)?);
        }
    }
    Ok(both)
}

/// A query of the variant in fp32 with the largest batch, as a file. The query names one variant, because each service
/// would choose by its own measurements.
fn question(bench: &Bench<'_>, server: &Server, name: &str) -> Result<PathBuf> {
    let list = server
        .connect()?
        .get("/v1/variants?application=mlp&limit=1000")?;
    let list = list.json()?;
    let variants = list["variants"].as_array().into_iter().flatten();
    let largest = variants
        .filter(|variant| {
            variant["name"]
                .as_str()
                .is_some_and(|it| it.contains("-fp32-"))
        })
        .max_by_key(|variant| variant["max_batch"].as_u64());
    let variant = largest.and_then(|variant| variant["name"].as_str());
    let variant = variant.context("no variant of `mlp` runs in fp32")?;
    let body = format!(
        r#"{{"variant":"{variant}","targets":{{"latency_ms":50}},"inputs":[{{"name":"pixels","shape":[1,64],"datatype":"FP32","data":[{}]}}]}}"#,
        numbers(64)
    );
    bench.write(&format!("isolation-{name}.json"), &body)
}

fn load<'a>(
    bench: &Bench<'_>,
    server: &Server,
    (body, connections): (&'a Path, usize),
) -> Load<'a> {
    Load {
        address: server.address,
        path: "/v1/queries",
        body,
        connections,
        seconds: bench.arguments.seconds,
    }
}

/// A warm service whose models run as `isolation` says.
fn start(bench: &Bench<'_>, isolation: &str) -> Result<Server> {
    let isolated = format!("worker.isolation={isolation}");
    let settings = [
        "variants.engines=ort",
        "variants.max_threads=1",
        "worker.cores=1",
        &isolated,
    ];
    let server = bench.sextant(isolation, &settings)?;
    bench.register(&server, "mlp")?;
    let query = serde_json::json!({"application": "mlp", "inputs": [
        {"name": "pixels", "shape": [1, 64], "datatype": "FP32", "data": vec![0.5; 64]},
    ]});
    server.ask("/v1/queries", &query)?;
    Ok(server)
}
