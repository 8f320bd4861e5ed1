//! Single queries that run side by side or on more threads each (SERF, section VI). ResNet-18 runs in batches of one.
//! Queries name the application, at several loads under every policy, or a variant, as a fixed configuration.

use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{cell, figure, warm};
use crate::{
    bench::{
        autoscaling::{
            arrivals::{self, Shape},
            clients::{self, Question, Tally},
        },
        bed::{Bench, numbers},
        median,
        report::Report,
    },
    server::Server,
};

/// Poisson loads, as shares of the rate that is completed with one thread for each query.
const LOADS: [f64; 3] = [0.2, 0.5, 0.8];
/// The policies that choose the threads of a query.
const POLICIES: [&str; 2] = ["off", "serf"];
const MIN_ACCURACY: f64 = 0.8;
/// Shortest time that is measured at once, s.
const LEAST_S: u64 = 20;

/// One way to send the queries.
struct Arm {
    name: String,
    /// Position of its server among the servers.
    server: usize,
    question: Question,
}

/// Measures every way at every load in turns.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let mut servers = Vec::new();
    for policy in POLICIES {
        let setting = format!("dispatcher.schedule.parallelism={policy}");
        let settings = ["variants.max_batch=1", "variants.engines=ort", &setting];
        let server = bench.sextant(&format!("parallelism-{policy}"), &settings)?;
        bench.register(&server, "resnet18")?;
        warm(&server, "resnet18")?;
        servers.push(server);
    }
    // Only with a policy are queries side by side measured.
    let serf = variants(&servers[1])?;
    let most_per_s = most_per_s(&serf)?;
    report.add(figure("parallelism_most_rps", most_per_s, "rps", None));
    let arms = arms(&variants(&servers[0])?);
    for share in LOADS {
        let means = measure(bench, (&servers, &arms), share * most_per_s);
        let of = |fixed: bool| {
            let chosen = arms.iter().zip(&means);
            chosen.filter(move |(arm, _)| arm.name.starts_with("fixed") == fixed)
        };
        let best = of(true)
            .map(|(_, mean)| *mean)
            .fold(f64::INFINITY, f64::min);
        for (arm, mean_ms) in arms.iter().zip(&means) {
            let name = format!("{} at {share}", arm.name);
            report.add(cell(&name, "parallelism_mean_ms", *mean_ms, "ms"));
        }
        for (arm, mean_ms) in of(false) {
            let name = format!("{} at {share}", arm.name);
            let ratio = cell(
                &name,
                "parallelism_over_best_fixed",
                mean_ms / best,
                "ratio",
            );
            report.add(ratio);
        }
    }
    Ok(())
}

/// Mean latency of each way at a load, ms, as the median over the repetitions.
fn measure(bench: &Bench<'_>, (servers, arms): (&[Server], &[Arm]), per_s: f64) -> Vec<f64> {
    let mut means = vec![Vec::new(); arms.len()];
    for turn in 0..bench.arguments.repetitions as u64 {
        let shape = Shape {
            warm_up_s: 0.0,
            measured_s: bench.arguments.seconds.max(LEAST_S) as f64,
            range_rps: [per_s, per_s],
            seed: turn,
        };
        let arrivals = arrivals::arrivals(&[1.0], &shape, &[1.0]);
        for (arm, means) in arms.iter().zip(&mut means) {
            let address = servers[arm.server].address;
            let questions = std::slice::from_ref(&arm.question);
            let tally = clients::run(address, questions, &arrivals, (Instant::now(), 0.0));
            means.push(mean(&tally));
        }
    }
    means.into_iter().map(median).collect()
}

fn mean(tally: &Tally) -> f64 {
    tally.took_ms.iter().sum::<f64>() / tally.took_ms.len() as f64
}

fn arms(variants: &[Value]) -> Vec<Arm> {
    let policies = POLICIES.iter().enumerate().map(|(server, policy)| Arm {
        name: (*policy).to_owned(),
        server,
        question: question(json!({
            "application": "resnet18", "targets": {"min_accuracy": MIN_ACCURACY},
        })),
    });
    let fixed = variants.iter().map(|variant| Arm {
        name: format!("fixed, {} threads", variant["threads"]),
        server: 0,
        question: question(json!({"variant": variant["name"]})),
    });
    policies.chain(fixed).collect()
}

fn question(mut query: Value) -> Question {
    let data = format!("[{}]", numbers(3 * 224 * 224));
    query["inputs"] = json!([{"name": "image", "shape": [1, 3, 224, 224], "datatype": "FP32",
        "data": "DATA"}]);
    Question {
        body: query.to_string().replace("\"DATA\"", &data).into_bytes(),
        target_ms: f64::INFINITY,
    }
}

/// The variants in single precision that differ only in their threads.
fn variants(server: &Server) -> Result<Vec<Value>> {
    let path = "/v1/applications/resnet18/variants";
    let answer = server.connect()?.get(path)?.json()?;
    let variants = answer["variants"]
        .as_array()
        .context("there are variants")?;
    let wanted = |of: &&Value| of["precision"] == "fp32" && of["optimization"] == "all";
    Ok(variants.iter().filter(wanted).cloned().collect())
}

/// Queries a second that are completed with one thread for each.
fn most_per_s(variants: &[Value]) -> Result<f64> {
    let narrow = variants.iter().find(|of| of["threads"] == 1);
    let narrow = narrow.context("a variant has one thread")?;
    let beside = narrow["concurrent"].as_array().and_then(|all| all.last());
    let beside = beside.context("queries side by side were measured")?;
    let number = |name: &str| beside[name].as_f64().context("they have figures");
    Ok(1e3 * number("running")? / number("mean_ms")?)
}
