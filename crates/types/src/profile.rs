//! What was measured about a variant.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Latency of one batch size on one configuration.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BatchLatency {
    /// Rows in the batch.
    pub batch: u32,
    /// Median, ms.
    pub p50_ms: f64,
    /// 99th percentile, ms.
    pub p99_ms: f64,
    /// Mean, ms.
    pub mean_ms: f64,
    /// Runs measured.
    pub samples: u32,
}

/// The profile of a variant, measured once (INFaaS section 4, Variant-Profiler).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Time to load and be ready to run, ms (median of the repetitions).
    pub load_ms: f64,
    /// Measured batches in increasing order of size; never empty.
    pub batches: Vec<BatchLatency>,
    /// Slope of the least-squares fit l(b) = alpha * b + beta over the medians, ms per row.
    pub alpha_ms: f64,
    /// Intercept of that fit, ms.
    pub beta_ms: f64,
    /// Root mean square of the fit's residuals, ms.
    pub residual_ms: f64,
    /// Greatest rows per second over the measured batch sizes.
    pub saturation_rps: f64,
    /// Peak additional resident memory while running the largest batch, bytes.
    pub peak_memory_bytes: u64,
    /// Bytes of the weights, held once for all variants of the same artefact.
    pub weights_bytes: u64,
}

impl Profile {
    /// Median latency of a batch of `batch` rows, ms: the measured point, linear in between,
    /// the fitted line's slope beyond the last point.
    pub fn latency_ms(&self, batch: u32) -> f64 {
        self.interpolate(batch, |point| point.p50_ms)
    }

    /// 99th percentile of a batch of `batch` rows, ms, interpolated like [`Self::latency_ms`].
    pub fn tail_latency_ms(&self, batch: u32) -> f64 {
        self.interpolate(batch, |point| point.p99_ms)
    }

    /// The profile of a device on which everything takes `factor` times as long.
    pub fn slowed(&self, factor: f64) -> Cow<'_, Self> {
        if factor == 1.0 {
            return Cow::Borrowed(self);
        }
        let slowed = |point: &BatchLatency| BatchLatency {
            p50_ms: point.p50_ms * factor,
            p99_ms: point.p99_ms * factor,
            mean_ms: point.mean_ms * factor,
            ..*point
        };
        Cow::Owned(Self {
            load_ms: self.load_ms * factor,
            batches: self.batches.iter().map(slowed).collect(),
            alpha_ms: self.alpha_ms * factor,
            beta_ms: self.beta_ms * factor,
            residual_ms: self.residual_ms * factor,
            saturation_rps: self.saturation_rps / factor,
            ..*self
        })
    }

    fn interpolate(&self, batch: u32, value: impl Fn(&BatchLatency) -> f64) -> f64 {
        let Some(last) = self.batches.last() else {
            return f64::INFINITY;
        };
        let next = self.batches.partition_point(|point| point.batch < batch);
        let Some(above) = self.batches.get(next) else {
            return value(last) + self.alpha_ms.max(0.0) * f64::from(batch - last.batch);
        };
        if above.batch == batch || next == 0 {
            return value(above);
        }
        let below = &self.batches[next - 1];
        let share = f64::from(batch - below.batch) / f64::from(above.batch - below.batch);
        value(below) + share * (value(above) - value(below))
    }
}
