//! Draws models, divides them, and measures how evenly they are divided.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use sextant_partition as partition;
use sextant_partition::{
    Finder, Limits, MilpLimits, Model, Partition, Policy, Problem, heuristic, milp, random,
};
use sextant_types::random::Random;

use super::{Cell, Effort, Experiment};
use sextant_simulator::{Error, Record, parallel};

/// Which part of an experiment to run, and how. If `threads` is 0, runs come one by one, because their time is
/// measured.
pub type Plan = sextant_simulator::fleet::Plan<Policy>;

/// One cell with one method and one seed.
struct Unit<'a> {
    experiment: &'a Experiment,
    cell: &'a Cell,
    policy: Policy,
    seed: u64,
    effort: Effort,
}

/// The result of a unit.
struct Outcome {
    partition: Result<Partition, partition::Error>,
    /// What only the solver reports: its objective, whether it proved it, its nodes, its bound.
    solver: Option<Solver>,
    solve_s: f64,
}

struct Solver {
    own: Option<Partition>,
    found: Finder,
    nodes: u64,
    bound: f64,
}

/// Runs the part that `plan` selects. `on` gets the number of finished runs and the number of all runs. Returns the
/// figures of each seed and their means, cell by cell, method by method.
///
/// # Errors
/// When `plan` names an unknown cell, or no method can divide a cell's models.
pub fn run(
    experiment: &Experiment,
    plan: &Plan,
    on: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Record>, Error> {
    let todo = units(experiment, plan)?;
    let mut records: BTreeMap<usize, Result<Vec<Record>, Error>> = BTreeMap::new();
    let threads = plan.threads.max(1);
    parallel::each(&todo, threads, Unit::measure, |at, measured| {
        records.insert(at, measured);
        on(records.len(), todo.len());
        true
    });
    let mut all: Vec<Vec<Record>> = Vec::new();
    let mut last = None;
    for (unit, measured) in todo.iter().zip(records.into_values()) {
        let group = (&unit.cell.name, unit.policy);
        if last.replace(group) != Some(group) {
            all.push(Vec::new());
        }
        if let Some(records) = all.last_mut() {
            records.extend(measured?);
        }
    }
    for records in &mut all {
        let means = sextant_simulator::means(records);
        records.extend(means);
    }
    Ok(all.concat())
}

fn units<'a>(experiment: &'a Experiment, plan: &Plan) -> Result<Vec<Unit<'a>>, Error> {
    let (names, effort) = match plan.quick {
        true if plan.cells.is_empty() => (&experiment.quick.0, experiment.quick.1),
        true => (&plan.cells, experiment.quick.1),
        false => (&plan.cells, experiment.effort),
    };
    let cells = experiment.cells.iter();
    let known: Vec<&str> = cells.map(|cell| cell.name.as_str()).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(Error::unknown("cell", name, &known));
    }
    let policies = match plan.policies.is_empty() {
        true => &experiment.policies,
        false => &plan.policies,
    };
    let seeds = if plan.seeds == 0 {
        effort.seeds
    } else {
        plan.seeds
    };
    let mut units = Vec::new();
    let is_desired = |cell: &&Cell| names.is_empty() || names.contains(&cell.name);
    for cell in experiment.cells.iter().filter(is_desired) {
        for policy in policies.iter().copied() {
            units.extend((1..=seeds).map(|seed| Unit {
                experiment,
                cell,
                policy,
                seed,
                effort,
            }));
        }
    }
    Ok(units)
}

// === impl Unit ===

