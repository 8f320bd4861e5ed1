//! The estimator against queueing theory, and against what can be counted by hand.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_planning::{
    Choice, Fit, Graph, Nanos, Routes, Scale, Step,
    estimate::{Estimate, Load, Station, estimate},
    parts::Frequency,
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

/// Two halves of the traffic, and what follows both.
fn halves() -> Graph {
    let half = |name: &str| Step {
        scale: Scale {
            probability: 0.5,
            rows: 1.0,
        },
        ..step(name, &[], 1.0)
    };
    Graph::new(vec![half("a"), half("b"), step("then", &[0, 1], 1.0)]).unwrap()
}

#[test]
fn a_query_runs_one_step_of_a_split_and_all_come_to_what_follows() {
    let split = halves().with_splits(vec![vec![0, 1]]).unwrap();
    let routes = Routes::draw(&split, 4000, &mut ChaCha8Rng::seed_from_u64(3));
    let mut halves = 0;
    for query in 0..4000 {
        let rows = routes.of(query);
        assert_eq!(rows[0] + rows[1], 1, "query {query}: {rows:?}");
        assert_eq!(rows[2], 1, "query {query}: {rows:?}");
        halves += rows[0];
    }
    assert!((1900..2100).contains(&halves), "{halves} of 4000");
    let kept = split.most_accurate();
    assert_eq!(kept.splits(), split.splits());
}

#[test]
fn splits_that_cannot_be_are_refused() {
    for splits in [
        vec![vec![0, 3]],
        vec![vec![0, 1], vec![1]],
        vec![vec![0, 2]],
    ] {
        assert!(halves().with_splits(splits.clone()).is_err(), "{splits:?}");
    }
    let mut steps = halves().steps().to_vec();
    steps[0].scale.probability = 0.6;
    let graph = Graph::new(steps).unwrap();
    assert!(graph.with_splits(vec![vec![0, 1]]).is_err());
}

#[test]
fn what_was_counted_is_drawn_whatever_branches_go_together() {
    // The first runs for half of the queries, and two behind it always; what follows both runs for half as well. Two of a
    // split each run for a part, and what follows them always.
    type Counted = (&'static [usize], &'static [usize], f64);
    let cases: [&[Counted]; 2] = [
        &[
            (&[], &[], 0.5),
            (&[0], &[], 0.5),
            (&[0], &[], 0.5),
            (&[1, 2], &[], 0.5),
        ],
        &[(&[], &[], 0.7), (&[], &[0], 0.3), (&[0, 1], &[], 1.0)],
    ];
    for counted in cases {
        let random = &mut ChaCha8Rng::seed_from_u64(5);
        let mut fit = Fit::new(4096);
        let mut splits = Vec::new();
        let steps = counted
            .iter()
            .enumerate()
            .map(|(at, (after, apart, share))| {
                if !apart.is_empty() {
                    splits.push(apart.iter().copied().chain([at]).collect());
                }
                let probability = fit.add(after, apart, Frequency::OfAll(*share), random);
                Step {
                    scale: Scale {
                        probability,
                        rows: 1.0,
                    },
                    ..step(&format!("s{at}"), after, 1.0)
                }
            });
        let graph = Graph::new(steps.collect()).unwrap();
        let graph = graph.with_splits(splits).unwrap();
        let routes = Routes::draw(&graph, 20_000, random);
        for (at, (.., share)) in counted.iter().enumerate() {
            let visits = routes.visits(at);
            assert!(
                (visits - share).abs() < 0.02,
                "step {at}: {visits}, not {share}"
            );
        }
    }
}
