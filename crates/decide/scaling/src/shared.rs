//! Our planner: the cheapest devices that have time for everything.
//!
//! A device runs the variants that are loaded on it by turns. A query occupies a share of the device's time: `1 / rps`
//! seconds. Devices are therefore counted, and variants are not:
//!
//! ```text
//! minimise   sum_t price_t (n_t + start_t up_t) + sum_d worth_d u_d
//! for all d  sum_c x_c + u_d = 1                        c: choices of the need d
//! for all t  sum_c rate_d / rps_c x_c <= busy_t n_t     c: choices on devices of type t
//!            n_t - up_t <= now_t,  least_t <= n_t <= most_t,  n_t whole
//!            sum_t price_t n_t <= budget
//! ```
//!
//! `x_c` is the share of a need that a choice answers, and `u_d` the share that nothing answers. Leaving queries
//! unanswered costs more than any device. Only the `n_t` are whole, one for each type, so the exact optimum is found in
//! milliseconds. Replicating, upgrading and downgrading need no rules of their own: a more expensive device that
//! answers more pays as soon as the cheap ones together cost more.
//!
//! How busy devices may be depends on how many there are. INFaaS keeps a slack of 1.05 for every number. Queries that
//! arrive at random need a margin that grows with the square root of the load (square-root staffing: Halfin and Whitt
//! 1981): with `s` slots busy on average, `s + MARGIN sqrt(s)` slots. That is 1.05 for 64 slots, more for fewer and
//! less for more.

use microlp::{ComparisonOp, OptimizationDirection, SolveOptions, Variable};

use super::{Plan, Problem};

/// Slots beyond those that are busy on average, in square roots of their number.
pub const MARGIN: f64 = 0.4;

/// The weight of starting a device relative to an hour of it, in hours for each hour that it takes to start: it answers
/// no query in that time.
const START_WEIGHT: f64 = 1.0;

/// The number of times that plans are made, each with the margin of the one before.
const ROUNDS: usize = 2;

/// Smaller shares count as zero.
const NONE: f64 = 1e-6;

/// When the search for the optimum is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// The most linear programs that are solved for a plan. They are counted and not timed, so that the same problem
    /// has the same plan on every machine.
    pub programs: u64,
}

impl Default for Effort {
    fn default() -> Self {
        Self { programs: 2000 }
    }
}

/// The cheapest plan; the greedy one ([`greedy`]) if the search found nothing better.
pub fn plan(problem: &Problem, effort: Effort) -> Plan {
    let greedy = greedy(problem);
    let mut busy: Vec<f64> = busy_shares(problem, &greedy);
    let mut best = None;
    for _ in 0..ROUNDS {
        let Some(found) = solve(problem, &busy, effort) else {
            break;
        };
        let next = busy_shares(problem, &found);
        let same = next.iter().zip(&busy).all(|(a, b)| (a - b).abs() < 1e-3);
        best = Some(found);
        if same {
            break;
        }
        busy = next;
    }
    match best.map(|found| with_margin(problem, found)) {
        Some(found) if worth(problem, &found) <= worth(problem, &greedy) + NONE => found,
        _ => greedy,
    }
}

/// Assigns each need to the cheapest device for its queries, then gives up types whose queries fit elsewhere.
pub fn greedy(problem: &Problem) -> Plan {
    let mut allowed = vec![true; problem.devices.len()];
    let mut best = assign(problem, &allowed);
    for _ in 0..problem.devices.len() {
        let without = |at: usize| {
            let mut allowed = allowed.clone();
            allowed[at] = false;
            (assign(problem, &allowed), allowed)
        };
        let used = (0..allowed.len()).filter(|at| allowed[*at] && best.devices[*at] > 0);
        let tried = used.map(without);
        let cheapest = tried
            .min_by(|(a, _), (b, _)| worth(problem, a).total_cmp(&worth(problem, b)))
            .filter(|(plan, _)| worth(problem, plan) + NONE < worth(problem, &best));
        let Some((plan, now_allowed)) = cheapest else {
            break;
        };
        (best, allowed) = (plan, now_allowed);
    }
    best
}

/// The number of devices that are needed if this many are busy on average.
pub fn staffed(busy_devices: f64, slots: u32) -> u32 {
    if busy_devices <= NONE {
        return 0;
    }
    let busy_slots = busy_devices * f64::from(slots.max(1));
    let slots_needed = busy_slots + MARGIN * busy_slots.sqrt();
    // A rounding error is not a device.
    let devices = (slots_needed / f64::from(slots.max(1)) - NONE).ceil();
    (devices.max(1.0)).min(f64::from(u32::MAX)) as u32
}

