//! Our planner: over variant, device type, largest batch and replicas of all steps.
//!
//! Each way to run a step, so many replicas of a choice, is tried once on what would come if all steps before took
//! their least ([`ways`]). That tells how long each query would wait there. What ways of several steps come to together
//! is then predicted without a trial ([`predict`]), in some hundredths of the time of one.
//!
//! From the last step back the least price is sought at which the steps from there on are predicted to do ([`ahead`]). These
//! prices bound the search over all steps ([`descent`]), which goes in depth: each start of a plan is tried in truth, on
//! what came of the steps before, and gone on from where predictions on top of that see a way to the end. So a plan that is
//! found has been tried as a whole. The price that may be reached rises by a little until one is. After that what is
//! cheaper is sought with less trust in predictions, as long as the effort lasts.
//!
//! Where the effort does not last, or a part of a sample was searched, what the published planners come to ([`published`]) is
//! taken where that is cheaper: so a plan is never dearer than theirs because less was looked at than they look at. While there
//! is effort left for it, two steps at a time of such a plan are planned anew, all others as they are. On random pipelines the
//! effort did not last for the first plan in one of some hundreds.

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

/// Shares of the allowed misses with which a part of a sample is searched, one after the other, until a plan can be mended:
/// what just does on a part may lack time on the whole, which replicas do not bring.
const STRICTER: [f64; 4] = [1.0, 0.75, 0.5, 0.25];

/// How much a search may spend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Most rows that are served in trials, of which some tens of millions are a second; predictions count as rows that take as
    /// long. Where so many bring no plan, or do not tell what is cheaper than one, up to three times as many are served, and
    /// as many again to improve a published planner's plan. What these planners serve themselves does not count.
    pub most_rows: u64,
    /// Most queries of the sample that are searched with; what is found is then mended on the whole sample.
    pub most_queries: usize,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchResult {
    /// The cheapest plan; `None` where none meets the targets.
    pub plan: Option<Plan>,
    /// Of [`search`] whether the effort lasted until nothing cheaper was predicted to do, which is no proof. Of
    /// [`super::exhaustive`] whether it proved that nothing is cheaper.
    pub complete: bool,
    /// Rows that were served in trials, and predictions as rows that take as long.
    pub rows: u64,
}

/// The cheapest plan that is found. Where it is not [`SearchResult::complete`], no plan of [`super::inferline`], [`cg_peak`] or
/// [`cg_mean`] that meets the targets is cheaper.
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
    // The whole sample may ask for less than its stretches did, or for other batches and device types.
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

/// Searches with a part of a sample. Accuracies are those of the whole.
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

/// Of equally dear batches those with which fewest queries miss: what was planned for a sample must hold for other
/// queries as well.
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
