//! A second kind of replicas for work that would fill the last replica of the first kind badly.
//!
//! Replicas are whole. If a step needs 2.1 replicas of an expensive kind, the third is idle most of the time, and a
//! cheaper device type may do its tenth (Harpagon plans such residual load with batches of its own). Replicas of the
//! main kind are exchanged for cheaper ones as long as the targets are met and the price falls. The variant must be as
//! accurate.

use super::{Group, Plan, Problem, StepPlan};

/// The most replicas of the second kind.
const MOST: u32 = 8;

/// The plan with second kinds where they save money, else unchanged.
pub fn with_residual(problem: &Problem<'_>, plan: &Plan) -> Plan {
    let mut best = plan.clone();
    for at in 0..plan.steps.len() {
        while let Some(next) = exchanged(problem, &best, at) {
            best = next;
        }
    }
    best
}

/// The cheapest feasible exchange: one replica of a step's main kind less, and others in its place.
fn exchanged(problem: &Problem<'_>, plan: &Plan, at: usize) -> Option<Plan> {
    let step = &problem.graph.steps()[at];
    let main = plan.steps[at].main();
    let fewer = main
        .replicas
        .checked_sub(1)
        .filter(|replicas| *replicas > 0)?;
    let own = &step.choices[main.choice];
    let second = plan.steps[at].groups.get(1).copied();
    let before = second.map_or(0.0, |group| {
        step.choices[group.choice].price * f64::from(group.replicas)
    });
    let mut ways = Vec::new();
    for (choice, other) in step.choices.iter().enumerate() {
        let is_second = second.is_none_or(|group| group.choice == choice);
        if choice == main.choice || other.accuracy < own.accuracy || !is_second {
            continue;
        }
        for replicas in 1..=MOST {
            let price = other.price * f64::from(replicas);
            if price < own.price + before - 1e-9 {
                ways.push((price, choice, replicas));
            }
        }
    }
    ways.sort_by(|a, b| a.0.total_cmp(&b.0));
    let plans = ways.into_iter().flat_map(|(_, choice, replicas)| {
        let batches = step.choices[choice].batches().into_iter().take(3);
        batches.map(move |batch| Group {
            choice,
            batch,
            replicas,
        })
    });
    let plans = plans.map(|group| {
        let mut next = plan.clone();
        let main = Group {
            replicas: fewer,
            ..main
        };
        next.steps[at] = StepPlan {
            groups: vec![main, group],
        };
        next
    });
    plans.into_iter().find(|next| problem.is_met(next))
}
