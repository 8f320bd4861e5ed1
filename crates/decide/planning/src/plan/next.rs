//! The next cheaper plan, and why it does not meet the targets.

use super::{Plan, Problem, StepPlan};
use crate::{Nanos, Step};

/// A plan to compare with another.
#[derive(Debug, Clone, PartialEq)]
pub struct Alternative {
    /// The plan.
    pub plan: Plan,
    /// Price, US dollars an hour.
    pub cost: f64,
    /// Why it does not meet the targets.
    pub why: Shortfall,
}

/// Why a plan does not meet the targets.
#[derive(Debug, Clone, PartialEq)]
pub enum Shortfall {
    /// The whole pipeline is not accurate enough.
    Accuracy {
        /// Its accuracy, 0 to 1.
        accuracy: f64,
    },
    /// Too many queries miss the latency target.
    Latency {
        /// The share of queries that miss it, 0 to 1.
        missed: f64,
        /// The latency at the allowed quantile, ns.
        quantile: Nanos,
        /// The step that differs.
        step: String,
        /// Its busy time over the time of its replicas. Above 1 its queue grows without bound.
        load: f64,
    },
}

/// Of the plans that differ in one step and are cheaper, the most expensive one that at least has room for the load of
/// that step, else the most expensive one. `None` if there is none. A plan that meets the targets, which a search that
/// ended early may have missed, is not considered.
pub fn next_cheaper(problem: &Problem<'_>, plan: &Plan) -> Option<Alternative> {
    let cost = plan.cost(problem.graph);
    let mut others: Vec<(f64, usize, Plan)> = Vec::new();
    for (at, step) in problem.graph.steps().iter().enumerate() {
        for changed in changes(step, &plan.steps[at]) {
            let mut next = plan.clone();
            next.steps[at] = changed;
            let price = next.cost(problem.graph);
            if price < cost - 1e-9 {
                others.push((price, at, next));
            }
        }
    }
    others.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.2.cmp(&b.2)));
    let failing = others
        .into_iter()
        .map(|(cost, at, plan)| (why(problem, &plan, at), cost, plan));
    let mut dearest = None;
    for next in failing.filter_map(|(why, cost, plan)| {
        Some(Alternative {
            why: why?,
            cost,
            plan,
        })
    }) {
        if next.why.has_room() {
            return Some(next);
        }
        dearest = dearest.or(Some(next));
    }
    dearest
}

impl Shortfall {
    /// Whether the replicas suffice for the mean load.
    fn has_room(&self) -> bool {
        match self {
            Self::Accuracy { .. } => true,
            Self::Latency { load, .. } => *load < 1.0,
        }
    }
}

impl std::fmt::Display for Shortfall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Accuracy { accuracy } => write!(f, "the whole would be {accuracy:.4} accurate"),
            Self::Latency {
                missed,
                quantile,
                step,
                load,
            } => {
                let (percent, ms) = (missed * 100.0, *quantile as f64 / 1e6);
                match *load < 1.0 {
                    true => write!(
                        f,
                        "{percent:.2} % of the queries would be late, the quantile is {ms:.1} ms: step `{step}` would be busy for {:.0} % of the time",
                        load * 100.0
                    ),
                    false => write!(
                        f,
                        "{percent:.2} % of the queries would be late: step `{step}` would get {load:.2} times what it can do"
                    ),
                }
            }
        }
    }
}

/// One replica less, or as many of another choice as are just cheaper.
fn changes(step: &Step, plan: &StepPlan) -> Vec<StepPlan> {
    let mut changes = Vec::new();
    for at in 0..plan.groups.len() {
        let mut fewer = plan.clone();
        fewer.groups[at].replicas -= 1;
        fewer.groups.retain(|group| group.replicas > 0);
        if !fewer.groups.is_empty() {
            changes.push(fewer);
        }
    }
    let cost = plan.cost(step);
    for (at, choice) in step.choices.iter().enumerate() {
        let most = ((cost - 1e-9) / choice.price).floor() as u32;
        if at != plan.main().choice && most > 0 {
            let batch = choice
                .batches()
                .into_iter()
                .rfind(|batch| *batch <= plan.main().batch);
            changes.push(StepPlan::of(at, batch.unwrap_or(1), most));
        }
    }
    changes
}

fn why(problem: &Problem<'_>, plan: &Plan, at: usize) -> Option<Shortfall> {
    if !problem.is_accurate(plan) {
        let accuracy = problem.accuracy(plan);
        return Some(Shortfall::Accuracy { accuracy });
    }
    let estimate = problem.estimate(plan);
    if estimate.misses(problem.target) <= problem.may_miss() {
        return None;
    }
    let replicas: u32 = plan.steps[at]
        .groups
        .iter()
        .map(|group| group.replicas)
        .sum();
    let ns = problem.seconds() * 1e9 * f64::from(replicas);
    Some(Shortfall::Latency {
        missed: estimate.missed_share(problem.target),
        quantile: estimate.quantile(1.0 - problem.miss_share),
        step: problem.graph.steps()[at].name.clone(),
        load: estimate.busy[at] as f64 / ns.max(1.0),
    })
}
