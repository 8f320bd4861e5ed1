//! A fleet beside one process, under the same loads, in turns.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;

use super::members::{Fleet, alone, register};
use super::{Bench, cell, figure};
use crate::bench::load::{Load, Sample};
use crate::bench::main_job::numbers;
use crate::bench::median;
use crate::bench::report::Report;

/// A model with what one of its queries carries.
struct Subject {
    name: &'static str,
    variant: &'static str,
    input: &'static str,
    shape: &'static str,
    values: usize,
    /// Connections of the load under which the throughput is compared.
    connections: usize,
}

const SUBJECTS: [Subject; 2] = [
    Subject {
        name: "mlp",
        variant: "mlp-ort-fp32-all-t1-b32",
        input: "pixels",
        shape: "[1,64]",
        values: 64,
        connections: 64,
    },
    Subject {
        name: "resnet18",
        variant: "resnet18-ort-fp32-all-t1-b32",
        input: "image",
        shape: "[1,3,224,224]",
        values: 3 * 224 * 224,
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
            r#"{{"variant":"{}","inputs":[{{"name":"{}","shape":{},"datatype":"FP32","data":[{}]}}]}}"#,
            subject.variant,
            subject.input,
            subject.shape,
            numbers(subject.values)
        );
        let body = bench.folder.join(format!("{}.json", subject.name));
        std::fs::write(&body, &query)?;
        for server in [&alone, fleet.api()?] {
            register(bench, server.address, subject.name)?;
            server.ask("/v1/queries", &serde_json::from_str(&query)?)?;
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
        report.add(cell(&place, "c1_p50_ms", p50_ms, "ms"));
        let per_s = middle(&many[at], |sample| sample.per_s);
        report.add(cell(&place, "loaded_rps", per_s, "rps"));
        let p99_ms = middle(&many[at], |sample| sample.p99_ms);
        report.add(cell(&place, "loaded_p99_ms", p99_ms, "ms"));
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
    let mut added = figure("fleet_added_p50_ms", added_ms, "ms", Some("<= 0.4"));
    let mut kept = figure("fleet_throughput_ratio", ratio, "ratio", Some(">= 0.7"));
    (added.cell, kept.cell) = (Some(name.to_owned()), Some(name.to_owned()));
    report.add(added);
    report.add(kept);
    Ok(())
}
