//! Random pipelines: how often the search finds what exhaustive search finds, and how long it takes.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_planning::{
    Choice, Graph, Scale, Step,
    plan::{Options, Plan, StepPlan, exhaustive, inferline, search},
    profiles::table,
};

use crate::{Traffic, computed_ms, print, problem, quantile, traffic};

const QUERIES: f64 = 1500.0;

/// Rows that exhaustive search may serve for one pipeline.
const MOST_ROWS: u64 = 400_000_000;

/// Runs this many pipelines, starting with the one of the seed `from`.
pub fn run(count: u64, from: u64) {
    let (mut equal, mut worst, mut proven, mut greedy_equal, mut planned) =
        (0u64, 1.0f64, 0u64, 0u64, 0u64);
    let mut overlooked = 0u64;
    let (mut times, mut first) = (Vec::new(), true);
    for seed in from..from + count {
        let random = &mut ChaCha8Rng::seed_from_u64(seed);
        let (graph, latency_ms) = pipeline(random);
        let rate = random.random_range(40.0..200.0);
        let variation = [1.0, 4.0][random.random_range(0..2)];
        let sample = Traffic::new(
            &graph,
            traffic::constant(rate, variation, QUERIES / rate, seed),
            seed,
        );
        let mut of = problem(&graph, sample.load(), latency_ms);
        let best = graph.steps().iter().map(Step::quickest_of_most_accurate);
        let best = best.map(|at| StepPlan::of(at.unwrap_or_default(), 1, 1));
        let most = of.accuracy(&Plan {
            steps: best.collect(),
        });
        of.min_accuracy = most * random.random_range(0.9..0.99);
        if first {
            search(&of, Options::default());
            first = false;
        }
        let started = computed_ms();
        let found = search(&of, Options::default());
        times.push(computed_ms() - started);
        let Some(plan) = found.plan else {
            overlooked += u64::from(exhaustive(&of, None, MOST_ROWS).plan.is_some());
            continue;
        };
        planned += 1;
        let best = exhaustive(&of, Some(&plan), MOST_ROWS);
        proven += u64::from(best.complete);
        let cost = best.plan.map_or(f64::NAN, |best| best.cost(&graph));
        let ratio = plan.cost(&graph) / cost;
        equal += u64::from(ratio < 1.0 + 1e-9 && best.complete);
        worst = worst.max(ratio);
        greedy_equal +=
            u64::from(inferline(&of).is_some_and(|plan| plan.cost(&graph) < cost * (1.0 + 1e-9)));
        if std::env::var("PLANS").is_ok() {
            eprintln!(
                "{seed} steps {} ratio {ratio:.4} complete {} {} rows {} {} {:.1} ms {:.1} s",
                graph.steps().len(),
                found.complete,
                best.complete,
                found.rows,
                best.rows,
                times[times.len() - 1],
                (computed_ms() - started) / 1e3
            );
        }
    }
    let say = |metric: &str, value: f64| print("inferline-optimal", "", metric, value);
    say("pipelines_count", planned as f64);
    say("overlooked_count", overlooked as f64);
    say("searched_to_the_end_count", proven as f64);
    say("planner_optimal_share", equal as f64 / proven.max(1) as f64);
    say("planner_worst_ratio", worst);
    say(
        "inferline_optimal_share",
        greedy_equal as f64 / planned.max(1) as f64,
    );
    say("planning_p50_ms", quantile(&mut times, 0.5));
    say("planning_p99_ms", quantile(&mut times, 0.99));
}

/// 2 to 5 steps of 3 to 8 variants on two device types, batches of 1 to 32 rows; and a latency target, ms.
fn pipeline(random: &mut ChaCha8Rng) -> (Graph, f64) {
    let count = random.random_range(2..=5);
    let mut target = 0.0;
    let steps = (0..count).map(|at| {
        let after = if at == 0 {
            Vec::new()
        } else {
            vec![random.random_range(0..at)]
        };
        let conditional = at > 0 && random.random::<f64>() < 0.4;
        let probability = if conditional {
            random.random_range(0.2..0.9)
        } else {
            1.0
        };
        let base = 2f64.powf(random.random_range(0.0..4.0));
        target += 3.0 * base;
        let variants = random.random_range(3..=8);
        let mut choices = Vec::new();
        for variant in 0..variants {
            let size = base * random.random_range(0.3..1.6);
            let accuracy =
                (0.75 + 0.07 * (size / base) + random.random_range(-0.02..0.04)).min(0.99);
            for (device, price, fixed, each) in [("cpu", 0.07, 0.2, 4.0), ("gpu", 0.6, 0.9, 0.25)] {
                let points: Vec<(u32, f64)> = [1u32, 2, 4, 8, 16, 32]
                    .map(|rows| (rows, size * (fixed + each * f64::from(rows))))
                    .to_vec();
                choices.push(Choice {
                    variant: format!("v{variant}"),
                    accuracy,
                    device: device.to_owned(),
                    price,
                    latency: table(&points).expect("rows and times above 0"),
                });
            }
        }
        Step {
            name: format!("s{at}"),
            after,
            scale: Scale {
                probability,
                rows: 1.0,
            },
            choices,
        }
    });
    let graph = Graph::new(steps.collect()).expect("steps by the rules above");
    (graph, target * random.random_range(1.2..2.5))
}
