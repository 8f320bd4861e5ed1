//! The present costs of applications: the growth of the dispatcher's sums over the last minute.

use std::{
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
    time::Duration,
};

use parking_lot::Mutex;
use sextant_metadata::Costs;
use sextant_types::ApplicationId;
use tokio::time::sleep;

use crate::ApiState;

/// How often the sums are read.
const EVERY: Duration = Duration::from_secs(5);
/// How long they are remembered, milliseconds.
const KEPT_MS: u64 = 60_000;
/// Shortest time over which a rate is reported, milliseconds.
const LEAST_MS: u64 = 4_000;
const HOUR_MS: f64 = 3_600_000.0;

/// The sums of the last minute, oldest first.
#[derive(Default)]
pub struct Spending(Mutex<VecDeque<Sums>>);

/// The costs of applications until a moment.
struct Sums {
    since_ms: u64,
    until_ms: u64,
    usd: BTreeMap<ApplicationId, f64>,
}

/// Reads the sums from time to time.
pub async fn follow(state: &ApiState) -> Infallible {
    loop {
        // If the store does not answer, others log it.
        if let Ok(snapshot) = state.metadata().snapshot().await
            && let Some(demand) = &snapshot.demand
        {
            state.spending().note(&demand.costs);
        }
        sleep(EVERY).await;
    }
}

// === impl Spending ===

impl Spending {
    /// The present costs of an application, US dollars an hour; `None` until they have been counted long enough.
    pub fn per_hour_usd(&self, application: &ApplicationId) -> Option<f64> {
        let sums = self.0.lock();
        let (first, last) = (sums.front()?, sums.back()?);
        let passed_ms = last.until_ms.saturating_sub(first.until_ms);
        let usd = |of: &Sums| of.usd.get(application).copied().unwrap_or_default();
        let spent = (usd(last) - usd(first)).max(0.0);
        (passed_ms >= LEAST_MS).then(|| spent / passed_ms as f64 * HOUR_MS)
    }

    fn note(&self, costs: &Costs) {
        let mut sums = self.0.lock();
        let last = sums.back();
        if last.is_some_and(|last| last.until_ms == costs.until_ms) {
            return;
        }
        // Another dispatcher leads, and counts from zero.
        if last.is_some_and(|last| last.since_ms != costs.since_ms) {
            sums.clear();
        }
        sums.push_back(Sums::from(costs));
        let oldest_ms = costs.until_ms.saturating_sub(KEPT_MS);
        while sums.front().is_some_and(|of| of.until_ms < oldest_ms) {
            sums.pop_front();
        }
    }
}

impl From<&Costs> for Sums {
    fn from(costs: &Costs) -> Self {
        let mut usd: BTreeMap<ApplicationId, f64> = BTreeMap::new();
        for row in &costs.rows {
            *usd.entry(row.application.clone()).or_default() += row.usd + row.idle_usd;
        }
        Self {
            since_ms: costs.since_ms,
            until_ms: costs.until_ms,
            usd,
        }
    }
}

#[cfg(test)]
mod tests {
    use sextant_metadata::CostRow;

    use super::*;

    fn costs(since_ms: u64, until_ms: u64, usd: f64) -> Costs {
        let row = CostRow {
            application: "digits".parse().expect("a name"),
            usd,
            idle_usd: usd,
            variant: None,
            device_type: None,
            offline_usd: 0.0,
            device_seconds: 0.0,
            queries: 0,
            offline_queries: 0,
        };
        Costs {
            since_ms,
            until_ms,
            rows: vec![row],
            ..Costs::default()
        }
    }

    #[test]
    fn a_rate_is_what_was_spent_over_the_last_minute() {
        let spending = Spending::default();
        let digits = "digits".parse().expect("a name");
        spending.note(&costs(0, 1_000, 5.0));
        assert_eq!(spending.per_hour_usd(&digits), None);
        spending.note(&costs(0, 11_000, 6.0));
        assert_eq!(spending.per_hour_usd(&digits), Some(720.0));
        spending.note(&costs(0, 71_000, 6.5));
        assert_eq!(spending.per_hour_usd(&digits), Some(60.0));
        spending.note(&costs(70_000, 72_000, 0.1));
        assert_eq!(spending.per_hour_usd(&digits), None, "another counts anew");
    }
}
