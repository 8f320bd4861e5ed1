//! Which sub-cluster serves which model (Symphony section 4.7, appendix A).
//!
//! Models are divided among the sub-clusters of a cluster. Each model is in exactly one, and every
//! device of a sub-cluster holds all of its models; so no scheduler has to see everything. The best
//! partition is the one in which sub-clusters differ least in rates and in memory:
//!
//! ```text
//! min dR / R + w dS / S      dR: largest distance of a sub-cluster's rate from the mean R
//!                            dS: the same of static memory, from the mean S
//! rates of a sub-cluster                                   <= limit
//! static memory + the largest dynamic memory               <= limit  (one model runs at a time)
//! costs of loads and unloads, against the present division <= limit
//! ```
//!
//! The paper adds distances in their own units, `dR + w dS`. Here both are shares of the means, so
//! that a weight of 1 says that a percent of one is worth a percent of the other.
//!
//! Entry points: [`Problem::new`] over [`Model`]s and [`Limits`], then a [`Policy`] by name or one of
//! [`heuristic`] (ours), [`milp`] (the paper's integer programme) and [`random`] (its baseline).
//!
//! Work is counted in steps, not in time, and [`Effort::should_stop`] lets a caller end it early. The
//! one thing that reads a clock is the solver under [`milp`], which has a time limit of its own.
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
    /// Memory that it takes on a device all the time, weights above all.
    pub static_bytes: u64,
    /// Memory that it takes beside that while it runs.
    pub dynamic_bytes: u64,
    /// What it costs to load it into a sub-cluster, and again to unload it from one; 0 or more, in the
    /// unit of [`Limits::move_cost`]. A model that moves pays both.
    pub move_cost: f64,
    /// The sub-cluster that has it now, from 0; `None` where none has. Such a model pays one load.
    pub now: Option<usize>,
}

/// What a partition must keep to, and what it is for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Number of sub-clusters, at least one.
    pub clusters: usize,
    /// Most requests per second of a sub-cluster; infinite for no limit.
    pub rate_rps: f64,
    /// Most memory of each device: static memory of all models and the largest dynamic memory.
    pub memory_bytes: u64,
    /// Most that all loads and unloads may cost together; infinite for no limit.
    pub move_cost: f64,
    /// What uneven memory weighs against uneven rates: `w` above. 0 or more.
    pub memory_weight: f64,
}

/// Models divided among sub-clusters.
#[derive(Debug, Clone, PartialEq)]
pub struct Partition {
    /// The sub-cluster of each model, in the order of the models.
    pub clusters: Vec<usize>,
    /// What each sub-cluster has to carry.
    pub loads: Vec<Load>,
    /// Largest distance of a sub-cluster's rate from the mean, requests per second.
    pub rate_deviation_rps: f64,
    /// Largest distance of a sub-cluster's static memory from the mean, bytes.
    pub memory_deviation_bytes: f64,
    /// What is minimised: the deviations as shares of the means, weighed and added.
    pub objective: f64,
    /// What loads and unloads cost.
    pub move_cost: f64,
    /// Models that leave their sub-cluster; those that come from none are not among them.
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
    /// So many sub-clusters without any limit, memory as important as rates.
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
    /// How far apart the rates are: the largest less the smallest as a share of the mean; 0 where no
    /// model has a rate.
    pub fn rate_imbalance(&self) -> f64 {
        spread(self.loads.iter().map(|load| load.rate_rps))
    }

    /// The same of static memory.
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
