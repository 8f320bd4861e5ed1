//! Figures of what was counted.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::Tally;

/// Times, ms.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Percentiles {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p99_9: f64,
    /// The longest.
    pub max: f64,
}

/// What was measured of an application, or of all.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Which application; `None` for all of them.
    pub application: Option<String>,
    /// For how long queries were counted.
    pub seconds: f64,
    /// Queries that were due meanwhile.
    pub sent: u64,
    /// The same for each second.
    pub sent_per_s: f64,
    /// Queries that were answered.
    pub answered: u64,
    /// The same for each second.
    pub answered_per_s: f64,
    /// From when a query was due until the last byte of its answer; `None` without an answer.
    pub latency_ms: Option<Percentiles>,
    /// The same from when it was sent.
    pub from_sending_ms: Option<Percentiles>,
    /// By how much later than due the generator took queries up.
    pub lag_ms: Option<Percentiles>,
    /// The latency target, where the queries have one.
    pub target_ms: Option<f64>,
    /// Share of the queries that were answered within the latency target.
    pub in_time_share: Option<f64>,
    /// Share of the queries whose answers say that all targets are met; `None` where answers do not tell.
    pub targets_met_share: Option<f64>,
    /// Refused, by code.
    pub refused: BTreeMap<String, u64>,
    /// Without an answer: `connect`, `connection` or `timeout`.
    pub broken: BTreeMap<&'static str, u64>,
    /// Answers by variant.
    pub variants: BTreeMap<String, u64>,
}

// === impl Percentiles ===

impl Percentiles {
    /// Of times in ns; `None` of no times.
    pub fn of(histogram: &Histogram<u64>) -> Option<Self> {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e6;
        (!histogram.is_empty()).then(|| Self {
            mean: histogram.mean() / 1e6,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: histogram.max() as f64 / 1e6,
        })
    }
}

// === impl Summary ===

impl Summary {
    /// Of a stream, by its name, whose queries have this latency target.
    pub fn of(application: &str, tally: &Tally, counted: Duration, target: Option<f64>) -> Self {
        let share = |count: u64| (tally.sent > 0).then(|| count as f64 / tally.sent as f64);
        Self {
            target_ms: target,
            in_time_share: target.and_then(|_| share(tally.in_time)),
            application: Some(application.to_owned()),
            ..Self::all(tally, counted)
        }
    }

    /// Of all streams together.
    pub fn all(tally: &Tally, counted: Duration) -> Self {
        let seconds = counted.as_secs_f64();
        let per_s = |count: u64| match seconds > 0.0 {
            true => count as f64 / seconds,
            false => 0.0,
        };
        let tells = !tally.variants.is_empty() && tally.sent > 0;
        Self {
            application: None,
            seconds,
            sent: tally.sent,
            sent_per_s: per_s(tally.sent),
            answered: tally.answered(),
            answered_per_s: per_s(tally.answered()),
            latency_ms: Percentiles::of(&tally.latency),
            from_sending_ms: Percentiles::of(&tally.from_sending),
            lag_ms: Percentiles::of(&tally.lag),
            target_ms: None,
            in_time_share: None,
            targets_met_share: tells.then(|| tally.targets_met as f64 / tally.sent as f64),
            refused: tally.refused.clone(),
            broken: tally.broken.clone(),
            variants: tally.variants.clone(),
        }
    }
}
