//! How much effort a measurement takes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How much effort a measurement takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Effort {
    /// Time for one batch size, after the least number of runs.
    pub budget: Duration,
    /// Minimum number of runs of each batch size.
    pub runs: u32,
    /// This many runs of one batch size are enough after a fifth of that time.
    pub many_runs: u32,
    /// Slower runs are repeated less often.
    pub slow: Duration,
    /// Least number of slow runs.
    pub slow_runs: u32,
    /// A slower run ends the sweep: larger batches are not offered.
    pub slowest: Duration,
    /// Slow batches end the sweep if two sizes in a row answer no more than this many times the rows per second of
    /// smaller ones; 0 never ends it.
    pub least_gain: f64,
    /// A configuration with slower batches is left out if one that was measured before is clearly faster.
    pub pruned_above: Duration,
    /// How often a model is loaded, if that is quick.
    pub loads: u32,
    /// Largest batch that is measured.
    pub largest_batch: u16,
    /// Rows per batch while scoring.
    pub evaluation_batch: u16,
    /// Whether accuracy is measured for each number of threads, which only changes the order of sums.
    pub scores_each: bool,
    /// Time for one batch at another size than that of the records.
    pub shape_budget: Duration,
    /// Minimum number of runs of each of these batches.
    pub shape_runs: u32,
    /// Minimum number of runs of [slow](Self::slow) ones.
    pub slow_shape_runs: u32,
    /// A slower lone row ends the measurement of larger sizes; batches may take half of this.
    pub longest_shape: Duration,
    /// Memory that the runs of a variant may take, bytes: inputs beyond the measured sizes that would take more are
    /// refused; 0 for no limit.
    pub memory_bytes: u64,
    /// Cores on which lone queries are measured side by side, for a choice of parallelism by load; 0 if there is no
    /// such choice.
    pub concurrent_cores: u16,
}

impl Default for Effort {
    fn default() -> Self {
        Self {
            budget: Duration::from_millis(60),
            runs: 10,
            many_runs: 200,
            slow: Duration::from_millis(60),
            slow_runs: 3,
            slowest: Duration::from_secs(5),
            least_gain: 1.03,
            pruned_above: Duration::from_millis(5),
            loads: 3,
            largest_batch: 64,
            evaluation_batch: 32,
            scores_each: false,
            shape_budget: Duration::from_millis(20),
            shape_runs: 3,
            slow_shape_runs: 1,
            longest_shape: Duration::from_millis(500),
            memory_bytes: 0,
            concurrent_cores: 0,
        }
    }
}

impl Effort {
    /// For trying something out: few runs, and a single slow one.
    pub fn quick() -> Self {
        Self {
            budget: Duration::from_millis(20),
            runs: 5,
            many_runs: 100,
            slow_runs: 1,
            loads: 1,
            shape_budget: Duration::from_millis(5),
            longest_shape: Duration::from_millis(250),
            ..Self::default()
        }
    }

    /// Many runs, also of what is clearly slower.
    pub fn thorough() -> Self {
        Self {
            budget: Duration::from_millis(250),
            runs: 30,
            many_runs: 10_000,
            slow_runs: 5,
            loads: 5,
            least_gain: 0.0,
            pruned_above: Duration::MAX,
            scores_each: true,
            shape_budget: Duration::from_millis(60),
            shape_runs: 5,
            slow_shape_runs: 5,
            longest_shape: Duration::from_secs(5),
            ..Self::default()
        }
    }
}
