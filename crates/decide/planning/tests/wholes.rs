//! The accuracy of the whole, against every way that a query can go.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_planning::{
    Choice, Graph, Nanos, Routes, Scale, Step, Whole,
    estimate::Load,
    parts::{self, Frequency, Part},
    plan::{Options, Plan, Problem, StepPlan, search},
    profiles::table,
};

/// Parts of a whole in which probabilities are.
const PARTS: usize = 4;

fn choice(variant: &str, accuracy: f64, price: f64) -> Choice {
    Choice {
        variant: variant.to_owned(),
        accuracy,
        device: "cpu".to_owned(),
        price,
        latency: table(&[(1, 1.0)]).unwrap(),
    }
}

/// Two to five steps, each behind some of those before it; now and then one is split in two or three.
fn random_graph(random: &mut ChaCha8Rng) -> Graph {
    let count = random.random_range(2..=5);
    let (mut steps, mut splits) = (Vec::<Step>::new(), Vec::new());
    while steps.len() < count {
        let at = steps.len();
        let after: Vec<usize> = (0..at).filter(|_| random.random_bool(0.5)).collect();
        let arms = match random.random_bool(0.4) {
            true => random.random_range(2..=3),
            false => 1,
        };
        let mut left = PARTS;
        for arm in 0..arms {
            let most = left + 1 - (arms - arm);
            let part = random.random_range(1..=most);
            left -= part;
            let low = random.random_range(0.5..0.9);
            let high = random.random_range(low..1.0);
            steps.push(Step {
                name: format!("s{}", steps.len()),
                after: after.clone(),
                scale: Scale {
                    probability: part as f64 / PARTS as f64,
                    rows: 1.0,
                },
                choices: vec![
                    choice("low", low, random.random_range(0.5..1.0)),
                    choice("high", high, random.random_range(1.0..2.0)),
                ],
            });
        }
        if arms > 1 {
            splits.push((at..steps.len()).collect());
        }
    }
    Graph::new(steps).unwrap().with_splits(splits).unwrap()
}

/// A query for each way that the draws of steps and splits can end, all equally likely.
fn all_ways(graph: &Graph) -> Routes {
    let steps = graph.steps();
    let split = |at: usize| graph.splits().iter().find(|of| of.contains(&at));
    let first = |at: &usize| split(*at).is_none_or(|of| of[0] == *at);
    let draws: Vec<usize> = (0..steps.len()).filter(first).collect();
    let mut routes = Routes::new(steps.len());
    for mut number in 0..PARTS.pow(draws.len() as u32) {
        let mut rows = vec![0; steps.len()];
        for draw in &draws {
            let value = number % PARTS;
            number /= PARTS;
            let own = [*draw];
            let mut from = 0;
            for at in split(*draw).map_or(&own[..], |of| of) {
                let step = &steps[*at];
                let parts = (step.scale.probability * PARTS as f64).round() as usize;
                let could = step.after.is_empty() || step.after.iter().any(|it| rows[*it] > 0);
                rows[*at] = u16::from(could && (from..from + parts).contains(&value));
                from += parts;
            }
        }
        routes.push(&rows);
    }
    routes
}

/// Adds up what the steps from one on make of the accuracy, by their probabilities alone.
fn by_hand(graph: &Graph, accuracies: &[f64], visited: &mut Vec<bool>) -> f64 {
    let at = visited.len();
    let Some(step) = graph.steps().get(at) else {
        return 1.0;
    };
    let could = step.after.is_empty() || step.after.iter().any(|before| visited[*before]);
    let mut runs = match could {
        true => step.scale.probability,
        false => 0.0,
    };
    // One of a split runs where none of those before it does.
    if let Some(split) = graph.splits().iter().find(|of| of.contains(&at)) {
        let before = || split.iter().filter(|it| **it < at);
        let taken: f64 = before()
            .map(|it| graph.steps()[*it].scale.probability)
            .sum();
        runs = match before().any(|it| visited[*it]) {
            true => 0.0,
            false => runs / (1.0 - taken),
        };
    }
    let mut right = 0.0;
    for (is_visited, share) in [(true, runs), (false, 1.0 - runs)] {
        if share <= 0.0 {
            continue;
        }
        visited.push(is_visited);
        let own = if is_visited { accuracies[at] } else { 1.0 };
        right += share * own * by_hand(graph, accuracies, visited);
        visited.pop();
    }
    right
}

fn arrivals(routes: &Routes) -> Vec<Nanos> {
    (0..routes.len() as Nanos)
        .map(|at| at * 1_000_000_000)
        .collect()
}

fn problem<'a>(graph: &'a Graph, load: Load<'a>, min_accuracy: f64) -> Problem<'a> {
    Problem {
        graph,
        load,
        target: 1_000_000_000,
        min_accuracy,
        miss_share: 0.0,
    }
}

/// All plans of one replica a step.
fn plans(graph: &Graph) -> impl Iterator<Item = Plan> + use<> {
    let steps = graph.steps().len();
    (0..1usize << steps).map(move |bits| Plan {
        steps: (0..steps)
            .map(|at| StepPlan::of(bits >> at & 1, 1, 1))
            .collect(),
    })
}

