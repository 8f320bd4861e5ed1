//! Takes a part of a large sample to search with, and mends the resulting plan on the whole sample.

use super::{Plan, Problem};
use crate::{Nanos, Routes};

/// The number of stretches of a sample that are kept.
const STRETCHES: usize = 8;

/// The most times that replicas are added, and the most consecutive times that save no miss.
const MOST_MORE: usize = 200;
const MOST_IN_VAIN: usize = 8;

/// Evenly spread stretches of the sample, with `most` queries together; `None` if the sample has no more than that. Two
/// stretches are separated by a gap as long as the target, in which queues empty.
pub(super) fn thin(problem: &Problem<'_>, most: usize) -> Option<(Vec<Nanos>, Routes)> {
    let arrivals = problem.load.arrivals;
    let each = most.max(STRETCHES) / STRETCHES;
    if arrivals.len() <= each * STRETCHES {
        return None;
    }
    let mut kept = Vec::with_capacity(each * STRETCHES);
    let mut routes = Routes::new(problem.graph.steps().len());
    let mut begin = 0;
    for stretch in 0..STRETCHES {
        let first = (arrivals.len() - each) * stretch / (STRETCHES - 1);
        for at in first..first + each {
            kept.push(begin + arrivals[at] - arrivals[first]);
            routes.push(problem.load.routes.of(at));
        }
        begin = kept[kept.len() - 1] + problem.target;
    }
    Some((kept, routes))
}

/// The plan with as many more replicas as the whole sample needs, each where it saves most misses for its price, and
/// without replicas that the sample does not need. `None` if more replicas do not help.
pub(super) fn mended(problem: &Problem<'_>, mut plan: Plan) -> Option<Plan> {
    let (mut fewest, mut in_vain) = (usize::MAX, 0);
    for _ in 0..MOST_MORE {
        let misses = problem.estimate(&plan).misses(problem.target);
        if misses <= problem.may_miss() {
            return Some(trimmed(problem, plan));
        }
        in_vain = if misses < fewest { 0 } else { in_vain + 1 };
        fewest = fewest.min(misses);
        if in_vain > MOST_IN_VAIN {
            return None;
        }
        plan = more(problem, &plan, misses)?;
    }
    None
}

fn more(problem: &Problem<'_>, plan: &Plan, misses: usize) -> Option<Plan> {
    let steps = 0..plan.steps.len();
    let ways = steps.map(|at| {
        let mut next = plan.clone();
        let group = &mut next.steps[at].groups[0];
        // Adds a tenth at once, because a queue that grows without bound needs many.
        let added = (group.replicas / 10).max(1);
        group.replicas += added;
        let price = problem.graph.steps()[at].choices[group.choice].price * f64::from(added);
        let left = problem.estimate(&next).misses(problem.target);
        ((misses as f64 - left as f64) / price, next)
    });
    ways.max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, next)| next)
}

/// Removes replicas without which the targets are still met, the most expensive first.
fn trimmed(problem: &Problem<'_>, mut plan: Plan) -> Plan {
    let price = |plan: &Plan, at: usize| {
        problem.graph.steps()[at].choices[plan.steps[at].main().choice].price
    };
    let mut order: Vec<usize> = (0..plan.steps.len()).collect();
    order.sort_by(|a, b| price(&plan, *b).total_cmp(&price(&plan, *a)));
    for at in order {
        while plan.steps[at].main().replicas > 1 {
            let mut next = plan.clone();
            next.steps[at].groups[0].replicas -= 1;
            if !problem.is_met(&next) {
                break;
            }
            plan = next;
        }
    }
    plan
}
