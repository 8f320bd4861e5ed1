//! Figures of a variant as they are shown.

use serde::Serialize;
use sextant_types::{Accuracy, BatchLatency, ConcurrentRun};
use utoipa::ToSchema;

/// A measured accuracy with its 95 % interval.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Accuracy)]
pub struct AccuracyBody {
    /// `accuracy`, measured against labels; `agreement` with the uploaded file, which is no accuracy and does
    /// not count for `min_accuracy`; `unknown` if an earlier version of Sextant registered the model and
    /// nothing says which it is.
    kind: &'static str,
    /// `top1`, `top5`, `exact`, `mae`, ..
    metric: String,
    /// Point estimate.
    value: f64,
    /// Lower end of the interval.
    lower: f64,
    /// Upper end of the interval.
    upper: f64,
    /// Records that were scored.
    records: u64,
    /// Rows per batch while measuring.
    evaluation_batch: u32,
}

/// Measured latency of one query while so many run side by side.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ConcurrentLatency)]
pub struct ConcurrentBody {
    /// Queries that run side by side.
    running: u16,
    /// Mean, milliseconds.
    mean_ms: f64,
    /// Squared coefficient of variation of the run times.
    scv: f64,
    /// Runs measured.
    samples: u32,
}

/// Measured latency of one batch size.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BatchLatency)]
pub struct BatchLatencyBody {
    /// Rows in the batch.
    batch: u32,
    /// Median, milliseconds.
    p50_ms: f64,
    /// 99th percentile, milliseconds.
    p99_ms: f64,
    /// Mean, milliseconds.
    mean_ms: f64,
    /// Runs measured.
    samples: u32,
}

impl From<&Accuracy> for AccuracyBody {
    fn from(accuracy: &Accuracy) -> Self {
        Self {
            kind: accuracy.kind.name(),
            metric: accuracy.metric.name(),
            value: accuracy.value,
            lower: accuracy.lower,
            upper: accuracy.upper,
            records: accuracy.records,
            evaluation_batch: accuracy.evaluation_batch,
        }
    }
}

impl From<&ConcurrentRun> for ConcurrentBody {
    fn from(concurrent: &ConcurrentRun) -> Self {
        Self {
            running: concurrent.running,
            mean_ms: concurrent.mean_ms,
            scv: concurrent.scv,
            samples: concurrent.samples,
        }
    }
}

impl From<&BatchLatency> for BatchLatencyBody {
    fn from(latency: &BatchLatency) -> Self {
        Self {
            batch: latency.batch,
            p50_ms: latency.p50_ms,
            p99_ms: latency.p99_ms,
            mean_ms: latency.mean_ms,
            samples: latency.samples,
        }
    }
}
