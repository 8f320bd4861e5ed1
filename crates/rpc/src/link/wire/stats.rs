//! A worker's statistics.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ActionKind, ActionStats, Mispredictions, WorkerStats};

/// [`ActionKind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WireAction {
    /// Run a batch.
    Infer,
    /// Load a variant.
    Load,
    /// Unload a variant.
    Unload,
}

/// [`ActionStats`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WireActionStats {
    /// Actions that succeeded.
    pub succeeded: u64,
    /// Actions that did not, by code.
    pub failed: BTreeMap<String, u64>,
    /// Took longer than expected.
    pub under_predicted: WireMispredictions,
    /// Took less than expected.
    pub over_predicted: WireMispredictions,
    /// Ended later than expected.
    pub late_completion: WireMispredictions,
}

/// [`Mispredictions`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WireMispredictions {
    /// Actions that erred this way.
    pub count: u64,
    /// Median, 99th and 99.9th percentile and greatest error, microseconds.
    pub quantiles_us: [f64; 4],
}

/// Codes of refusals; one that is not among them is counted as `failed`.
const CODES: [&str; 11] = [
    "too_early",
    "too_late",
    "not_loaded",
    "no_memory",
    "weights_changed",
    "bad_shape",
    "lost",
    "shutting_down",
    "unknown",
    "rejected",
    "failed",
];

/// The statistics as a message carries them.
pub(in crate::link) fn to_wire(stats: WorkerStats) -> BTreeMap<WireAction, WireActionStats> {
    let kind = |kind| match kind {
        ActionKind::Infer => WireAction::Infer,
        ActionKind::Load => WireAction::Load,
        ActionKind::Unload => WireAction::Unload,
    };
    let actions = stats.actions.into_iter();
    actions
        .map(|(it, stats)| (kind(it), stats.into()))
        .collect()
}

/// The inverse of [`to_wire`].
pub(in crate::link) fn from_wire(actions: BTreeMap<WireAction, WireActionStats>) -> WorkerStats {
    let kind = |kind| match kind {
        WireAction::Infer => ActionKind::Infer,
        WireAction::Load => ActionKind::Load,
        WireAction::Unload => ActionKind::Unload,
    };
    let actions = actions.into_iter();
    WorkerStats {
        actions: actions
            .map(|(it, stats)| (kind(it), stats.into()))
            .collect(),
    }
}

impl From<ActionStats> for WireActionStats {
    fn from(stats: ActionStats) -> Self {
        let failed = stats.failed.into_iter();
        Self {
            succeeded: stats.succeeded,
            failed: failed
                .map(|(code, count)| (code.to_owned(), count))
                .collect(),
            under_predicted: stats.under_predicted.into(),
            over_predicted: stats.over_predicted.into(),
            late_completion: stats.late_completion.into(),
        }
    }
}

impl From<WireActionStats> for ActionStats {
    fn from(stats: WireActionStats) -> Self {
        let mut failed = BTreeMap::new();
        for (code, count) in stats.failed {
            let known = CODES.into_iter().find(|known| *known == code);
            *failed.entry(known.unwrap_or("failed")).or_default() += count;
        }
        Self {
            succeeded: stats.succeeded,
            failed,
            under_predicted: stats.under_predicted.into(),
            over_predicted: stats.over_predicted.into(),
            late_completion: stats.late_completion.into(),
        }
    }
}

impl From<Mispredictions> for WireMispredictions {
    fn from(it: Mispredictions) -> Self {
        Self {
            count: it.count,
            quantiles_us: [it.p50_us, it.p99_us, it.p999_us, it.max_us],
        }
    }
}

impl From<WireMispredictions> for Mispredictions {
    fn from(it: WireMispredictions) -> Self {
        let [p50_us, p99_us, p999_us, max_us] = it.quantiles_us;
        Self {
            count: it.count,
            p50_us,
            p99_us,
            p999_us,
            max_us,
        }
    }
}
