//! Simulates the goodput of pipelines under overload for each rule that gives queries up:
//! `cargo run --release --package sextant-lab --example dropping`.
//!
//! Three pipelines run on a fixed number of devices: a chain of four steps, a tree of which each query takes one of two
//! branches, and a fan-out of five rows a query. Loads are multiples of the rate that the fullest step can serve. Each
//! rule runs under our scheduler and under the eager one, and the better result counts.

use std::io::{self, Write};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sextant_baselines::{Options, Policy as Scheduler};
use sextant_planning::{
    Choice, Graph, Routes, Scale, Step,
    dropping::Policy,
    estimate::Load,
    plan::{Plan, StepPlan},
};
use sextant_schedule::{LatencyTable, Nanos};
use sextant_simulator::{
    pipelines::{FlowResult, arrivals, serve},
    workload::{Gaps, Rate},
};

/// Seconds of traffic.
const SECONDS: f64 = 20.0;

/// Loads, as multiples of the rate that the fullest step can serve.
const LOADS: [f64; 7] = [0.8, 0.9, 1.0, 1.25, 1.5, 1.75, 2.0];

/// Target of the whole pipeline, ns.
const TARGET: Nanos = 200_000_000;

/// Most rows of a batch.
const BATCH: u32 = 8;

struct Pipeline {
    name: &'static str,
    graph: Graph,
    plan: Plan,
    /// Queries a second that the fullest step can serve.
    capacity: f64,
}

/// A step whose batches run for `base + per_row * rows` ms.
fn step(name: &str, after: &[usize], scale: (f64, f64), (base, per_row): (f64, f64)) -> Step {
    let runs = (1..=BATCH).map(|rows| ((base + per_row * f64::from(rows)) * 1e6) as Nanos);
    let latency = LatencyTable::new(runs.collect());
    Step {
        name: name.to_owned(),
        after: after.to_vec(),
        scale: Scale {
            probability: scale.0,
            rows: scale.1,
        },
        choices: vec![Choice {
            variant: name.to_owned(),
            accuracy: 1.0,
            device: "gpu".to_owned(),
            price: 1.0,
            latency: latency.unwrap_or_else(|error| panic!("{error}")),
        }],
    }
}

fn pipeline(name: &'static str, steps: Vec<(Step, u32)>) -> Pipeline {
    let mut visits: Vec<f64> = Vec::new();
    let mut capacity = f64::INFINITY;
    for (step, replicas) in &steps {
        let missed = step.after.iter().map(|at| 1.0 - visits[*at]);
        let comes = match step.after.is_empty() {
            true => 1.0,
            false => 1.0 - missed.product::<f64>(),
        };
        visits.push(comes * step.scale.probability);
        let rows = comes * step.scale.probability * step.scale.rows;
        let run = step.choices[0].latency.of(BATCH) as f64 / 1e9;
        capacity = capacity.min(f64::from(replicas * BATCH) / run / rows);
    }
    let plan = Plan {
        steps: steps
            .iter()
            .map(|(_, replicas)| StepPlan::of(0, BATCH, *replicas))
            .collect(),
    };
    let graph = Graph::new(steps.into_iter().map(|(step, _)| step).collect());
    Pipeline {
        name,
        graph: graph.unwrap_or_else(|error| panic!("{error}")),
        plan,
        capacity,
    }
}

fn pipelines() -> [Pipeline; 3] {
    let one = (1.0, 1.0);
    [
        pipeline(
            "chain",
            vec![
                (step("decode", &[], one, (2.0, 1.0)), 3),
                (step("detect", &[0], one, (4.0, 2.0)), 6),
                (step("crop", &[1], one, (2.0, 1.0)), 3),
                (step("read", &[2], one, (4.0, 2.0)), 6),
            ],
        ),
        pipeline(
            "tree",
            vec![
                (step("decode", &[], one, (2.0, 1.0)), 4),
                (step("cars", &[0], (0.5, 1.0), (6.0, 3.0)), 6),
                (step("faces", &[0], (0.5, 1.0), (4.0, 2.0)), 4),
                (step("name", &[2], one, (4.0, 2.0)), 4),
            ],
        ),
        pipeline(
            "fan-out",
            vec![
                (step("detect", &[], one, (4.0, 2.0)), 4),
                (step("read", &[0], (1.0, 5.0), (2.0, 1.0)), 10),
                (step("check", &[1], one, (4.0, 2.0)), 4),
            ],
        ),
    ]
}

/// Queries that were answered in time, as a share of the most that the pipeline can serve.
fn goodput(served: &FlowResult, pipeline: &Pipeline) -> f64 {
    let good = served.latencies.iter().filter(|it| **it <= TARGET).count();
    good as f64 / (SECONDS * pipeline.capacity)
}

fn main() -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(
        out,
        "pipeline  load  none   clipper++  nexus  pard   sextant  ratio  wasted"
    )?;
    let (mut least, mut logs) = (f64::INFINITY, Vec::new());
    for pipeline in pipelines() {
        for load in LOADS {
            let rate = Rate::Constant(load * pipeline.capacity);
            let arrivals = arrivals(rate, Gaps::Gamma { shape: 1.0 }, SECONDS, 7);
            let arrivals = arrivals.unwrap_or_else(|error| panic!("{error}"));
            let mut random = ChaCha8Rng::seed_from_u64(11);
            let routes = Routes::draw(&pipeline.graph, arrivals.len(), &mut random);
            let load_of = Load {
                arrivals: &arrivals,
                routes: &routes,
            };
            let run = |policy, scheduler| {
                let options = Options::of(scheduler);
                let (graph, plan) = (&pipeline.graph, &pipeline.plan);
                serve(graph, plan, load_of, (TARGET, policy), &options)
            };
            let best = |policy| {
                let both = [Scheduler::default(), Scheduler::Eager].map(|it| run(policy, it));
                both.iter()
                    .map(|it| goodput(it, &pipeline))
                    .fold(0.0, f64::max)
            };
            let others = [Policy::None, Policy::Clipper, Policy::Nexus, Policy::Pard].map(best);
            let ours = [Scheduler::default(), Scheduler::Eager].map(|it| run(Policy::Sextant, it));
            let by_goodput = |a: &&FlowResult, b: &&FlowResult| {
                goodput(a, &pipeline).total_cmp(&goodput(b, &pipeline))
            };
            let Some(ours) = ours.iter().max_by(by_goodput) else {
                continue;
            };
            let own = goodput(ours, &pipeline);
            let ratio = own / others[1].max(others[2]).max(1e-9);
            least = least.min(ratio);
            if load >= 1.5 {
                logs.push(ratio.ln());
            }
            writeln!(
                out,
                "{:<8}  {load:<4}  {:.3}  {:<9.3}  {:.3}  {:.3}  {own:<7.3}  {ratio:<5.2}  {:.2} %",
                pipeline.name,
                others[0],
                others[1],
                others[2],
                others[3],
                ours.wasted_share * 100.0
            )?;
        }
    }
    let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
    writeln!(
        out,
        "least ratio {least:.3}; geometric mean at 1.5x and more {mean:.3}"
    )
}
