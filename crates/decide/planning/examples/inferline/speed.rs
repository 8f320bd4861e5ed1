//! How long estimates and plans take.

use sextant_planning::{
    estimate::estimate,
    plan::{Options, Problem, search},
    profiles::{Error, Set, names},
};

use crate::{Traffic, computed_ms, print, problem, quantile, shipped, traffic};

const TURNS: usize = 7;

pub fn run() -> Result<(), Error> {
    let pipeline = shipped("ec2-2018", "social-media")?;
    let graph = pipeline.graph.most_accurate();
    let hour = Traffic::new(&graph, traffic::constant(150.0, 1.0, 3600.0, 41), 42);
    let sample = Traffic::new(&graph, traffic::constant(150.0, 1.0, 60.0, 43), 44);
    let of = problem(&graph, sample.load(), pipeline.latency_ms);
    let Some(plan) = search(&of, Options::default()).plan else {
        return Ok(());
    };
    let mut times = Vec::new();
    for _ in 0..TURNS {
        let started = computed_ms();
        estimate(&graph, &plan.stations(&graph), hour.load());
        times.push(computed_ms() - started);
    }
    print(
        "inferline-speed",
        "hour-at-150-over-four-steps",
        "estimate_p50_ms",
        quantile(&mut times, 0.5),
    );
    let mut times = Vec::new();
    for set in names() {
        for pipeline in Set::named(set)?.pipelines {
            for variation in [1.0, 4.0] {
                let graph = &pipeline.graph;
                let sample = Traffic::new(graph, traffic::constant(150.0, variation, 60.0, 45), 46);
                let of = Problem {
                    min_accuracy: pipeline.min_accuracy,
                    ..problem(graph, sample.load(), pipeline.latency_ms)
                };
                let started = computed_ms();
                search(&of, Options::default());
                times.push(computed_ms() - started);
            }
        }
    }
    print(
        "inferline-speed",
        "shipped-pipelines",
        "planning_p50_ms",
        quantile(&mut times, 0.5),
    );
    print(
        "inferline-speed",
        "shipped-pipelines",
        "planning_p99_ms",
        quantile(&mut times, 0.99),
    );
    Ok(())
}
