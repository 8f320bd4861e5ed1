//! The fewest replicas with which the work of a step can be done in time at all.

use super::Problem;
use crate::{Choice, Nanos, Step};

/// The work of a step, whatever the other steps run on.
pub(super) struct Work {
    /// The number of rows, of which at least this many must end in time.
    rows: f64,
    /// The time from the first arrival until the last query must have ended, ns.
    until: f64,
    /// The longest time that a query may take, ns.
    target: Nanos,
}

// === impl Work ===

impl Work {
    /// Leaves out the queries with most rows, as many as may miss the target.
    pub fn new(problem: &Problem<'_>, step: usize) -> Self {
        let load = problem.load;
        let of = |query| match load.routes.is_empty() {
            true => 0,
            false => load.routes.of(query)[step],
        };
        let mut rows: Vec<u16> = (0..load.arrivals.len()).map(of).collect();
        rows.sort_unstable();
        rows.truncate(rows.len() - problem.may_miss().min(rows.len()));
        Self {
            rows: rows.iter().map(|rows| f64::from(*rows)).sum(),
            until: problem.seconds() * 1e9 + problem.target as f64,
            target: problem.target,
        }
    }

    /// The fewest replicas of a choice; `None` if one row alone takes longer than the target. A query that must end in
    /// time is in no batch that takes longer than that.
    pub fn replicas(&self, choice: &Choice) -> Option<u32> {
        let rows = 1..=choice.latency.measured_rows();
        let in_time = rows.filter(|rows| choice.latency.of(*rows) <= self.target);
        let per_row = in_time.map(|rows| choice.latency.of(rows) as f64 / f64::from(rows));
        let quickest = per_row.min_by(f64::total_cmp);
        let quickest = quickest.or((self.rows == 0.0).then_some(0.0))?;
        Some(((self.rows * quickest / self.until * (1.0 - 1e-9)).ceil() as u32).max(1))
    }

    /// The least price of the step, US dollars an hour; 0 if no choice can do it.
    pub fn floor(&self, step: &Step) -> f64 {
        let prices = step.choices.iter().filter_map(|choice| {
            let replicas = self.replicas(choice)?;
            Some(choice.price * f64::from(replicas))
        });
        prices.min_by(f64::total_cmp).unwrap_or(0.0)
    }
}
