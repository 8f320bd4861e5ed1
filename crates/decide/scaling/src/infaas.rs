//! The greedy heuristic of INFaaS (section 4.2), as printed.
//!
//! Once a second, for each need: if the capacity of the running instances is below `slack` times the demand,
//! *replicate* (more instances of a running variant) is compared with *upgrade* (another variant that answers more, in
//! place of the running ones) by the cost of the [integer program](super::instances), and the cheaper is taken.
//! Otherwise, if one instance fewer or a cheaper variant carries the load, that change is made once it has been
//! possible for as many seconds in a row as the variant takes to load.

use std::collections::BTreeMap;

use sextant_types::index::{KindIx, VariantIx};

use super::{
    Choice, Plan, Problem,
    instances::{Weights, price, serve},
};

/// The heuristic, and the changes that it waits for.
#[derive(Debug, Clone, Default)]
pub struct Infaas {
    weights: Weights,
    /// By variant and type: the seconds in a row in which it could have been removed or replaced.
    waited: BTreeMap<(VariantIx, KindIx), u32>,
}

/// A change of instances and its cost.
struct Change {
    /// Positions of choices, and the number of instances of each after the change.
    instances: Vec<(usize, u32)>,
    /// The cost by the program, US dollars an hour.
    cost: f64,
    /// The choice whose load time a change down waits for.
    waits_for: usize,
}

impl Infaas {
    /// Makes the heuristic without history.
    pub fn new(weights: Weights) -> Self {
        Self {
            weights,
            waited: BTreeMap::new(),
        }
    }

    /// The instances that should run in the next second, given those that run now.
    pub fn plan(&mut self, problem: &Problem) -> Plan {
        let mut instances: Vec<u32> = problem.choices.iter().map(|it| it.running).collect();
        let mut still = BTreeMap::new();
        for need in 0..problem.needs.len() {
            let asked = problem.needs[need].rps * self.weights.slack;
            let capacity = capacity(problem, need, &instances);
            let change = match capacity < asked {
                true => self.up(problem, need, &instances),
                false => self.down(problem, need, &instances, &mut still),
            };
            for (choice, count) in change.into_iter().flat_map(|change| change.instances) {
                instances[choice] = count;
            }
        }
        self.waited = still;
        serve(problem, instances, self.weights.slack)
    }

    /// The cheaper of replicating and upgrading; `None` if there is room for neither.
    fn up(&self, problem: &Problem, need: usize, instances: &[u32]) -> Option<Change> {
        let asked = problem.needs[need].rps * self.weights.slack;
        let missing = asked - capacity(problem, need, instances);
        let running: Vec<(usize, &Choice)> = problem
            .choices_of(need)
            .filter(|(at, _)| instances[*at] > 0)
            .collect();
        let replicate = running.iter().map(|(at, choice)| {
            let more = count(missing, choice.rps);
            Change {
                instances: vec![(*at, instances[*at] + more)],
                cost: self.loaded(problem, choice) * f64::from(more),
                waits_for: *at,
            }
        });
        let fastest = running.iter().map(|(_, choice)| choice.rps);
        let fastest = fastest.fold(0.0, f64::max);
        let saved: f64 = running
            .iter()
            .map(|(at, choice)| price(problem, choice) * f64::from(instances[*at]))
            .sum();
        let better = problem
            .choices_of(need)
            .filter(|(at, choice)| instances[*at] == 0 && choice.rps > fastest);
        let upgrade = better.map(|(at, choice)| {
            let needed = count(asked, choice.rps);
            let mut changed = vec![(at, needed)];
            changed.extend(running.iter().map(|(at, _)| (*at, 0)));
            Change {
                instances: changed,
                cost: self.loaded(problem, choice) * f64::from(needed) - saved,
                waits_for: at,
            }
        });
        let fit = replicate
            .chain(upgrade)
            .filter(|change| fits(problem, instances, &change.instances));
        fit.min_by(|a, b| a.cost.total_cmp(&b.cost))
    }

    /// The change that saves most and has been possible for long enough.
    fn down(
        &self,
        problem: &Problem,
        need: usize,
        instances: &[u32],
        still: &mut BTreeMap<(VariantIx, KindIx), u32>,
    ) -> Option<Change> {
        let asked = problem.needs[need].rps * self.weights.slack;
        let capacity = capacity(problem, need, instances);
        let running: Vec<(usize, &Choice)> = problem
            .choices_of(need)
            .filter(|(at, _)| instances[*at] > 0)
            .collect();
        let fewer = running
            .iter()
            .filter(|(_, choice)| capacity - choice.rps >= asked || asked <= 0.0)
            .map(|(at, choice)| Change {
                instances: vec![(*at, instances[*at] - 1)],
                cost: -price(problem, choice),
                waits_for: *at,
            });
        let paid: f64 = running
            .iter()
            .map(|(at, choice)| price(problem, choice) * f64::from(instances[*at]))
            .sum();
        let others = problem
            .choices_of(need)
            .filter(|(at, _)| instances[*at] == 0 && asked > 0.0);
        let cheaper = others.map(|(at, choice)| {
            let needed = count(asked, choice.rps);
            let mut changed = vec![(at, needed)];
            changed.extend(running.iter().map(|(at, _)| (*at, 0)));
            Change {
                instances: changed,
                cost: self.loaded(problem, choice) * f64::from(needed) - paid,
                waits_for: at,
            }
        });
        let saving = fewer
            .chain(cheaper)
            .filter(|change| change.cost < 0.0 && fits(problem, instances, &change.instances));
        let best = saving.min_by(|a, b| a.cost.total_cmp(&b.cost))?;
        let choice = &problem.choices[best.waits_for];
        let key = (choice.variant, choice.device);
        let waited = self.waited.get(&key).copied().unwrap_or(0) + 1;
        if f64::from(waited) < choice.load_s.ceil() {
            still.insert(key, waited);
            return None;
        }
        Some(best)
    }

    /// Price of an instance that is to be loaded, US dollars an hour.
    fn loaded(&self, problem: &Problem, choice: &Choice) -> f64 {
        price(problem, choice) * (1.0 + self.weights.load_per_s * choice.load_s)
    }
}

/// Queries a second that the instances can answer.
fn capacity(problem: &Problem, need: usize, instances: &[u32]) -> f64 {
    let choices = problem.choices_of(need);
    choices
        .map(|(at, choice)| choice.rps * f64::from(instances[at]))
        .sum()
}

/// The number of instances that answer this rate.
fn count(rps: f64, each: f64) -> u32 {
    (rps / each - 1e-9).ceil().clamp(1.0, 1e6) as u32
}

/// Whether devices have memory for the changed instances.
fn fits(problem: &Problem, instances: &[u32], changed: &[(usize, u32)]) -> bool {
    let mut used = vec![0.0; problem.devices.len()];
    for (at, choice) in problem.choices.iter().enumerate() {
        let change = changed.iter().find(|(changed, _)| *changed == at);
        let count = change.map_or(instances[at], |(_, count)| *count);
        used[choice.kind()] += choice.memory_share * f64::from(count);
    }
    let mut rooms = used.iter().zip(&problem.devices);
    rooms.all(|(used, device)| *used <= f64::from(device.most.max(device.least)) + 1e-9)
}
