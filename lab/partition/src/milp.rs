//! The paper's integer programme (appendix A), solved by a solver.
//!
//! A binary variable says for each model and sub-cluster whether the model is in the sub-cluster. Absolute values
//! become two inequalities each. The largest dynamic memory of a sub-cluster is a variable that is at least that of
//! each of its models. Rates and memory are shares of the means, which keeps all coefficients near 1.

use std::time::Duration;

use microlp::{
    ComparisonOp::{Eq, Ge, Le},
    OptimizationDirection, SolveOptions, Variable,
};

use super::{Effort, Error, Partition, Problem, heuristic, problem::cost_of};

/// The limits of the solver.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MilpLimits {
    /// Nodes of its search, without the root; `None` for no limit. With this limit, the answer is always the same.
    pub nodes: Option<u64>,
    /// Wall-clock time; `None` for no limit. With this limit, the answer depends on the machine.
    pub time: Option<Duration>,
    /// The solver may stop once it has proved that no partition is better by more than this share.
    pub gap: f64,
    /// Whether the solver starts from the heuristic's partition.
    pub is_warm: bool,
}

/// What found a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finder {
    /// The solver, which has proved that none is better. If the heuristic found an equally good partition, the answer
    /// may be that one.
    Optimal,
    /// The solver: the best partition before its limit.
    Solver,
    /// The heuristic: the solver found no partition, or a worse one.
    Heuristic,
}

/// The result of the integer programme.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    /// The best partition.
    pub partition: Partition,
    /// What found it.
    pub found: Finder,
    /// The best partition of the solver itself, if it found one.
    pub own: Option<Partition>,
    /// A lower bound of every partition's objective, as far as the solver has proved it.
    pub bound: f64,
    /// Nodes that the solver visited.
    pub nodes: u64,
}

/// Runs the solver on the integer programme, and the heuristic with `effort`. The better of the two partitions is the
/// answer.
///
/// # Errors
/// [`Error::Impossible`] when the solver has proved that no partition keeps all limits, [`Error::NotFound`] when
/// neither found one.
pub fn milp(
    problem: &Problem<'_>,
    limits: &MilpLimits,
    effort: &mut Effort<'_>,
) -> Result<Solution, Error> {
    let ours = heuristic(problem, effort);
    let programme = Programme::new(problem);
    let mut options = SolveOptions::default();
    options.node_limit = limits.nodes;
    options.time_limit = limits.time;
    options.mip_gap = limits.gap;
    options.warm_start = match &ours {
        Ok(ours) if limits.is_warm => Some(programme.hint(&ours.clusters)),
        _ => None,
    };
    match programme.solver.solve_with(options) {
        Ok(outcome) => {
            let stats = outcome.stats();
            let own = outcome.solution().map(|solution| programme.read(solution));
            let own = own.and_then(|clusters| problem.partition(clusters).ok());
            let (partition, found) = better(own.as_ref(), ours, outcome.is_optimal())?;
            Ok(Solution {
                partition,
                found,
                own,
                bound: stats.best_bound.unwrap_or(0.0).max(0.0),
                nodes: stats.nodes_solved,
            })
        }
        Err(error) => without_solver(ours, &error),
    }
}

/// The better of two partitions, and what found it.
fn better(
    own: Option<&Partition>,
    ours: Result<Partition, Error>,
    is_optimal: bool,
) -> Result<(Partition, Finder), Error> {
    let Some(own) = own else {
        return Ok((ours?, Finder::Heuristic));
    };
    // Only rounding errors can put another partition below an optimum.
    let (partition, found) = match ours {
        Ok(ours) if ours.objective < own.objective => (ours, Finder::Heuristic),
        _ => (own.clone(), Finder::Solver),
    };
    match is_optimal {
        true => Ok((partition, Finder::Optimal)),
        false => Ok((partition, found)),
    }
}

/// The result if the solver found nothing: it has failed, or there is no partition.
fn without_solver(
    ours: Result<Partition, Error>,
    error: &microlp::Error,
) -> Result<Solution, Error> {
    match ours {
        Ok(partition) => Ok(Solution {
            partition,
            found: Finder::Heuristic,
            own: None,
            bound: 0.0,
            nodes: 0,
        }),
        Err(Error::NotFound { limit }) if matches!(error, microlp::Error::Infeasible) => {
            Err(Error::Impossible { limit })
        }
        Err(error) => Err(error),
    }
}

/// The programme with its variables.
struct Programme<'a> {
    problem: &'a Problem<'a>,
    solver: microlp::Problem,
    /// Whether a model is in a sub-cluster: model by model.
    is_in: Vec<Vec<Variable>>,
}

// === impl Programme ===

impl<'a> Programme<'a> {
    fn new(problem: &'a Problem<'a>) -> Self {
        let mut solver = microlp::Problem::new(OptimizationDirection::Minimize);
        let clusters = problem.limits.clusters;
        let mut row = |_| (0..clusters).map(|_| solver.add_binary_var(0.0)).collect();
        let is_in: Vec<Vec<Variable>> = problem.models.iter().map(&mut row).collect();
        let mut programme = Self {
            problem,
            solver,
            is_in,
        };
        programme.add_places();
        programme.add_deviations();
        programme.add_rates();
        programme.add_memory();
        programme.add_costs();
        programme
    }

