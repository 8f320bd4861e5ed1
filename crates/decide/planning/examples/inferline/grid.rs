//! Planners over rates and burstiness (InferLine, figure 4.5): cost and misses, always together.

use sextant_planning::{
    plan::{Options, Plan, Problem, cg_mean, cg_peak, inferline, search},
    profiles::{Error, Set, names},
};

use crate::{Traffic, geometric, print, problem, text, traffic};

const RATES: [f64; 3] = [50.0, 150.0, 300.0];

/// Squared coefficients of variation. The thesis prints CV = variance / mean^2 and calls 4 its burstiest: by the usual
/// definition that is 16.
const VARIATIONS: [f64; 3] = [1.0, 4.0, 16.0];

const SAMPLE_S: f64 = 40.0;
const LIVE_S: f64 = 200.0;

#[derive(Default)]
struct Ratios {
    equal: Vec<f64>,
    at_target: Vec<f64>,
    variants: Vec<f64>,
    greedy: Vec<f64>,
    dearer: usize,
    more_misses: usize,
}

/// Over the sets that are named; all where none is.
pub fn run(named: &[String]) -> Result<(), Error> {
    let is_named = |set: &str| named.iter().any(|name| name == set);
    let any = names().into_iter().any(is_named);
    let mut all = Ratios::default();
    for set in names().into_iter().filter(|set| !any || is_named(set)) {
        let mut own = Ratios::default();
        for pipeline in Set::named(set)?.pipelines {
            for rate in RATES {
                for variation in VARIATIONS {
                    let name = format!("{set}/{}/{rate}/{variation}", pipeline.name);
                    let full = &pipeline.graph;
                    let graph = full.most_accurate();
                    let sample = traffic::constant(rate, variation, SAMPLE_S, 11);
                    let live = traffic::constant(rate, variation, LIVE_S, 12);
                    let (sample, live) = (
                        Traffic::new(&graph, sample, 13),
                        Traffic::new(&graph, live, 14),
                    );
                    let of = problem(&graph, sample.load(), pipeline.latency_ms);
                    let later = Problem {
                        load: live.load(),
                        ..of
                    };
                    cell(&name, &of, &later, &mut own);
                    let free = Problem {
                        graph: full,
                        min_accuracy: pipeline.min_accuracy,
                        ..of
                    };
                    if let (Some(coarse), Some(plan)) =
                        (cg_peak(&of), search(&free, Options::default()).plan)
                    {
                        let later = Problem {
                            graph: full,
                            ..later
                        };
                        let (cost, missed) = shown(&name, "sextant-variants", &later, &plan);
                        let peak = Problem {
                            graph: &graph,
                            ..later
                        };
                        if missed <= 0.01 || missed <= misses(&peak, &coarse) {
                            own.variants.push(coarse.cost(&graph) / cost);
                        }
                    }
                }
            }
        }
        own.print(set);
        all.equal.extend(&own.equal);
        all.at_target.extend(&own.at_target);
        all.variants.extend(&own.variants);
        all.greedy.extend(&own.greedy);
        all.dearer += own.dearer;
        all.more_misses += own.more_misses;
    }
    all.print("all");
    Ok(())
}

fn misses(of: &Problem<'_>, plan: &Plan) -> f64 {
    of.estimate(plan).missed_share(of.target)
}

fn shown(cell: &str, planner: &str, later: &Problem<'_>, plan: &Plan) -> (f64, f64) {
    let (cost, missed) = (plan.cost(later.graph), misses(later, plan));
    print(
        "inferline-fig4.5",
        cell,
        &format!("{planner}_cost_usd_per_hour"),
        cost,
    );
    print(
        "inferline-fig4.5",
        cell,
        &format!("{planner}_missed_percent"),
        missed * 100.0,
    );
    if std::env::var("PLANS").is_ok() {
        eprintln!(
            "{cell} {planner} {cost:.3} {:.3} % {}",
            missed * 100.0,
            text(later.graph, plan)
        );
    }
    (cost, missed)
}

fn cell(name: &str, of: &Problem<'_>, later: &Problem<'_>, ratios: &mut Ratios) {
    if let Some(mean) = cg_mean(of) {
        shown(name, "cg-mean", later, &mean);
    }
    let Some(peak) = cg_peak(of) else {
        return;
    };
    let (coarse, coarse_missed) = shown(name, "cg-peak", later, &peak);
    let Some(plan) = search(of, Options::default()).plan else {
        return;
    };
    let (own, own_missed) = shown(name, "sextant", later, &plan);
    if own_missed <= 0.015 {
        ratios.at_target.push(coarse / own);
    }
    if let Some(greedy) = inferline(of) {
        let (cost, missed) = shown(name, "inferline", later, &greedy);
        ratios.greedy.push(cost / own);
        ratios.dearer += usize::from(own > cost + 1e-9);
        ratios.more_misses += usize::from(own_missed > missed.max(0.01));
    }
    // No more misses than the baseline's: of plans for shorter targets the cheapest for which that holds.
    let strict = [0.01, 0.0]
        .into_iter()
        .flat_map(|share| [1.0, 0.85, 0.7].map(|part| (share, part)));
    let plans = strict.filter_map(|(miss_share, part)| {
        let strict = Problem {
            target: (of.target as f64 * part) as u64,
            miss_share,
            ..*of
        };
        search(&strict, Options::default()).plan
    });
    let plans = plans.filter(|plan| misses(later, plan) <= coarse_missed);
    let cheapest = plans.min_by(|a, b| a.cost(of.graph).total_cmp(&b.cost(of.graph)));
    if let Some(plan) = cheapest {
        let (cost, _) = shown(name, "sextant-equal", later, &plan);
        ratios.equal.push(coarse / cost);
    }
}

impl Ratios {
    fn print(&self, set: &str) {
        let say = |metric: &str, value: f64| print("inferline-fig4.5", set, metric, value);
        let best = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        say("cells_count", self.at_target.len() as f64);
        say("plan_cost_ratio_mean", geometric(&self.equal));
        say("plan_cost_ratio_best", best(&self.equal));
        say(
            "plan_cost_equal_misses_cells_count",
            self.equal.len() as f64,
        );
        say("plan_cost_at_target_ratio_mean", geometric(&self.at_target));
        say("plan_cost_at_target_ratio_best", best(&self.at_target));
        say(
            "plan_cost_with_variants_ratio_mean",
            geometric(&self.variants),
        );
        say("inferline_cost_ratio_mean", geometric(&self.greedy));
        say("dearer_than_inferline_count", self.dearer as f64);
        say("more_misses_than_inferline_count", self.more_misses as f64);
    }
}
