//! The estimator that plans pipelines, beside the controller that serves them.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sextant_planning::{
    Graph, Routes,
    dropping::Policy,
    estimate::Load,
    plan::{Options as Effort, Plan, Problem, search},
    profiles::Set,
};
use sextant_schedule::{NEVER, Nanos, Options, Policy as Scheduler};
use sextant_simulator::{
    pipelines::{arrivals, serve},
    workload::{Gaps, Rate},
};

/// Seconds of traffic that are compared.
const SECONDS: f64 = 15.0;

/// A plan for a pipeline at 100 queries/s, and other queries of the same kind.
struct Case {
    name: String,
    graph: Graph,
    plan: Plan,
    arrivals: Vec<Nanos>,
    routes: Routes,
}

fn cases(shape: f64) -> Vec<Case> {
    let mut cases = Vec::new();
    for set in ["ec2-2018", "mixed-2025"] {
        let set = Set::named(set).unwrap();
        for pipeline in &set.pipelines {
            let graph = pipeline.graph.most_accurate();
            let traffic = |seed| {
                let gaps = Gaps::Gamma { shape };
                let arrivals = arrivals(Rate::Constant(100.0), gaps, SECONDS, seed).unwrap();
                let random = &mut ChaCha8Rng::seed_from_u64(seed);
                let routes = Routes::draw(&graph, arrivals.len(), random);
                (arrivals, routes)
            };
            let (sample, sampled) = traffic(1);
            let load = Load {
                arrivals: &sample,
                routes: &sampled,
            };
            let target = (pipeline.latency_ms * 1e6) as Nanos;
            let problem = Problem {
                graph: &graph,
                load,
                target,
                min_accuracy: 0.0,
                miss_share: 0.01,
            };
            let effort = Effort {
                most_rows: 60_000,
                most_queries: 600,
            };
            let plan = search(&problem, effort).plan.unwrap();
            let (arrivals, routes) = traffic(2);
            let name = format!("{} {} shape {shape}", set.name, pipeline.name);
            cases.push(Case {
                name,
                graph,
                plan,
                arrivals,
                routes,
            });
        }
    }
    cases
}

impl Case {
    fn load(&self) -> Load<'_> {
        Load {
            arrivals: &self.arrivals,
            routes: &self.routes,
        }
    }

    /// What the estimator says, and what the controller does: latency at these shares, ns.
    fn both(&self, options: &Options, share: f64) -> (f64, f64) {
        let stations = self.plan.stations(&self.graph);
        let estimated = sextant_planning::estimate::estimate(&self.graph, &stations, self.load());
        let served = serve(
            &self.graph,
            &self.plan,
            self.load(),
            (NEVER, Policy::None),
            options,
        );
        let mut latencies = served.latencies;
        latencies.sort_unstable();
        let at = ((share * latencies.len() as f64).ceil() as usize).max(1) - 1;
        (estimated.quantile(share) as f64, latencies[at] as f64)
    }
}

#[test]
fn the_estimate_of_a_plan_is_within_a_twentieth_of_what_the_controller_does() {
    let mut apart = Vec::new();
    for shape in [1.0, 0.25] {
        for case in cases(shape) {
            for policy in [Scheduler::Eager, Scheduler::default()] {
                for share in [0.5, 0.99] {
                    let (estimated, served) = case.both(&Options::of(policy), share);
                    if (estimated / served - 1.0).abs() > 0.05 {
                        let (estimated, served) = (estimated / 1e6, served / 1e6);
                        apart.push(format!(
                            "{}, {policy}, {share}: estimated {estimated:.2} ms, served {served:.2} ms; {:?}",
                            case.name, case.plan
                        ));
                    }
                }
            }
        }
    }
    assert!(apart.is_empty(), "{}", apart.join("\n"));
}
