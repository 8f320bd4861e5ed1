//! What `worker.isolation = "process"` adds to a query of the digits-sized MLP: latency over one connection, processor time
//! over many, with and without, in turns. `none` adds nothing.

use std::path::Path;

use anyhow::Result;

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

/// Of both ways, what each turn has measured.
type TurnTimes = [Vec<f64>; 2];

/// Measures both in turns.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let servers = [start(bench, "none")?, start(bench, "process")?];
    let body = format!(
        r#"{{"application":"mlp","targets":{{"latency_ms":50}},"inputs":[{{"name":"pixels","shape":[1,64],"datatype":"FP32","data":[{}]}}]}}"#,
        numbers(64)
    );
    let file = bench.write("isolation.json", &body)?;
    let lone = in_turns(bench, &servers, |server| {
        Ok(load(bench, server, (&file, 1)).run()?.p50_ms * 1e3)
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
    let many = in_turns(bench, &servers, |server| {
        load(bench, server, (&file, CONNECTIONS)).cpu_us(server)
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

fn in_turns(
    bench: &Bench<'_>,
    servers: &[Server; 2],
    measure: impl Fn(&Server) -> Result<f64>,
) -> Result<TurnTimes> {
    let mut both = TurnTimes::default();
    for _ in 0..bench.arguments.repetitions {
        for (of, server) in both.iter_mut().zip(servers) {
            of.push(measure(server)?);
        }
    }
    Ok(both)
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

/// A service whose models run as `isolation` says, warm.
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
