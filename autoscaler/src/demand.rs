//! The history of demand: what clients asked for over time.

use std::{collections::BTreeMap, sync::Arc};

use sextant_metadata::{ApplicationDemand, Demand};
use sextant_picture::{Forecast, Need, StepLoad};
use sextant_scaling::demand::{DemandSample, Load};
use sextant_types::{Code, ErrorKind, TargetClass, WholeAccuracy};

/// Time without a query after which a need is forgotten, ms.
const FORGOTTEN_MS: u64 = 24 * 3_600_000;

/// Time for which a latency target is remembered, ms. It may be remembered up to twice as long.
const TARGETS_MS: u64 = 300_000;

/// The strictest and the loosest latency target, ms.
type Span = (f64, f64);

/// All needs that were seen and are not forgotten.
#[derive(Debug, Default)]
pub(crate) struct NeedHistory {
    needs: BTreeMap<Need, NeedRecord>,
    /// The record that was observed last, and when.
    last: Option<(Arc<Demand>, u64)>,
}

/// The history of one need.
#[derive(Debug, Default)]
struct NeedRecord {
    load: Load,
    /// Queries per row in the last window in which any came.
    queries_per_row: Option<f64>,
    targets: RecentTargets,
    /// For a step: runs per row in the last window in which any came.
    runs_per_row: f64,
    /// For a step: the latency targets of the whole pipeline.
    whole: RecentTargets,
    /// For a step: the least accuracies that were demanded of the whole pipeline, and its last reported accuracy.
    least: RecentTargets,
    accuracy: Option<WholeAccuracy>,
}

/// The latency targets of recent queries.
#[derive(Debug, Default)]
struct RecentTargets {
    /// The targets of the present period, its start in ms, and the targets of the period before.
    now: Option<Span>,
    since_ms: u64,
    before: Option<Span>,
}

/// What came of a need in one window.
#[derive(Debug, Clone, Default)]
struct NeedTotals {
    rows: f64,
    queries: f64,
    /// Rows of the queries that more devices could have answered in time, and the number of these queries.
    bad: f64,
    bad_queries: f64,
    targets: Option<Span>,
    /// Runs of a step.
    runs: f64,
    whole: Option<Span>,
    accuracy: Option<WholeAccuracy>,
}

// === impl NeedHistory ===

impl NeedHistory {
    /// Adds a record to the history, each record once. If the record does not change, nothing new came in the meantime:
    /// the store does not announce a record that equals the last one.
    pub(crate) fn observe(&mut self, now_ms: u64, demand: Option<&Arc<Demand>>) {
        let Some(demand) = demand else { return };
        let window_ms = match &self.last {
            Some((known, at)) if Arc::ptr_eq(known, demand) || **known == **demand => {
                let since = now_ms.saturating_sub(*at);
                if since < 2 * demand.window_ms.clamp(1, 60_000) {
                    return;
                }
                since
            }
            _ => demand.window_ms.max(1),
        };
        let scale = window_ms as f64 / demand.window_ms.max(1) as f64;
        self.last = Some((Arc::clone(demand), now_ms));
        let mut all: BTreeMap<Need, NeedTotals> = BTreeMap::new();
        for row in &demand.applications {
            let need = Need {
                application: row.application.clone(),
                class: row.class,
                step: row.step.as_ref().map(|step| step.of.clone()),
            };
            let counted = all.entry(need).or_default();
            counted.targets = joined(counted.targets, row.latency_ms);
            // Devices answer rows: a query of eight rows is as much work as eight queries of one row, and a query of a
            // size that takes twice as long is as much work as two. A query with a cached answer is no work.
            let asked = row.offered.saturating_sub(row.kept);
            let rows = match row.sized_rows > 0.0 {
                true => row.sized_rows,
                false => row.input_rows.max(asked) as f64,
            };
            let each = rows / asked.max(1) as f64;
            counted.rows += rows * scale;
            if let Some(step) = &row.step {
                counted.runs += step.runs * scale;
                counted.whole = joined(counted.whole, step.whole_ms);
                counted.accuracy = stricter(counted.accuracy.take(), step.accuracy.as_ref());
            }
            counted.queries += asked as f64 * scale;
            let bad = bad_of(row) as f64 * scale;
            counted.bad += bad * each;
            counted.bad_queries += bad;
        }
        for need in all.keys() {
            if !self.needs.contains_key(need) {
                self.needs.insert(need.clone(), NeedRecord::default());
            }
        }
        for (need, known) in &mut self.needs {
            let counted = all.remove(need).unwrap_or_default();
            let ended = DemandSample {
                offered: counted.rows,
                bad: counted.bad,
                queries: counted.queries,
                bad_queries: counted.bad_queries,
            };
            known.load.observe(now_ms, window_ms, ended);
            known.targets.see(now_ms, counted.targets);
            known.whole.see(now_ms, counted.whole);
            known.least.see(
                now_ms,
                counted.accuracy.as_ref().map(|it| (it.least, it.least)),
            );
            known.accuracy = counted.accuracy.or_else(|| known.accuracy.take());
            if counted.rows > 0.0 {
                known.queries_per_row = Some(counted.queries / counted.rows);
                known.runs_per_row = counted.runs / counted.rows;
            }
        }
        self.needs
            .retain(|_, known| now_ms.saturating_sub(known.load.last_ms()) < FORGOTTEN_MS);
    }