/// The inverse of [`staffed`]: how many of this many devices may be busy on average.
pub fn busy_of(devices: u32, slots: u32) -> f64 {
    let slots = f64::from(slots.max(1));
    let root = (-MARGIN + (MARGIN * MARGIN + 4.0 * f64::from(devices) * slots).sqrt()) / 2.0;
    root * root / slots
}

/// Whether the greedy assignment answers everything.
pub(super) fn fits(problem: &Problem) -> bool {
    let plan = assign(problem, &vec![true; problem.devices.len()]);
    let mut needs = problem.needs.iter().zip(&plan.unserved_rps);
    needs.all(|(need, unserved)| *unserved <= need.rps * NONE)
}

/// The cost of a plan, including the cost of what it leaves unanswered.
fn worth(problem: &Problem, plan: &Plan) -> f64 {
    let unserved = problem.needs.iter().zip(&plan.unserved_rps).enumerate();
    let missing = unserved.filter(|(_, (need, _))| need.rps > 0.0);
    plan.cost_per_hour_usd
        + missing
            .map(|(at, (need, unserved))| worth_of(problem, at) * unserved / need.rps)
            .sum::<f64>()
}

/// The cost of leaving all of a need unanswered: more than its most expensive answer on devices of its own.
fn worth_of(problem: &Problem, need: usize) -> f64 {
    let of = &problem.needs[need];
    let prices = problem.choices_of(need).map(|(_, choice)| {
        let price = problem.devices[choice.kind()].price_per_hour_usd;
        price * (1.0 + of.rps / choice.rps)
    });
    10.0 * of.weight * (prices.fold(0.0, f64::max) + 1e-3)
}

/// By type: how busy devices may be on average, 0 to 1, if as many are used as in a plan.
fn busy_shares(problem: &Problem, plan: &Plan) -> Vec<f64> {
    let used = busy_devices(problem, plan);
    let devices = problem.devices.iter().zip(used);
    let share = |(device, used): (&super::Device, f64)| {
        let slots = (used * f64::from(device.slots.max(1))).max(0.25);
        slots / (slots + MARGIN * slots.sqrt())
    };
    devices.map(share).collect()
}

/// By type: the number of devices that are busy on average.
pub fn busy_devices(problem: &Problem, plan: &Plan) -> Vec<f64> {
    let mut used = vec![0.0; problem.devices.len()];
    for (choice, served) in problem.choices.iter().zip(&plan.served_rps) {
        used[choice.kind()] += served / choice.rps;
    }
    used
}

/// The plan with as many devices as the margin requires, within bounds.
fn with_margin(problem: &Problem, mut plan: Plan) -> Plan {
    let used = busy_devices(problem, &plan);
    for ((device, used), count) in problem.devices.iter().zip(used).zip(&mut plan.devices) {
        let staffed =
            staffed(used, device.slots).clamp(device.least, device.most.max(device.least));
        let affordable = problem.budget_per_hour_usd.is_none();
        if affordable {
            *count = staffed.max(*count);
        }
    }
    plan.cost_per_hour_usd = problem.cost_per_hour_usd(&plan.devices);
    plan
}

/// Assigns each need to the allowed type on which a query is cheapest, as far as there may be devices.
fn assign(problem: &Problem, allowed: &[bool]) -> Plan {
    let mut plan = Plan {
        devices: problem.devices.iter().map(|device| device.least).collect(),
        served_rps: vec![0.0; problem.choices.len()],
        instances: vec![0; problem.choices.len()],
        unserved_rps: problem.needs.iter().map(|need| need.rps).collect(),
        ..Plan::default()
    };
    let price =
        |choice: &super::Choice| problem.devices[choice.kind()].price_per_hour_usd / choice.rps;
    let mut used = vec![0.0; problem.devices.len()];
    let mut order: Vec<usize> = (0..problem.needs.len()).collect();
    order.sort_by(|a, b| {
        problem.needs[*b]
            .weight
            .total_cmp(&problem.needs[*a].weight)
    });
    for need in order {
        let usable = problem
            .choices_of(need)
            .filter(|(_, choice)| allowed[choice.kind()]);
        let mut usable: Vec<_> = usable.collect();
        usable.sort_by(|(_, a), (_, b)| price(a).total_cmp(&price(b)));
        for (at, choice) in usable {
            let kind = choice.kind();
            let left = plan.unserved_rps[need];
            let room = room(problem, kind, used[kind], &plan.devices);
            let served = left.min(room * choice.rps);
            if served <= 0.0 {
                continue;
            }
            used[kind] += served / choice.rps;
            plan.served_rps[at] += served;
            plan.unserved_rps[need] = (left - served).max(0.0);
            let device = &problem.devices[kind];
            let staffed = staffed(used[kind], device.slots);
            plan.devices[kind] = staffed.clamp(device.least, device.most.max(device.least));
        }
    }
    plan.cost_per_hour_usd = problem.cost_per_hour_usd(&plan.devices);
    plan
}

