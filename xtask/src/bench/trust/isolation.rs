//! What `worker.isolation = "process"` adds to a query: the digits-sized MLP over one connection, with and
//! without, in turns. The default, `none`, adds nothing.

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

/// Measures both in turns.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let none = start(bench, "none")?;
    let process = start(bench, "process")?;
    let body = format!(
        r#"{{"application":"mlp","targets":{{"latency_ms":50}},"inputs":[{{"name":"pixels","shape":[1,64],"datatype":"FP32","data":[{}]}}]}}"#,
        numbers(64)
    );
    let file = bench.write("isolation.json", &body)?;
    let (mut p50s, mut added) = ([vec![], vec![]], vec![]);
    for _ in 0..bench.arguments.repetitions {
        let mut pair = [0.0; 2];
        for (at, server) in [&none, &process].into_iter().enumerate() {
            let load = Load {
                address: server.address,
                path: "/v1/queries",
                body: &file,
                connections: 1,
                seconds: bench.arguments.seconds,
            };
            pair[at] = load.run()?.p50_ms * 1e3;
            p50s[at].push(pair[at]);
        }
        added.push(pair[1] - pair[0]);
    }
    let [own, other] = p50s.map(median);
    report.add(figure("query_p50_us", own, "us", None).of("none"));
    report.add(figure("query_p50_us", other, "us", None).of("process"));
    let added = median(added);
    report.add(figure("isolation_added_p50_us", added, "us", None).of("process"));
    Ok(())
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
