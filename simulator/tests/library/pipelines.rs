//! The estimator that plans pipelines, compared with the controller that serves them.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sextant_baselines::{Options, Policy as Scheduler};
use sextant_planning::{
    Choice, Graph, Routes, Scale, Step,
    dropping::Policy,
    estimate::Load,
    plan::{Options as Effort, Plan, Problem, StepPlan, search},
    profiles::Set,
};
use sextant_schedule::{LatencyTable, NEVER, Nanos};
use sextant_simulator::{
    pipelines::{FlowResult, arrivals, serve},
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

    /// The latencies of the estimator and of the controller at this share, ns.
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

/// A chain of three equally loaded steps, on devices whose number no plan increases.
fn chain() -> (Graph, Plan) {
    let step = |at: usize| Step {
        name: format!("s{at}"),
        after: at.checked_sub(1).into_iter().collect(),
        scale: Scale {
            probability: 1.0,
            rows: 1.0,
        },
        choices: vec![Choice {
            variant: format!("s{at}"),
            accuracy: 1.0,
            device: "gpu".to_owned(),
            price: 1.0,
            latency: LatencyTable::new((1..=8).map(|rows| 4_000_000 + rows * 2_000_000).collect())
                .unwrap(),
        }],
    };
    let graph = Graph::new((0..3).map(step).collect()).unwrap();
    let steps = vec![StepPlan::of(0, 8, 2); 3];
    (graph, Plan { steps })
}

#[test]
fn who_cannot_finish_is_given_up_before_the_first_step() {
    let (graph, plan) = chain();
    let target = 150_000_000;
    // Twice the rate that 2 replicas can serve with batches of 8 in 20 ms.
    let arrivals = arrivals(Rate::Constant(1600.0), Gaps::Gamma { shape: 1.0 }, 4.0, 3).unwrap();
    let random = &mut ChaCha8Rng::seed_from_u64(5);
    let routes = Routes::draw(&graph, arrivals.len(), random);
    let load = Load {
        arrivals: &arrivals,
        routes: &routes,
    };
    let options = Options::of(Scheduler::Eager);
    let run = |policy| serve(&graph, &plan, load, (target, policy), &options);
    let good = |served: &FlowResult| served.latencies.iter().filter(|it| **it <= target).count();
    let ours = run(Policy::Sextant);
    let others = [Policy::None, Policy::Clipper, Policy::Nexus, Policy::Pard].map(run);
    let best = others.iter().map(good).max().unwrap();
    assert!(
        good(&ours) >= best,
        "{} in time, and {best} by another rule",
        good(&ours)
    );
    assert!(
        ours.wasted_share < 0.03,
        "{} of the time was lost",
        ours.wasted_share
    );
    assert!(others[0].wasted_share > 0.5, "without a rule all are late");
}

#[test]
fn every_rule_has_a_name_of_its_own_and_drops_nobody_where_there_is_room() {
    let (graph, plan) = chain();
    let arrivals: Vec<Nanos> = (0..200).map(|at| at * 5_000_000).collect();
    let random = &mut ChaCha8Rng::seed_from_u64(5);
    let routes = Routes::draw(&graph, arrivals.len(), random);
    let load = Load {
        arrivals: &arrivals,
        routes: &routes,
    };
    for policy in Policy::ALL {
        assert_eq!(Policy::parse(policy.name()), Some(policy));
        let options = Options::of(Scheduler::Eager);
        let served = serve(&graph, &plan, load, (150_000_000, policy), &options);
        let in_time = served.latencies.iter().all(|it| *it <= 150_000_000);
        assert!(in_time, "{}", policy.name());
    }
}
