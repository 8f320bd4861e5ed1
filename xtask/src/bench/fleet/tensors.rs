//! The two ways of a query's tensors: through the dispatcher, and directly between front end and worker.

use anyhow::Result;

use super::figure;
use super::members::Fleet;
use crate::bench::bed::{Bench, numbers};
use crate::bench::load::{Load, Sample};
use crate::bench::main_job::warm;
use crate::bench::median;
use crate::bench::report::Report;
use crate::models;

/// Elements of a query, FP32: 1 KB, 16 KB, 64 KB and 600 KB.
const SIZES: [usize; 4] = [256, 4_096, 16_384, 153_600];

/// Front ends that differ only in the way of tensors, with the setting of that way.
const WAYS: [(&str, &str); 2] = [
    ("straight", "fleet.inline_bytes=0"),
    ("inline", "fleet.inline_bytes=16777216"),
];

/// Measures each size in each way, in turns, with the same dispatcher and worker.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let mut fleet = Fleet::start(bench)?;
    fleet.spawn(bench, "worker-1", "worker")?;
    for (name, setting) in WAYS {
        fleet.spawn_at(bench, name, "api", (None, &[setting]))?;
    }
    for elements in SIZES {
        let name = format!("wide{elements}");
        models::write(&bench.provisioned.python, &[&name])?;
        bench.register(fleet.api()?, &name)?;
        warm(fleet.api()?, &name)?;
        let data = numbers(elements);
        let query = format!(
            r#"{{"application":"{name}","targets":{{"latency_ms":2000}},"inputs":[{{"name":"values","shape":[1,{elements}],"datatype":"FP32","data":[{data}]}}]}}"#
        );
        let body = bench.write(&format!("{name}.json"), &query)?;
        let mut one: [Vec<Sample>; 2] = Default::default();
        let mut many: [Vec<Sample>; 2] = Default::default();
        for _ in 0..bench.arguments.repetitions {
            for (at, (way, _)) in WAYS.into_iter().enumerate() {
                let load = |connections| -> Result<Sample> {
                    let load = Load {
                        address: fleet.member(way)?.address,
                        path: "/v1/queries",
                        body: &body,
                        connections,
                        seconds: bench.arguments.seconds,
                    };
                    load.run()
                };
                one[at].push(load(1)?);
                many[at].push(load(32)?);
            }
        }
        for (at, (way, _)) in WAYS.into_iter().enumerate() {
            let middle = |samples: &[Sample], pick: fn(&Sample) -> f64| {
                median(samples.iter().map(pick).collect())
            };
            let place = format!("{} KB/{way}", elements * 4 / 1024);
            let p50_ms = middle(&one[at], |sample| sample.p50_ms);
            report.add(figure("tensors_c1_p50_ms", p50_ms, "ms", None).of(&place));
            let per_s = middle(&many[at], |sample| sample.per_s);
            report.add(figure("tensors_c32_rps", per_s, "rps", None).of(&place));
        }
    }
    Ok(())
}