impl Unit<'_> {
    fn measure(&self) -> Result<Vec<Record>, Error> {
        let mut draws = Random::new(self.seed);
        let models = self.models(&mut draws);
        let wrong = |error| Error::Setting(format!("cell `{}`: {error}", self.cell.name));
        let problem = Problem::new(&models, self.limits()).map_err(wrong)?;
        let begun = Instant::now();
        let mut outcome = self.divide(&problem, &mut draws);
        outcome.solve_s = begun.elapsed().as_secs_f64();
        Ok(self.records(&outcome))
    }

    /// The models of a seed. They do not depend on the method.
    fn models(&self, draws: &mut Random) -> Vec<Model> {
        let memory = &self.experiment.memory;
        let mut model = |_| {
            let of = &memory[draws.below(memory.len())];
            Model {
                rate_rps: self.experiment.mean_rate_rps * draws.exponential(),
                static_bytes: bytes(of.static_mb),
                dynamic_bytes: bytes(of.dynamic_mb),
                move_cost: 1.0,
                now: None,
            }
        };
        (0..self.cell.models).map(&mut model).collect()
    }

    fn limits(&self) -> Limits {
        let none = Limits::none(self.cell.clusters);
        Limits {
            rate_rps: self.cell.rate_limit_rps.unwrap_or(none.rate_rps),
            memory_bytes: self.cell.memory_limit_mb.map_or(none.memory_bytes, bytes),
            ..none
        }
    }

    fn divide(&self, problem: &Problem<'_>, draws: &mut Random) -> Outcome {
        let mut go_on = || false;
        let steps = match self.policy {
            Policy::Random => self.effort.draws,
            _ => self.effort.steps,
        };
        let effort = &mut partition::Effort::new(steps, &mut go_on);
        let mut solver = None;
        let partition = match self.policy {
            Policy::Heuristic => heuristic(problem, effort),
            Policy::Random => random(problem, draws, effort),
            Policy::Milp => {
                let limits = MilpLimits {
                    time: Some(Duration::from_secs_f64(self.effort.time_limit_s)),
                    ..MilpLimits::default()
                };
                milp(problem, &limits, effort).map(|solved| {
                    solver = Some(Solver {
                        own: solved.own,
                        found: solved.found,
                        nodes: solved.nodes,
                        bound: solved.bound,
                    });
                    solved.partition
                })
            }
        };
        Outcome {
            partition,
            solver,
            solve_s: 0.0,
        }
    }

    fn records(&self, outcome: &Outcome) -> Vec<Record> {
        let mut figures = vec![
            ("found_share", share(outcome.partition.is_ok())),
            ("solve_s", outcome.solve_s),
        ];
        if let Ok(partition) = &outcome.partition {
            figures.extend([
                ("rate_imbalance_percent", 100.0 * partition.rate_imbalance()),
                (
                    "memory_imbalance_percent",
                    100.0 * partition.memory_imbalance(),
                ),
                ("objective_percent", 100.0 * partition.objective),
            ]);
        }
        if let Some(solver) = &outcome.solver {
            figures.extend(solver.figures());
        }
        let record = |(metric, value): (&str, f64)| Record {
            experiment: self.experiment.name.clone(),
            cell: Some(self.cell.name.clone()),
            policy: Some(self.policy.name().to_owned()),
            metric: metric.to_owned(),
            value,
            unit: metric.rsplit('_').next().unwrap_or_default().to_owned(),
            seed: Some(self.seed),
        };
        figures.into_iter().map(record).collect()
    }
}

// === impl Solver ===

impl Solver {
    fn figures(&self) -> Vec<(&'static str, f64)> {
        let mut figures = vec![
            ("solver_found_share", share(self.own.is_some())),
            ("solver_used_share", share(self.found != Finder::Heuristic)),
            ("solver_proved_share", share(self.found == Finder::Optimal)),
            ("solver_nodes_count", self.nodes as f64),
            ("solver_bound_percent", 100.0 * self.bound),
        ];
        if let Some(own) = &self.own {
            figures.extend([
                (
                    "solver_rate_imbalance_percent",
                    100.0 * own.rate_imbalance(),
                ),
                (
                    "solver_memory_imbalance_percent",
                    100.0 * own.memory_imbalance(),
                ),
                ("solver_objective_percent", 100.0 * own.objective),
            ]);
        }
        figures
    }
}

fn bytes(megabytes: f64) -> u64 {
    (megabytes * 1e6).round() as u64
}

fn share(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}
