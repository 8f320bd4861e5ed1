//! Planners and tuners on shipped pipelines.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_planning::{
    Graph, Nanos, Routes, VisitCounts,
    estimate::Load,
    plan::{
        Options, Plan, Problem, Shortfall, cg_mean, cg_peak, exhaustive, inferline, next_cheaper,
        search, with_residual,
    },
    profiles::{Set, names},
    tune::{Envelope, Rule, Tuner, Watch, timeline},
};

const MS: Nanos = 1_000_000;

struct Sample {
    graph: Graph,
    arrivals: Vec<Nanos>,
    routes: Routes,
    target: Nanos,
    min_accuracy: f64,
}

fn poisson(rate: f64, seconds: f64, seed: u64) -> Vec<Nanos> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut at, mut arrivals) = (0.0, Vec::new());
    loop {
        at -= (1.0 - random.random::<f64>()).ln() / rate;
        if at > seconds {
            return arrivals;
        }
        arrivals.push((at * 1e9) as Nanos);
    }
}

/// At four times the rate in the first quarter of each second, and none in the rest of it.
fn bursts(rate: f64, seconds: f64, seed: u64) -> Vec<Nanos> {
    let arrivals = poisson(4.0 * rate, seconds, seed).into_iter();
    arrivals.filter(|at| at % (1000 * MS) < 250 * MS).collect()
}

fn sample(set: &str, pipeline: &str, rate: f64) -> Sample {
    sample_of(set, pipeline, rate, 8.0)
}

fn sample_of(set: &str, pipeline: &str, rate: f64, seconds: f64) -> Sample {
    let set = Set::named(set).unwrap();
    let pipeline = set.pipeline(pipeline).unwrap();
    let arrivals = poisson(rate, seconds, 1);
    let routes = Routes::draw(
        &pipeline.graph,
        arrivals.len(),
        &mut ChaCha8Rng::seed_from_u64(2),
    );
    Sample {
        graph: pipeline.graph.clone(),
        arrivals,
        routes,
        target: (pipeline.latency_ms * 1e6) as Nanos,
        min_accuracy: pipeline.min_accuracy,
    }
}

impl Sample {
    fn problem(&self) -> Problem<'_> {
        Problem {
            graph: &self.graph,
            load: Load {
                arrivals: &self.arrivals,
                routes: &self.routes,
            },
            target: self.target,
            min_accuracy: self.min_accuracy,
            miss_share: 0.01,
        }
    }
}

fn found(problem: &Problem<'_>) -> Plan {
    let options = Options {
        most_rows: 300_000,
        most_queries: 2_000,
    };
    search(problem, options).plan.unwrap()
}

#[test]
fn every_planner_that_promises_it_meets_both_targets_and_ours_is_never_dearer() {
    for set in names() {
        for pipeline in ["image-processing", "tf-cascade"] {
            let sample = sample(set, pipeline, 60.0);
            let problem = sample.problem();
            let own = found(&problem);
            assert!(problem.is_met(&own), "{set} {pipeline}");
            for other in [inferline(&problem), cg_peak(&problem)]
                .into_iter()
                .flatten()
            {
                if problem.is_met(&other) {
                    let (own, other) = (own.cost(&sample.graph), other.cost(&sample.graph));
                    assert!(own <= other + 1e-9, "{set} {pipeline}: {own}, {other}");
                }
            }
            let with_second = with_residual(&problem, &own);
            assert!(problem.is_met(&with_second));
            assert!(with_second.cost(&sample.graph) <= own.cost(&sample.graph));
        }
    }
}

#[test]
fn nothing_cheaper_is_found_by_trying_everything() {
    let sample = sample("ec2-2018", "tf-cascade", 50.0);
    let problem = sample.problem();
    let own = search(&problem, Options::default());
    assert!(own.complete);
    let plan = own.plan.unwrap();
    let all = exhaustive(&problem, Some(&plan), u64::MAX);
    assert!(all.complete);
    assert_eq!(
        all.plan.unwrap().cost(&sample.graph),
        plan.cost(&sample.graph)
    );
}

#[test]
fn without_a_known_plan_all_are_tried_and_too_little_effort_proves_nothing() {
    let sample = sample("ec2-2018", "tf-cascade", 50.0);
    let problem = sample.problem();
    let own = found(&problem).cost(&sample.graph);
    let all = exhaustive(&problem, None, u64::MAX);
    assert!(all.complete);
    assert_eq!(all.plan.unwrap().cost(&sample.graph), own);
    assert!(!exhaustive(&problem, None, 1).complete);
}

#[test]
fn where_the_effort_brings_no_plan_the_greedy_one_is_improved() {
    let sample = sample("ec2-2018", "social-media", 60.0);
    let problem = sample.problem();
    let options = Options {
        most_rows: 4_000,
        most_queries: 2_000,
    };
    let little = search(&problem, options);
    assert!(!little.complete);
    let plan = little.plan.unwrap();
    let greedy = inferline(&problem).unwrap().cost(&sample.graph);
    assert!(problem.is_met(&plan));
    assert!(plan.cost(&sample.graph) < greedy);
}