    /// Forecasts each need for the next `ahead_s` seconds. A need without a query in the last `idle_ms` has no load.
    pub(crate) fn forecast(&self, now_ms: u64, ahead_s: f64, idle_ms: u64) -> Vec<Forecast> {
        let each = self.needs.iter().map(|(need, known)| Forecast {
            need: need.clone(),
            of: known.load.forecast(now_ms, ahead_s, idle_ms),
            latency_ms: known.targets.seen().or_else(|| of_class(need.class)),
            step: need.step.as_ref().map(|_| StepLoad {
                runs_per_row: known.runs_per_row,
                whole_ms: known.whole.seen(),
                accuracy: known.of_whole(),
            }),
            queries_per_row: known.queries_per_row.unwrap_or(1.0),
        });
        each.collect()
    }
}

/// Queries that more devices could have answered in time.
fn bad_of(row: &ApplicationDemand) -> u64 {
    let refused = row.refused.iter().filter(|(code, _)| {
        **code != Code::BudgetExhausted
            && matches!(
                code.kind(),
                ErrorKind::Overloaded | ErrorKind::DeadlineExceeded | ErrorKind::Unavailable
            )
    });
    row.late + refused.map(|(_, count)| count).sum::<u64>()
}

/// The stricter of two demands.
fn stricter(one: Option<WholeAccuracy>, other: Option<&WholeAccuracy>) -> Option<WholeAccuracy> {
    match (one, other) {
        (Some(one), Some(other)) if one.least >= other.least => Some(one),
        (one, None) => one,
        (_, other) => other.cloned(),
    }
}

// === impl NeedRecord ===

impl NeedRecord {
    /// The accuracy that was demanded of the whole pipeline lately, but at most the accuracy that was measured last:
    /// queries that demand more are refused.
    fn of_whole(&self) -> Option<WholeAccuracy> {
        let (_, least) = self.least.seen()?;
        let of = self.accuracy.as_ref()?;
        Some(WholeAccuracy {
            least: least.min(of.measured),
            ..of.clone()
        })
    }
}

// === impl RecentTargets ===

impl RecentTargets {
    fn see(&mut self, now_ms: u64, targets: Option<Span>) {
        if now_ms.saturating_sub(self.since_ms) >= TARGETS_MS && targets.is_some() {
            (self.before, self.since_ms) = (self.now.take(), now_ms);
        }
        self.now = joined(self.now, targets);
    }

    fn seen(&self) -> Option<Span> {
        joined(self.now, self.before)
    }
}

fn joined(one: Option<Span>, other: Option<Span>) -> Option<Span> {
    match (one, other) {
        (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
        (one, other) => one.or(other),
    }
}

/// From the strictest target of a class to the next looser class, ms.
fn of_class(class: TargetClass) -> Option<Span> {
    let strict = class.latency_ms()?;
    Some((strict, 2.0 * strict))
}
