//! Our planner: it searches over variant, device type, largest batch and replicas of all steps.
//!
//! Each way to run a step, a number of replicas of a choice, is tried once on what would arrive if all steps before
//! took their least time ([`ways`]). This gives the wait of each query there. The combined effect of ways of several
//! steps is then predicted without a trial ([`predict`]), in some hundredths of the time of a trial.
//!
//! From the last step back, the search determines the least price at which the steps from there on are predicted to
//! meet the target ([`ahead`]). These prices bound the search over all steps ([`descent`]), which is depth-first. Each
//! partial plan is tried on the results of the steps before, and is continued where predictions on top of that see a
//! way to the end. A plan that is found has therefore been tried as a whole. The price limit rises in small steps until
//! a plan is found. After that, cheaper plans are searched for with less trust in predictions, as long as the effort
//! lasts.
//!
//! If the effort does not last, or only a part of a sample was searched, the plan of the published planners
//! ([`published`]) is taken if it is cheaper. A plan is therefore never more expensive than theirs because less was
//! examined than they examine. While effort is left, such a plan is planned anew two steps at a time, with all others
//! unchanged. On random pipelines the effort did not last for the first plan in one of some hundreds.

mod ahead;
mod descent;
mod order;
mod predict;
mod ways;

use super::{Plan, Problem, cg_mean, cg_peak, greedy, thin};
use crate::{
    estimate::Load,
    whole::{CoVisits, NONE},
};

use descent::Search;
pub(super) use order::Ordered;

/// Shares of the allowed misses with which a part of a sample is searched, one after the other, until a plan can be
/// mended. A plan that barely suffices on a part may lack time on the whole sample, which replicas do not add.
const STRICTER: [f64; 4] = [1.0, 0.75, 0.5, 0.25];

/// How much a search may spend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The most rows that are simulated in trials, at some tens of millions a second. Predictions count as the rows
    /// that take as long. If that many bring no plan, or do not determine what is cheaper than a plan, up to three
    /// times as many are simulated, and as many again to improve a published planner's plan. The rows of the published
    /// planners do not count.
    pub most_rows: u64,
    /// The most queries of the sample that are searched with. The result is then mended on the whole sample.
    pub most_queries: usize,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchResult {
    /// The cheapest plan; `None` if none meets the targets.
    pub plan: Option<Plan>,
    /// For [`search`]: whether the effort lasted until nothing cheaper was predicted to meet the targets, which is no
    /// proof. For [`super::exhaustive`]: whether it proved that nothing is cheaper.
    pub complete: bool,
    /// Rows that were simulated in trials. Predictions count as the rows that take as long.
    pub rows: u64,
}

/// The cheapest plan that is found. If it is not [`SearchResult::complete`], no plan of [`super::inferline`],
/// [`cg_peak`] or [`cg_mean`] that meets the targets is cheaper.
pub fn search(problem: &Problem<'_>, options: Options) -> SearchResult {
    let Some((arrivals, routes)) = thin::thin(problem, options.most_queries) else {
        return searched(problem, problem, options);
    };
    let load = Load {
        arrivals: &arrivals,
        routes: &routes,
    };
    let mut rows = 0;
    let mended = STRICTER.into_iter().find_map(|share| {
        let part = Problem {
            load,
            miss_share: problem.miss_share * share,
            ..*problem
        };
        let found = searched(&part, problem, options);
        rows += found.rows;
        thin::mended(problem, found.plan?)
    });
    // The whole sample may need less than its stretches, or other batches and device types.
    let price = mended.as_ref().map(|plan| plan.cost(problem.graph));
    let cheaper = published(problem, price.unwrap_or(f64::INFINITY));
    SearchResult {
        plan: cheaper.map(|plan| settled(problem, plan)).or(mended),
        complete: false,
        rows,
    }
}

/// The cheapest plan of the published planners that meets the targets and costs less than `price`, US dollars an hour.
fn published(problem: &Problem<'_>, price: f64) -> Option<Plan> {
    let (mut least, mut cheapest) = (price, None);
    for plan in [cg_mean(problem), cg_peak(problem)].into_iter().flatten() {
        let cost = plan.cost(problem.graph);
        if cost < least - NONE && problem.is_met(&plan) {
            (least, cheapest) = (cost, Some(plan));
        }
    }
    greedy::cheaper_than(problem, least).or(cheapest)
}

/// Searches with a part of a sample. Accuracies are those of the whole sample.
fn searched(part: &Problem<'_>, whole: &Problem<'_>, options: Options) -> SearchResult {
    let ordered = Ordered::new(part);
    let problem = ordered.problem(part);
    let together = CoVisits::of(whole.load.routes).reordered(&ordered.steps);
    let Some(mut search) = Search::new(problem, together, options.most_rows) else {
        return SearchResult {
            plan: None,
            complete: true,
            rows: 0,
        };
    };
    let complete = search.stages();
    let known = search.cost().unwrap_or(f64::INFINITY);
    if !complete && let Some(plan) = published(part, known) {
        search.improve(ordered.reordered(&plan));
    }
    let best = search.best.take().map(|(_, plan)| plan);
    SearchResult {
        plan: best.map(|plan| ordered.restored(settled(&problem, plan))),
        complete,
        rows: search.spent(),
    }
}

/// Of batches with the same price, chooses those with which fewest queries miss, because a plan for a sample must hold
/// for other queries as well.
fn settled(problem: &Problem<'_>, plan: Plan) -> Plan {
    let misses = |plan: &Plan| problem.estimate(plan).misses(problem.target);
    let mut best = (misses(&plan), plan);
    for step in 0..best.1.steps.len() {
        let group = best.1.steps[step].main();
        for batch in problem.graph.steps()[step].choices[group.choice].batches() {
            let mut other = best.1.clone();
            other.steps[step].groups[0].batch = batch;
            let missed = misses(&other);
            if missed < best.0 {
                best = (missed, other);
            }
        }
    }
    best.1
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self {
            most_rows: 3_000_000,
            most_queries: 3_000,
        }
    }
}