/// The price of the cheapest plan of a published planner that meets the targets.
fn least_published(problem: &Problem<'_>) -> f64 {
    let greedy = inferline(problem);
    assert!(greedy.as_ref().is_none_or(|plan| problem.is_met(plan)));
    let all = [greedy, cg_mean(problem), cg_peak(problem)];
    let all = all.into_iter().flatten();
    let all = all.filter(|plan| problem.is_met(plan));
    all.map(|plan| plan.cost(problem.graph))
        .fold(f64::INFINITY, f64::min)
}

#[test]
fn no_plan_is_dearer_than_a_published_one_because_less_was_looked_at() {
    let part = Options {
        most_rows: 50_000,
        most_queries: 120,
    };
    let little = Options {
        most_rows: 4_000,
        most_queries: 2_000,
    };
    for seed in 20..23 {
        for set in names() {
            for pipeline in ["image-processing", "social-media"] {
                let mut sample = sample(set, pipeline, 60.0);
                sample.graph = sample.graph.most_accurate();
                sample.min_accuracy = 0.0;
                sample.arrivals = bursts(60.0, 8.0, seed);
                let problem = sample.problem();
                let least = least_published(&problem);
                let found = [part, little].map(|options| search(&problem, options));
                for found in found.into_iter().filter(|found| !found.complete) {
                    let cost = found.plan.map(|plan| {
                        assert!(problem.is_met(&plan), "{set} {pipeline}, seed {seed}");
                        plan.cost(&sample.graph)
                    });
                    let cost = cost.unwrap_or(f64::INFINITY);
                    assert!(
                        cost <= least + 1e-9,
                        "{set} {pipeline}, seed {seed}: {cost}, not {least}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_next_cheaper_plan_fails_and_says_why() {
    let sample = sample("ec2-2018", "image-processing", 60.0);
    let problem = sample.problem();
    let plan = found(&problem);
    let next = next_cheaper(&problem, &plan).unwrap();
    assert!(next.cost < plan.cost(&sample.graph));
    assert!(!problem.is_met(&next.plan));
    match next.why {
        Shortfall::Accuracy { accuracy } => assert!(accuracy < problem.min_accuracy),
        Shortfall::Latency { missed, .. } => assert!(missed > 0.01),
    }
}

#[test]
fn a_target_below_the_run_times_has_no_plan() {
    let mut sample = sample("ec2-2018", "image-processing", 20.0);
    sample.target = 5 * MS;
    assert_eq!(search(&sample.problem(), Options::default()).plan, None);
    assert_eq!(inferline(&sample.problem()), None);
    assert_eq!(cg_mean(&sample.problem()), None);
}

#[test]
fn an_accuracy_that_no_variant_has_has_no_plan() {
    let mut sample = sample("ec2-2018", "image-processing", 20.0);
    sample.min_accuracy = 0.99;
    assert_eq!(search(&sample.problem(), Options::default()).plan, None);
}

#[test]
fn what_was_drawn_is_learnt_within_its_interval() {
    let set = Set::named("ec2-2018").unwrap();
    let graph = &set.pipeline("video-monitoring").unwrap().graph;
    let routes = Routes::draw(graph, 20_000, &mut ChaCha8Rng::seed_from_u64(3));
    let mut learnt = VisitCounts::from_routes(graph, &routes);
    let mut twice = learnt.clone();
    twice.merge(&learnt);
    for (at, step) in graph.steps().iter().enumerate() {
        let known = learnt.step(at).unwrap();
        let (probability, rows) = (known.probability, known.rows);
        assert!(
            probability.lower - 0.01 <= step.scale.probability
                && step.scale.probability <= probability.upper + 0.01
        );
        assert!(
            (rows.value - step.scale.rows).abs() < 0.05,
            "{}: {rows:?}",
            step.name
        );
        assert!(twice.step(at).unwrap().probability.upper <= probability.upper);
    }
    learnt.add(graph, &[]);
    assert_eq!(learnt.queries(), 20_001);
}

#[test]
fn the_envelope_of_the_last_minute_is_that_of_its_arrivals() {
    let arrivals = poisson(40.0, 50.0, 4);
    let mut watch = Watch::new(100 * MS);
    for at in &arrivals {
        watch.arrived(*at);
    }
    let whole = Envelope::of(&arrivals, 100 * MS);
    assert_eq!(watch.envelope(50_000 * MS), whole);
}

#[test]
fn traffic_that_stays_the_same_brings_no_more_replicas_and_a_jump_brings_enough() {
    let sample = sample_of("ec2-2018", "social-media", 60.0, 120.0);
    let problem = sample.problem();
    let plan = found(&problem);
    let replicas = |arrivals: &[Nanos], rule| {
        let tuner = Tuner::new(rule, problem, &plan, problem.target / 2);
        let timeline = timeline(&sample.graph, &plan, arrivals, tuner);
        let most: usize = timeline
            .stations
            .iter()
            .map(|station| station.replicas.len())
            .sum();
        (most, timeline.changes)
    };
    let planned: u32 = plan.steps.iter().map(|step| step.main().replicas).sum();
    let same = poisson(60.0, 60.0, 5);
    assert_eq!(replicas(&same, Rule::Ratio), (planned as usize, 0));
    let mut jump = poisson(60.0, 20.0, 6);
    let later = poisson(180.0, 20.0, 7);
    jump.extend(later.iter().map(|at| at + 20_000 * MS));
    assert!(replicas(&jump, Rule::Ratio).0 >= 3 * planned as usize);
    assert!(replicas(&jump, Rule::Printed).0 >= 3 * planned as usize);
}