fn accuracies(graph: &Graph, plan: &Plan) -> Vec<f64> {
    let steps = graph.steps().iter().zip(&plan.steps);
    steps
        .map(|(step, of)| step.choices[of.main().choice].accuracy)
        .collect()
}

#[test]
fn the_accuracy_of_the_whole_is_that_of_all_ways_that_queries_go() {
    let random = &mut ChaCha8Rng::seed_from_u64(7);
    for _ in 0..200 {
        let graph = random_graph(random);
        let routes = all_ways(&graph);
        let arrivals = arrivals(&routes);
        let load = Load {
            arrivals: &arrivals,
            routes: &routes,
        };
        let of = problem(&graph, load, 0.0);
        for plan in plans(&graph) {
            let expected = by_hand(&graph, &accuracies(&graph, &plan), &mut Vec::new());
            let found = of.accuracy(&plan);
            assert!(
                (found - expected).abs() < 1e-9,
                "{found}, not {expected}: {graph:#?}"
            );
        }
    }
}

#[test]
fn the_cheapest_plan_that_is_accurate_enough_is_found() {
    let random = &mut ChaCha8Rng::seed_from_u64(11);
    for _ in 0..60 {
        let graph = random_graph(random);
        let routes = all_ways(&graph);
        let arrivals = arrivals(&routes);
        let load = Load {
            arrivals: &arrivals,
            routes: &routes,
        };
        let all: Vec<(f64, f64)> = plans(&graph)
            .map(|plan| {
                let right = by_hand(&graph, &accuracies(&graph, &plan), &mut Vec::new());
                (right, plan.cost(&graph))
            })
            .collect();
        let (worst, best) = all
            .iter()
            .fold((1.0f64, 0.0f64), |(worst, best), (right, _)| {
                (worst.min(*right), best.max(*right))
            });
        let least = random.random_range(worst..=best);
        let enough = all.iter().filter(|(right, _)| *right >= least);
        let cheapest = enough.map(|(_, cost)| *cost).fold(f64::INFINITY, f64::min);
        let found = search(&problem(&graph, load, least), Options::default());
        let cost = found.plan.unwrap().cost(&graph);
        assert!(
            (cost - cheapest).abs() < 1e-9,
            "{cost}, not {cheapest}: {graph:#?}"
        );
    }
}

#[test]
fn arms_that_exclude_each_other_add_up() {
    let arm = |asks: &str| Part {
        step: "score".to_owned(),
        asks: asks.to_owned(),
        after: Vec::new(),
        often: Frequency::WhereItCould(0.25),
        rows: 1.0,
        choices: vec![choice(asks, 0.6, 1.0)],
    };
    let arms = ["a", "b", "c", "d"].map(arm).to_vec();
    let graph = parts::graph(arms, &mut ChaCha8Rng::seed_from_u64(1)).unwrap();
    let routes = all_ways(&graph);
    let arrivals = arrivals(&routes);
    let load = Load {
        arrivals: &arrivals,
        routes: &routes,
    };
    let of = problem(&graph, load, 0.65);
    let plan = Plan {
        steps: vec![StepPlan::of(0, 1, 1); 4],
    };
    // As if they were independent, it would be 0.9 to the power of four, 0.656.
    assert!((of.accuracy(&plan) - 0.6).abs() < 1e-9);
    assert_eq!(search(&of, Options::default()).plan, None);
}

#[test]
fn what_was_measured_of_the_whole_is_the_accuracy_of_what_answered_then() {
    let part = |step: &str, after: &[&str]| Part {
        step: step.to_owned(),
        asks: "app".to_owned(),
        after: after.iter().map(|name| (*name).to_owned()).collect(),
        often: Frequency::OfAll(1.0),
        rows: 1.0,
        choices: vec![choice("low", 0.8, 1.0), choice("high", 0.9, 2.0)],
    };
    let parts = vec![part("find", &[]), part("read", &["find"])];
    let graph = parts::graph(parts, &mut ChaCha8Rng::seed_from_u64(1)).unwrap();
    let mut routes = Routes::new(2);
    routes.push(&[1, 1]);
    let load = Load {
        arrivals: &[0],
        routes: &routes,
    };
    let of = problem(&graph, load, 0.78);
    let mut whole = Whole {
        accuracy: 0.78,
        answered: vec![
            vec!["gone".to_owned(), "low".to_owned()],
            vec!["high".to_owned()],
        ],
    };
    // By the steps alone 0.8 * 0.9; steps whose errors go together do better.
    let (held, factor) = of.held_to(Some(&whole));
    assert!((factor.unwrap() * 0.72 - 0.78).abs() < 1e-9);
    let plan = search(&held, Options::default()).plan.unwrap();
    assert_eq!(plan.cost(&graph), 3.0, "as it was measured, or alike");
    let more = Problem {
        min_accuracy: 0.8,
        ..of
    };
    let plan = search(&more.held_to(Some(&whole)).0, Options::default()).plan;
    assert_eq!(plan.unwrap().cost(&graph), 4.0);
    whole.answered[0].pop();
    assert_eq!(
        of.held_to(Some(&whole)).1,
        None,
        "nobody knows what answered"
    );
    assert_eq!(of.held_to(None).0.min_accuracy, 0.78);
}