/// The number of devices of a type that may become busy in addition to those that are.
fn room(problem: &Problem, kind: usize, used: f64, devices: &[u32]) -> f64 {
    let device = &problem.devices[kind];
    let mut most = device.most.max(device.least);
    if let Some(budget) = problem.budget_per_hour_usd
        && device.price_per_hour_usd > 0.0
    {
        let others: f64 = problem.cost_per_hour_usd(devices)
            - f64::from(devices[kind]) * device.price_per_hour_usd;
        let affordable = ((budget - others) / device.price_per_hour_usd + NONE).floor();
        most = most.min(affordable.max(0.0) as u32).max(device.least);
    }
    (busy_of(most, device.slots) - used).max(0.0)
}

/// Of a need's choices, those that answer most on each type. The others never cost less.
fn fastest(problem: &Problem, need: usize) -> impl Iterator<Item = (usize, &super::Choice)> {
    let mut best: Vec<Option<(usize, &super::Choice)>> = vec![None; problem.devices.len()];
    for (position, choice) in problem.choices_of(need) {
        let known = &mut best[choice.kind()];
        if known.is_none_or(|(_, known)| choice.rps > known.rps) {
            *known = Some((position, choice));
        }
    }
    best.into_iter().flatten()
}

/// The optimum if devices may be this busy; `None` if the search ended without a plan.
fn solve(problem: &Problem, busy: &[f64], effort: Effort) -> Option<Plan> {
    let mut program = microlp::Problem::new(OptimizationDirection::Minimize);
    let mut budget = Vec::new();
    let mut counts = Vec::new();
    let mut rows: Vec<Vec<(Variable, f64)>> = Vec::new();
    for (device, busy) in problem.devices.iter().zip(busy) {
        let whole = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
        let bounds = (whole(device.least), whole(device.most.max(device.least)));
        let price = device.price_per_hour_usd;
        let count = program.add_integer_var(price, bounds);
        let started = price * START_WEIGHT * device.start_s / 3600.0;
        let up = program.add_var(started, (0.0, f64::INFINITY));
        let more = [(count, 1.0), (up, -1.0)];
        program.add_constraint(more, ComparisonOp::Le, f64::from(device.now));
        budget.push((count, price));
        rows.push(vec![(count, -busy)]);
        counts.push(count);
    }
    let mut shares = vec![None; problem.choices.len()];
    let mut missing = Vec::new();
    for (at, need) in problem.needs.iter().enumerate() {
        let mut all = Vec::new();
        for (position, choice) in fastest(problem, at) {
            let load = need.rps / choice.rps;
            let share = program.add_var(0.0, (0.0, 1.0));
            // Loads that are negligible beside the others are left out of the row of their type.
            if load > NONE {
                rows[choice.kind()].push((share, load));
            }
            all.push((share, 1.0));
            shares[position] = Some(share);
        }
        let nothing = program.add_var(worth_of(problem, at), (0.0, 1.0));
        all.push((nothing, 1.0));
        missing.push(nothing);
        program.add_constraint(&all, ComparisonOp::Eq, 1.0);
    }
    for row in rows {
        program.add_constraint(&row, ComparisonOp::Le, 0.0);
    }
    if let Some(most) = problem.budget_per_hour_usd {
        let least: Vec<u32> = problem.devices.iter().map(|device| device.least).collect();
        let most = most.max(problem.cost_per_hour_usd(&least));
        program.add_constraint(&budget, ComparisonOp::Le, most);
    }
    let mut options = SolveOptions::default();
    options.node_limit = Some(effort.programs);
    let outcome = program.solve_with(options).ok()?;
    let solution = outcome.solution()?;
    let value = |variable: Variable| solution.var_value(variable).max(0.0);
    let served = problem.choices.iter().zip(&shares).map(|(choice, share)| {
        let share = share.map_or(0.0, value);
        let rps = problem.needs[choice.need as usize].rps * share;
        if share > NONE { rps } else { 0.0 }
    });
    let unserved = problem.needs.iter().zip(&missing);
    let devices: Vec<u32> = counts
        .iter()
        .map(|count| value(*count).round() as u32)
        .collect();
    Some(Plan {
        served_rps: served.collect(),
        instances: vec![0; problem.choices.len()],
        unserved_rps: unserved
            .map(|(need, nothing)| match value(*nothing) {
                share if share > NONE => need.rps * share,
                _ => 0.0,
            })
            .collect(),
        cost_per_hour_usd: problem.cost_per_hour_usd(&devices),
        devices,
        optimal: outcome.is_optimal(),
    })
}
