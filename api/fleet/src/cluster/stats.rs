//! A worker's statistics as clients see them.

use std::collections::BTreeMap;

use serde::Serialize;
use sextant_rpc::{ActionKind, ActionStats, Mispredictions, WorkerInfo, WorkerStats};
use utoipa::ToSchema;

/// What a worker did and how well it was predicted.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WorkerStats)]
pub struct StatsBody {
    /// The worker's name.
    name: String,
    /// What it runs batches on: `cpu`, `cuda:0`, `emulated:3` or the name of a runtime.
    device: String,
    /// Engines whose variants it runs.
    engines: Vec<String>,
    /// Memory for loaded variants.
    pages: PagesBody,
    /// Share of device time that was busy over the last second, 0 to 1.
    utilization: f64,
    /// By kind of action: `infer`, `load`, `unload`.
    actions: BTreeMap<&'static str, ActionBody>,
}

/// A device's memory in pages.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Pages)]
pub struct PagesBody {
    /// Size of a page, bytes.
    page_bytes: u64,
    /// Pages there are.
    total: u64,
    /// Pages that nothing occupies.
    free: u64,
}

/// Counts and prediction errors of one kind of action since the worker's start.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ActionStats)]
pub struct ActionBody {
    /// Actions that succeeded.
    succeeded: u64,
    /// Actions that did not succeed, by code: `too_late`, `not_loaded`, `no_memory`, ..
    failed: BTreeMap<&'static str, u64>,
    /// By how much the last actions took longer than predicted.
    under_predicted: ErrorsBody,
    /// By how much the last actions took less than predicted.
    over_predicted: ErrorsBody,
    /// By how much the last actions ended later than predicted.
    late_completion: ErrorsBody,
}

/// Quantiles of prediction errors, microseconds.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PredictionErrors)]
pub struct ErrorsBody {
    /// Actions whose prediction was wrong in this direction.
    count: u64,
    /// Median.
    p50_us: f64,
    /// 99th percentile.
    p99_us: f64,
    /// 99.9th percentile.
    p999_us: f64,
    /// Greatest.
    max_us: f64,
}

impl StatsBody {
    pub(super) fn new(device: &str, info: &WorkerInfo, stats: &WorkerStats) -> Self {
        let engines = info.engines.iter().map(ToString::to_string);
        let actions = stats.actions.iter();
        Self {
            name: info.worker.to_string(),
            device: device.to_owned(),
            engines: engines.collect(),
            pages: PagesBody {
                page_bytes: info.pages.page_bytes,
                total: info.pages.total,
                free: info.pages.free,
            },
            utilization: info.utilization,
            actions: actions
                .map(|(kind, stats)| (name(*kind), stats.into()))
                .collect(),
        }
    }
}

fn name(kind: ActionKind) -> &'static str {
    match kind {
        ActionKind::Infer => "infer",
        ActionKind::Load => "load",
        ActionKind::Unload => "unload",
    }
}

impl From<&ActionStats> for ActionBody {
    fn from(stats: &ActionStats) -> Self {
        Self {
            succeeded: stats.succeeded,
            failed: stats.failed.clone(),
            under_predicted: stats.under_predicted.into(),
            over_predicted: stats.over_predicted.into(),
            late_completion: stats.late_completion.into(),
        }
    }
}

impl From<Mispredictions> for ErrorsBody {
    fn from(errors: Mispredictions) -> Self {
        Self {
            count: errors.count,
            p50_us: errors.p50_us,
            p99_us: errors.p99_us,
            p999_us: errors.p999_us,
            max_us: errors.max_us,
        }
    }
}
