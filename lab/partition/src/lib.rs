//! Divides models among sub-clusters (Symphony section 4.7, appendix A).
//!
//! The models of a cluster are divided among its sub-clusters. Each model is in exactly one, and every device of a
//! sub-cluster holds all of its models, so no scheduler has to manage the whole cluster. The best partition is the one
//! in which sub-clusters differ least in rates and in memory:
//!
//! ```text
//! min dR / R + w dS / S      dR: largest distance of a sub-cluster's rate from the mean R
//!                            dS: the same of static memory, from the mean S
//! rates of a sub-cluster                                   <= limit
//! static memory + the largest dynamic memory               <= limit  (one model runs at a time)
//! costs of loads and unloads, against the present division <= limit
//! ```
//!
//! The paper adds distances in their own units, `dR + w dS`. Here both are shares of the means, so that with a weight
//! of 1 a percent of one counts as much as a percent of the other.
//!
//! Entry points: [`Problem::new`] over [`Model`]s and [`Limits`], then a [`Policy`] by name or one of
//! [`heuristic`] (ours), [`milp`] (the paper's integer programme) and [`random`] (its baseline).
//!
//! Work is counted in steps, not in time, and [`Effort::should_stop`] lets a caller end it early. Only the solver under
//! [`milp`] reads a clock; it has a time limit of its own.
//!
//! **Invariant:** no async, no lock, no I/O, no logging, and no clock but the solver's. Order never depends on
//! a hash, and the same inputs give the same answer.

mod descent;
mod effort;
mod error;
mod heuristic;
mod load;
mod milp;
mod problem;
mod random;
mod start;

pub use effort::Effort;
pub use error::{Error, Limit};
pub use heuristic::heuristic;
pub use load::Load;
pub use milp::{Finder, MilpLimits, Solution, milp};
pub use problem::Problem;
pub use random::random;

use sextant_types::named;

/// A model that some sub-cluster must serve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Model {
    /// Requests per second, 0 or more.
    pub rate_rps: f64,
    /// Memory that it always takes on a device, mainly weights.
    pub static_bytes: u64,
    /// Additional memory that it takes while it runs.
    pub dynamic_bytes: u64,
    /// Cost of a load into a sub-cluster, and of an unload from one; 0 or more, in the unit of [`Limits::move_cost`]. A
    /// model that moves pays both.
    pub move_cost: f64,
    /// The sub-cluster that has it now, from 0; `None` if none has it. Such a model pays one load.
    pub now: Option<usize>,
}

/// The limits of a partition, and the weights of its objective.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Number of sub-clusters, at least one.
    pub clusters: usize,
    /// Most requests per second of a sub-cluster; infinite for no limit.
    pub rate_rps: f64,
    /// Most memory of each device: the static memory of all models plus the largest dynamic memory.
    pub memory_bytes: u64,
    /// Most cost of all loads and unloads together; infinite for no limit.
    pub move_cost: f64,
    /// Weight of uneven memory relative to uneven rates: `w` above. 0 or more.
    pub memory_weight: f64,
}

/// A division of the models among sub-clusters.
#[derive(Debug, Clone, PartialEq)]
pub struct Partition {
    /// The sub-cluster of each model, in the order of the models.
    pub clusters: Vec<usize>,
    /// The load of each sub-cluster.
    pub loads: Vec<Load>,
    /// Largest distance of a sub-cluster's rate from the mean, requests per second.
    pub rate_deviation_rps: f64,
    /// Largest distance of a sub-cluster's static memory from the mean, bytes.
    pub memory_deviation_bytes: f64,
    /// The objective: the weighted sum of the deviations as shares of the means.
    pub objective: f64,
    /// Cost of the loads and unloads.
    pub move_cost: f64,
    /// Models that leave their sub-cluster; models that were in none do not count.
    pub moved: usize,
}

named! {
    /// Ways to divide models, by name.
    Policy,
    /// There is no way of that name.
    UnknownPolicy of "way to divide models",
    /// Ours: the largest first, then moves and swaps.
    #[default]
    Heuristic = "heuristic",
    /// The paper's integer programme.
    Milp = "milp",
    /// The paper's baseline: the best of many draws.
    Random = "random",
}

// === impl Limits ===

impl Limits {
    /// Limits with this many sub-clusters and nothing else limited; memory counts as much as rates.
    pub fn none(clusters: usize) -> Self {
        Self {
            clusters,
            rate_rps: f64::INFINITY,
            memory_bytes: u64::MAX,
            move_cost: f64::INFINITY,
            memory_weight: 1.0,
        }
    }
}

// === impl Partition ===

impl Partition {
    /// The imbalance of rates: the largest less the smallest, as a share of the mean; 0 if no model has a rate.
    pub fn rate_imbalance(&self) -> f64 {
        spread(self.loads.iter().map(|load| load.rate_rps))
    }

    /// The same for static memory.
    pub fn memory_imbalance(&self) -> f64 {
        spread(self.loads.iter().map(|load| load.static_bytes as f64))
    }
}

fn spread(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let (mut least, mut most, mut sum, mut count) = (f64::INFINITY, 0.0_f64, 0.0, 0.0);
    for value in values {
        least = least.min(value);
        most = most.max(value);
        sum += value;
        count += 1.0;
    }
    match sum > 0.0 {
        true => (most - least) * count / sum,
        false => 0.0,
    }
}
