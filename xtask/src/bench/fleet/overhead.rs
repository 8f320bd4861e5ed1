//! A fleet compared with one process under the same loads, in turns.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;

use super::figure;
use super::members::{Fleet, alone};
use crate::bench::bed::{Bench, numbers};
use crate::bench::load::{Load, Sample};
use crate::bench::main_job::warm;
use crate::bench::median;
use crate::bench::report::Report;

/// A model and the contents of its queries.
struct Subject {
    name: &'static str,
    /// The targets of its queries, with which one variant answers all of them.
    targets: &'static str,
    input: &'static str,
    shape: &'static str,
    values: usize,
    /// The most that a fleet may add to the median latency of one connection, as the report shows it.
    added_goal: &'static str,
    /// Connections of the load under which the throughput is compared.
    connections: usize,
}

const SUBJECTS: [Subject; 2] = [
    Subject {
        name: "mlp",
        targets: r#"{"latency_ms":50,"min_accuracy":0.99}"#,
        input: "pixels",
        shape: "[1,64]",
        values: 64,
        added_goal: "<= 0.3",
        connections: 64,
    },
    Subject {
        name: "resnet18",
        targets: r#"{"latency_ms":2000,"min_accuracy":0.85}"#,
        input: "image",
        shape: "[1,3,224,224]",
        values: 3 * 224 * 224,
        added_goal: "<= 0.6",
        connections: 8,
    },
];

/// Measures the loads of every subject.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let alone = alone(bench)?;
    let mut fleet = Fleet::start(bench)?;
    fleet.spawn(bench, "worker-1", "worker")?;
    for subject in &SUBJECTS {
        let query = format!(
            r#"{{"application":"{}","targets":{},"inputs":[{{"name":"{}","shape":{},"datatype":"FP32","data":[{}]}}]}}"#,
            subject.name,
            subject.targets,
            subject.input,
            subject.shape,
            numbers(subject.values)
        );
        let body = bench.write(&format!("{}.json", subject.name), &query)?;
        let mut answering = Vec::new();
        for server in [&alone, fleet.api()?] {
            bench.register(server, subject.name)?;
            warm(server, subject.name)?;
            let answer = server.ask("/v1/queries", &serde_json::from_str(&query)?)?;
            answering.push(answer["variant"].to_string());
        }
        if answering[0] != answering[1] {
            eprintln!("{answering:?} answer: the ratio is that of two variants, too");
        }
        let addresses = [alone.address, fleet.api()?.address];
        measure(bench, subject, addresses, &body, report)?;
    }
    Ok(())
}

fn measure(
    bench: &Bench<'_>,
    subject: &Subject,
    addresses: [SocketAddr; 2],
    body: &Path,
    report: &mut Report,
) -> Result<()> {
    let mut one: [Vec<Sample>; 2] = Default::default();
    let mut many: [Vec<Sample>; 2] = Default::default();
    for _ in 0..bench.arguments.repetitions {
        for (at, address) in addresses.into_iter().enumerate() {
            let load = |connections| Load {
                address,
                path: "/v1/queries",
                body,
                connections,
                seconds: bench.arguments.seconds,
            };
            one[at].push(load(1).run()?);
            many[at].push(load(subject.connections).run()?);
        }
    }
    let name = subject.name;
    for (at, service) in ["one process", "fleet"].into_iter().enumerate() {
        let middle = |samples: &[Sample], pick: fn(&Sample) -> f64| {
            median(samples.iter().map(pick).collect())
        };
        let place = format!("{name}/{service}");
        let p50_ms = middle(&one[at], |sample| sample.p50_ms);
        report.add(figure("c1_p50_ms", p50_ms, "ms", None).of(&place));
        let per_s = middle(&many[at], |sample| sample.per_s);
        report.add(figure("loaded_rps", per_s, "rps", None).of(&place));
        let p99_ms = middle(&many[at], |sample| sample.p99_ms);
        report.add(figure("loaded_p99_ms", p99_ms, "ms", None).of(&place));
    }
    let pairs = |samples: &[Vec<Sample>; 2], compare: fn(&Sample, &Sample) -> f64| {
        let [alone, fleet] = samples;
        median(
            alone
                .iter()
                .zip(fleet)
                .map(|(a, f)| compare(a, f))
                .collect(),
        )
    };
    let added_ms = pairs(&one, |alone, fleet| fleet.p50_ms - alone.p50_ms);
    let ratio = pairs(&many, |alone, fleet| fleet.per_s / alone.per_s);
    report.add(
        figure(
            "fleet_added_p50_ms",
            added_ms,
            "ms",
            Some(subject.added_goal),
        )
        .of(name),
    );
    report.add(figure("fleet_throughput_ratio", ratio, "ratio", Some(">= 0.7")).of(name));
    Ok(())
}
