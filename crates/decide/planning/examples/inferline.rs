//! The figures of planners and tuners for pipelines, one JSON object a line; all but the times, which are of one thread's computing, are simulated.
//!
//! `cargo run --release -p sextant-planning --example inferline [-- grid|spikes|alarms|optimal|speed..]`;
//! with names of profile sets `grid` takes these, with a number `optimal` so many pipelines, with a second one from that seed on.
#![expect(clippy::print_stdout, reason = "prints its figures")]

#[path = "inferline/alarms.rs"]
mod alarms;
#[path = "inferline/grid.rs"]
mod grid;
#[path = "inferline/optimal.rs"]
mod optimal;
#[path = "inferline/speed.rs"]
mod speed;
#[path = "inferline/spikes.rs"]
mod spikes;
#[path = "inferline/traffic.rs"]
mod traffic;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sextant_planning::{
    Graph, Nanos, Routes,
    estimate::Load,
    plan::{Plan, Problem},
    profiles::{Pipeline, Set},
};

/// Arrivals with routes.
struct Traffic {
    arrivals: Vec<Nanos>,
    routes: Routes,
}

impl Traffic {
    fn new(graph: &Graph, arrivals: Vec<Nanos>, seed: u64) -> Self {
        let routes = Routes::draw(graph, arrivals.len(), &mut ChaCha8Rng::seed_from_u64(seed));
        Self { arrivals, routes }
    }

    fn load(&self) -> Load<'_> {
        Load {
            arrivals: &self.arrivals,
            routes: &self.routes,
        }
    }
}

/// A plan for the 99th percentile.
fn problem<'a>(graph: &'a Graph, load: Load<'a>, latency_ms: f64) -> Problem<'a> {
    Problem {
        graph,
        load,
        target: (latency_ms * 1e6) as Nanos,
        min_accuracy: 0.0,
        miss_share: 0.01,
    }
}

fn shipped(set: &str, pipeline: &str) -> Result<Pipeline, sextant_planning::profiles::Error> {
    Ok(Set::named(set)?.pipeline(pipeline)?.clone())
}

fn text(graph: &Graph, plan: &Plan) -> String {
    let steps = graph.steps().iter().zip(&plan.steps).map(|(step, plan)| {
        let groups = plan.groups.iter().map(|group| {
            let choice = &step.choices[group.choice];
            format!(
                "{} x {} on {} by {}",
                group.replicas, choice.variant, choice.device, group.batch
            )
        });
        groups.collect::<Vec<_>>().join(" + ")
    });
    steps.collect::<Vec<_>>().join(", ")
}

fn print(experiment: &str, cell: &str, metric: &str, value: f64) {
    let unit = metric.rsplit('_').next().unwrap_or("");
    println!(
        "{{\"experiment\":\"{experiment}\",\"cell\":\"{cell}\",\"metric\":\"{metric}\",\"value\":{value:.6},\"unit\":\"{unit}\"}}"
    );
}

/// What this thread has computed so far, ms: what others do on the machine does not count.
fn computed_ms() -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = told
        .split_whitespace()
        .next()
        .and_then(|ns| ns.parse::<f64>().ok());
    ns.unwrap_or(0.0) / 1e6
}

/// The middle of sorted values at a share.
fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = ((share * values.len() as f64).ceil() as usize).clamp(1, values.len().max(1)) - 1;
    values.get(at).copied().unwrap_or(f64::NAN)
}

fn geometric(values: &[f64]) -> f64 {
    (values.iter().map(|value| value.ln()).sum::<f64>() / values.len().max(1) as f64).exp()
}

fn main() -> Result<(), sextant_planning::profiles::Error> {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let wants = |name: &str| named.is_empty() || named.iter().any(|desired| desired == name);
    if wants("grid") {
        grid::run(&named)?;
    }
    if wants("spikes") {
        spikes::run()?;
    }
    if wants("alarms") {
        alarms::run()?;
    }
    if wants("optimal") {
        let mut numbers = named.iter().filter_map(|number| number.parse().ok());
        optimal::run(numbers.next().unwrap_or(1000), numbers.next().unwrap_or(0));
    }
    if wants("speed") {
        speed::run()?;
    }
    Ok(())
}