    /// Each model is in exactly one sub-cluster.
    fn add_places(&mut self) {
        for row in &self.is_in {
            let sum: Vec<_> = row.iter().map(|is_in| (*is_in, 1.0)).collect();
            self.solver.add_constraint(&sum, Eq, 1.0);
        }
    }

    /// The distances from the means, which the objective minimises.
    fn add_deviations(&mut self) {
        let problem = self.problem;
        let rate = |at: usize| problem.models[at].rate_rps / problem.rate_mean_rps;
        if problem.rate_mean_rps > 0.0 {
            self.add_deviation(1.0, rate);
        }
        let memory = |at: usize| problem.models[at].static_bytes as f64 / problem.memory_mean_bytes;
        if problem.memory_mean_bytes > 0.0 && problem.limits.memory_weight > 0.0 {
            self.add_deviation(problem.limits.memory_weight, memory);
        }
    }

    fn add_deviation(&mut self, weight: f64, share: impl Fn(usize) -> f64) {
        let deviation = self.solver.add_var(weight, (0.0, f64::INFINITY));
        for cluster in 0..self.problem.limits.clusters {
            let sum = self.sum(cluster, &share);
            let with = |factor: f64| {
                let mut sum = sum.clone();
                sum.push((deviation, factor));
                sum
            };
            self.solver.add_constraint(with(-1.0), Le, 1.0);
            self.solver.add_constraint(with(1.0), Ge, 1.0);
        }
    }

    /// The limit of rates, if it is finite.
    fn add_rates(&mut self) {
        let (most, mean) = (self.problem.limits.rate_rps, self.problem.rate_mean_rps);
        if most >= mean * self.problem.limits.clusters as f64 || mean <= 0.0 {
            return;
        }
        let models = self.problem.models;
        for cluster in 0..self.problem.limits.clusters {
            let sum = self.sum(cluster, |at| models[at].rate_rps / mean);
            self.solver.add_constraint(sum, Le, most / mean);
        }
    }

    /// The limit of memory, if there is one; all values are shares of it.
    fn add_memory(&mut self) {
        let (models, most) = (self.problem.models, self.problem.limits.memory_bytes);
        let dynamic = models.iter().map(|model| model.dynamic_bytes).max();
        let all = self.problem.memory_mean_bytes * self.problem.limits.clusters as f64;
        if most as f64 >= all + dynamic.unwrap_or(0) as f64 {
            return;
        }
        let share = |bytes: u64| bytes as f64 / most as f64;
        for cluster in 0..self.problem.limits.clusters {
            let largest = self.solver.add_var(0.0, (0.0, f64::INFINITY));
            for (row, model) in self.is_in.iter().zip(models) {
                let pair = [(largest, 1.0), (row[cluster], -share(model.dynamic_bytes))];
                self.solver.add_constraint(pair, Ge, 0.0);
            }
            let mut sum = self.sum(cluster, |at| share(models[at].static_bytes));
            sum.push((largest, 1.0));
            self.solver.add_constraint(sum, Le, 1.0);
        }
    }

    /// The limit of the cost of loads and unloads, if there is one.
    fn add_costs(&mut self) {
        let most = self.problem.limits.move_cost;
        let costs = self.is_in.iter().zip(self.problem.models);
        let costs = costs.flat_map(|(row, model)| {
            let of = |(to, is_in): (usize, &Variable)| (*is_in, cost_of(model, to));
            row.iter().enumerate().map(of)
        });
        let mut costs: Vec<_> = costs.filter(|(_, cost)| *cost > 0.0).collect();
        let largest = costs.iter().map(|(_, cost)| *cost).fold(0.0, f64::max);
        if most.is_finite() && largest > 0.0 {
            costs.iter_mut().for_each(|(_, cost)| *cost /= largest);
            self.solver.add_constraint(costs, Le, most / largest);
        }
    }

    fn sum(&self, cluster: usize, share: impl Fn(usize) -> f64) -> Vec<(Variable, f64)> {
        let terms = self.is_in.iter().enumerate();
        let terms = terms.map(|(at, row)| (row[cluster], share(at)));
        terms.filter(|(_, share)| *share > 0.0).collect()
    }

    /// A partition as values of the binaries; the solver fills in the rest.
    fn hint(&self, clusters: &[usize]) -> Vec<(Variable, f64)> {
        let rows = self.is_in.iter().zip(clusters);
        let values = rows.flat_map(|(row, cluster)| {
            let value = |(at, is_in): (usize, &Variable)| (*is_in, f64::from(at == *cluster));
            row.iter().enumerate().map(value).collect::<Vec<_>>()
        });
        values.collect()
    }

    /// The sub-cluster of each model in a solution.
    fn read(&self, solution: &microlp::Solution) -> Vec<usize> {
        let place = |row: &Vec<Variable>| {
            row.iter()
                .position(|is_in| solution.var_value(*is_in) > 0.5)
        };
        let places = self.is_in.iter().map(|row| place(row).unwrap_or(0));
        places.collect()
    }
}
