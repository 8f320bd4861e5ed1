//! The estimator against queueing theory, and against what can be counted by hand.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_planning::{
    Choice, Graph, Nanos, Routes, Scale, Step,
    estimate::{Estimate, Load, Station, estimate},
};
use sextant_schedule::LatencyTable;

const MS: Nanos = 1_000_000;

fn step(name: &str, after: &[usize], ms: f64) -> Step {
    Step {
        name: name.to_owned(),
        after: after.to_vec(),
        scale: Scale {
            probability: 1.0,
            rows: 1.0,
        },
        choices: vec![Choice {
            variant: "only".to_owned(),
            accuracy: 1.0,
            device: "cpu".to_owned(),
            price: 1.0,
            latency: LatencyTable::linear(ms, 0.0, 8).unwrap(),
        }],
    }
}

fn run(graph: &Graph, batch: u32, replicas: u32, arrivals: &[Nanos], routes: &Routes) -> Estimate {
    let stations = graph.steps().iter();
    let stations =
        stations.map(|step| Station::alike(step.choices[0].latency.clone(), batch, replicas));
    let stations: Vec<Station> = stations.collect();
    estimate(graph, &stations, Load { arrivals, routes })
}

fn poisson(rate: f64, count: usize, random: &mut ChaCha8Rng) -> Vec<Nanos> {
    let mut at = 0.0;
    let arrivals = (0..count).map(|_| {
        at -= (1.0 - random.random::<f64>()).ln() / rate;
        (at * 1e9) as Nanos
    });
    arrivals.collect()
}

/// Mean wait over the service time where `replicas` serve Poisson arrivals in a fixed time each, `load` busy.
fn wait(load: f64, replicas: u32) -> f64 {
    let random = &mut ChaCha8Rng::seed_from_u64(7);
    let arrivals = poisson(100.0 * load * f64::from(replicas), 400_000, random);
    let graph = Graph::new(vec![step("only", &[], 10.0)]).unwrap();
    let mut routes = Routes::new(1);
    routes.push(&[1]);
    let estimate = run(&graph, 1, replicas, &arrivals, &routes);
    estimate.mean() / (10 * MS) as f64 - 1.0
}

#[test]
fn a_replica_with_fixed_times_makes_queries_wait_as_pollaczek_and_khinchine_say() {
    for load in [0.3, 0.6, 0.8] {
        let expected = load / (2.0 * (1.0 - load));
        let measured = wait(load, 1);
        assert!(
            (measured / expected - 1.0).abs() < 0.05,
            "load {load}: {measured}, not {expected}"
        );
    }
}

#[test]
fn several_replicas_make_queries_wait_about_half_as_long_as_with_exponential_times() {
    // Erlang's C for four servers at 0.8: 0.5964, a mean wait of 0.7455 service times with exponential ones. With fixed
    // ones it is 0.3839 by Cosmetatos's approximation, which is within 2 %.
    let (c, load) = (4.0f64, 0.8);
    let exponential = 0.5964 / (c * (1.0 - load));
    let correction =
        1.0 + (1.0 - load) * (c - 1.0) * ((4.0 + 5.0 * c).sqrt() - 2.0) / (16.0 * load * c);
    let expected = 0.5 * exponential * correction;
    let measured = wait(load, 4);
    assert!(
        (measured / expected - 1.0).abs() < 0.05,
        "{measured}, not {expected}"
    );
}

#[test]
fn a_queue_with_exponential_times_has_the_mean_of_erlang() {
    // Geometrically many rows of 50 us, 200 on average, are nearly exponential service of 10 ms.
    let random = &mut ChaCha8Rng::seed_from_u64(9);
    let load = 0.7;
    let arrivals = poisson(100.0 * load, 60_000, random);
    let mut geometric = step("only", &[], 0.05);
    geometric.scale.rows = 200.0;
    let graph = Graph::new(vec![geometric]).unwrap();
    let routes = Routes::draw(&graph, arrivals.len(), random);
    let estimate = run(&graph, 1, 1, &arrivals, &routes);
    let expected = (10 * MS) as f64 / (1.0 - load);
    let error = estimate.mean() / expected - 1.0;
    assert!(error.abs() < 0.08, "{error}");
}

#[test]
fn a_join_waits_for_the_slower_branch_and_skipped_steps_cost_nothing() {
    let graph = Graph::new(vec![
        step("first", &[], 1.0),
        step("slow", &[0], 20.0),
        step("quick", &[0], 5.0),
        step("join", &[1, 2], 2.0),
    ])
    .unwrap();
    let mut routes = Routes::new(4);
    routes.push(&[1, 1, 1, 1]);
    routes.push(&[1, 0, 1, 1]);
    routes.push(&[0, 0, 0, 0]);
    let arrivals = [0, 1_000 * MS, 2_000 * MS];
    let estimate = run(&graph, 1, 1, &arrivals, &routes);
    assert_eq!(estimate.latencies, [23 * MS, 8 * MS, 0]);
}

#[test]
fn what_waits_becomes_one_batch_and_rows_of_one_query_end_together() {
    let graph = Graph::new(vec![step("only", &[], 10.0)]).unwrap();
    let mut routes = Routes::new(1);
    for rows in [1, 2, 1] {
        routes.push(&[rows]);
    }
    // The first runs alone for 10 ms; then three rows wait, and run in 30 ms.
    let estimate = run(&graph, 8, 1, &[0, MS, 2 * MS], &routes);
    assert_eq!(estimate.latencies, [10 * MS, 39 * MS, 38 * MS]);
    assert_eq!(estimate.largest, [3]);
    // With batches of one they follow each other.
    let estimate = run(&graph, 1, 1, &[0, MS, 2 * MS], &routes);
    assert_eq!(estimate.latencies, [10 * MS, 29 * MS, 38 * MS]);
}

#[test]
fn a_replica_that_comes_later_and_one_that_goes_serve_in_between() {
    let graph = Graph::new(vec![step("only", &[], 10.0)]).unwrap();
    let mut station = Station::alike(graph.steps()[0].choices[0].latency.clone(), 1, 1);
    station.replicas[0].until = 15 * MS;
    let mut later = station.replicas[0];
    (later.from, later.until) = (100 * MS, 1_000 * MS);
    station.replicas.push(later);
    let mut routes = Routes::new(1);
    routes.push(&[1]);
    let arrivals = [0, MS, 2 * MS];
    let load = Load {
        arrivals: &arrivals,
        routes: &routes,
    };
    let estimate = estimate(&graph, &[station], load);
    assert_eq!(estimate.latencies, [10 * MS, 19 * MS, 108 * MS]);
}
