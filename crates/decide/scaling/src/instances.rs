//! The integer program of INFaaS (section 4.2), solved exactly.
//!
//! An instance of a choice answers `rps` queries a second, occupies `memory_share` of a device of its type, and costs
//! that share of the device's price:
//!
//! ```text
//! minimise  sum_c C_c (N_c + lambda T_c max(N_c - running_c, 0))       C_c = price * memory share
//! (1)  sum_c rps_c N_c >= slack * rate      for every need
//! (3)  sum_c share_c N_c <= most            for every type of device
//! (4)  N_c whole, at least 0
//! ```
//!
//! Constraint (2), that an answer comes in time, is part of the definition of a choice. Only (3) joins one need with
//! another, and there are few types of devices, so (3) is priced (Lagrange). Given a price for the memory of each type,
//! every need has a cheapest cover of its own, which a small search finds. The prices that maximise the sum bound the
//! optimum from below. The bound determines which covers of each need could be part of a better answer than the best
//! one known. Few are left, and these are joined. A branch and bound over all variables at once does not end within a
//! minute for 100 needs of 8 choices.

mod cover;
mod join;

use self::{cover::Covers, join::JointCover};
use super::{Plan, Problem};

/// The parameters that the program leaves open.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weights {
    /// Capacity relative to the demand; INFaaS's slack threshold.
    pub slack: f64,
    /// `lambda`, the weight of a second of loading, 1/s. It is large if load is hard to forecast.
    pub load_per_s: f64,
    /// Steps of the search, over all needs.
    pub steps: u64,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            slack: 1.05,
            load_per_s: 0.01,
            steps: 5_000_000,
        }
    }
}

/// The cheapest instances; `None` if there is not room for enough.
pub fn plan(problem: &Problem, weights: Weights) -> Option<Plan> {
    let covers: Option<Vec<Covers>> = (0..problem.needs.len())
        .map(|need| Covers::new(problem, need, weights))
        .collect();
    let rooms: Vec<f64> = problem
        .devices
        .iter()
        .map(|device| f64::from(device.most.max(device.least)))
        .collect();
    let joined = join::join(&covers?, &rooms, weights.steps)?;
    Some(plan_of(problem, &joined, weights.slack))
}

/// Price of an instance of a choice, US dollars an hour.
pub(super) fn price(problem: &Problem, choice: &super::Choice) -> f64 {
    problem.devices[choice.kind()].price_per_hour_usd * choice.memory_share
}

/// What instances serve and cost. A need's queries are divided among them by what each can do. Devices have memory for
/// the instances, and time for `slack` times what they serve.
pub(super) fn serve(problem: &Problem, instances: Vec<u32>, slack: f64) -> Plan {
    let mut plan = Plan {
        served_rps: vec![0.0; problem.choices.len()],
        unserved_rps: vec![0.0; problem.needs.len()],
        ..Plan::default()
    };
    for (at, need) in problem.needs.iter().enumerate() {
        let of_need = || {
            problem
                .choices_of(at)
                .map(|(position, choice)| (position, choice.rps * f64::from(instances[position])))
        };
        let capacity: f64 = of_need().map(|(_, rps)| rps).sum();
        let served = need.rps.min(capacity);
        plan.unserved_rps[at] = need.rps - served;
        for (position, rps) in of_need().filter(|(_, rps)| *rps > 0.0) {
            plan.served_rps[position] = served * rps / capacity;
        }
    }
    let mut shares = vec![0.0; problem.devices.len()];
    // A device answers no more because its memory holds more instances.
    let mut busy = vec![0.0; problem.devices.len()];
    let each = problem.choices.iter().zip(&instances);
    for ((choice, count), served) in each.zip(&plan.served_rps) {
        shares[choice.kind()] += choice.memory_share * f64::from(*count);
        busy[choice.kind()] += served * slack / choice.rps;
        let price = price(problem, choice);
        plan.cost_per_hour_usd += price * f64::from(*count);
    }
    let needed = shares.iter().zip(busy).map(|(share, busy)| share.max(busy));
    let devices = problem.devices.iter().zip(needed).map(|(device, needed)| {
        let needed = (needed - 1e-9).ceil().max(0.0) as u32;
        needed.clamp(device.least, device.most.max(device.least))
    });
    plan.devices = devices.collect();
    plan.instances = instances;
    plan
}

fn plan_of(problem: &Problem, joined: &JointCover, slack: f64) -> Plan {
    let mut instances = vec![0; problem.choices.len()];
    for (position, count) in joined.instances() {
        instances[position] += count;
    }
    Plan {
        optimal: joined.optimal,
        ..serve(problem, instances, slack)
    }
}
