//! The devices beyond the plan that the budget pays for.
//!
//! A plan costs no more than the budget. Measurements may require more devices than the plan has, and devices that were
//! planned for earlier stay for a while. Both are kept only as far as the budget pays for them.

use super::{DeviceTarget, PlannerInput};
use crate::{Plan, Problem};

/// Costs that differ by less than this are equal, US dollars an hour.
const SAME_USD: f64 = 1e-9;

/// Whether the budget pays for a plan's devices, or they are no more than the least numbers that are required whatever
/// they cost.
pub(super) fn is_affordable(problem: &Problem, plan: &Plan) -> bool {
    let least: Vec<u32> = problem.devices.iter().map(|device| device.least).collect();
    let least = problem.cost_per_hour_usd(&least);
    let cost = problem.cost_per_hour_usd(&plan.devices);
    let budget = problem.budget_per_hour_usd;
    budget.is_none_or(|budget| cost <= budget.max(least) + SAME_USD)
}

/// Removes devices beyond the plan, those of the most expensive type first, until the rest costs no more than the
/// budget. The planned devices, the least number of a type and devices without a provider stay.
pub(super) fn limit(input: &PlannerInput, planned: &[(u32, f64)], all: &mut [DeviceTarget]) {
    let Some(budget) = input.problem.budget_per_hour_usd else {
        return;
    };
    let price = |at: usize| input.problem.devices[at].price_per_hour_usd;
    let cost = all.iter().enumerate();
    let cost = cost.map(|(at, it)| f64::from(it.devices) * price(at));
    let mut excess = cost.sum::<f64>() - budget;
    let mut dearest: Vec<usize> = (0..all.len())
        .filter(|at| input.kinds[*at].managed && price(*at) > 0.0)
        .collect();
    dearest.sort_by(|one, other| price(*other).total_cmp(&price(*one)));
    for at in dearest {
        if excess <= SAME_USD {
            return;
        }
        let floor = planned[at].0.max(input.problem.devices[at].least);
        let beyond = all[at].devices.saturating_sub(floor);
        // The cast saturates.
        let taken = beyond.min(((excess - SAME_USD) / price(at)).ceil() as u32);
        all[at].devices -= taken;
        excess -= f64::from(taken) * price(at);
        if taken == beyond {
            all[at].trigger = None;
        }
    }
}
