//! The measurements of a variant.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::fit;

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
    /// Runs measured; 0 if the batch was too slow to be run and its times follow from smaller batches and sizes.
    pub samples: u32,
}

/// The profile of a variant, measured once (INFaaS section 4, Variant-Profiler).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Time to load and be ready to run, ms (median of the repetitions).
    pub load_ms: f64,
    /// Time of the first load on a device, ms, if the engine keeps what that load prepared and `load_ms` is the time of
    /// later ones; `None` if every load is like the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_load_ms: Option<f64>,
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
    /// The sizes of the inputs at which this was measured, and the measurements at other sizes.
    #[serde(flatten)]
    pub sizes: Sizes,
    /// Run times of lone queries side by side, in increasing order of their number from two on; empty if that was not
    /// measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub concurrent: Vec<ConcurrentRun>,
}

/// The measurements at different sizes of the inputs' dynamic dimensions beside the batch; empty if there is only one
/// size.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Sizes {
    /// The sizes at which batches of every number of rows were measured, as
    /// [`crate::Signature::dims`] gives them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dims: Vec<u64>,
    /// The measurements at other sizes, in increasing order of the elements of a row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shapes: Vec<ShapeProfile>,
    /// The greatest length that the engine takes, for inputs whose dynamic dimensions all have the same length; `None`
    /// if no limit was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<u64>,
}

/// Run time of one query while exactly `running` run side by side, each on threads of its own: a tuple of SERF (section
/// V).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ConcurrentRun {
    /// Queries that run side by side, at least 2.
    pub running: u16,
    /// Mean, ms.
    pub mean_ms: f64,
    /// Squared coefficient of variation.
    pub scv: f64,
    /// Runs measured.
    pub samples: u32,
}

/// Latency of queries of one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShapeProfile {
    /// Sizes of the dynamic dimensions.
    pub dims: Vec<u64>,
    /// Measured batches in increasing order of rows; never empty.
    pub batches: Vec<BatchLatency>,
}

impl Profile {
    /// Median latency of a batch of `batch` rows, ms: the measured point, linear in between, and the fitted line's
    /// slope beyond the last point.
    pub fn latency_ms(&self, batch: u32) -> f64 {
        self.interpolate(batch, |point| point.p50_ms)
    }

    /// 99th percentile of a batch of `batch` rows, ms, interpolated like [`Self::latency_ms`].
    pub fn tail_latency_ms(&self, batch: u32) -> f64 {
        self.interpolate(batch, |point| point.p99_ms)
    }

    /// Time of a load on a device that has not had the variant, ms.
    pub fn first_ms(&self) -> f64 {
        self.first_load_ms
            .map_or(self.load_ms, |first| first.max(self.load_ms))
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
            first_load_ms: self.first_load_ms.map(|first| first * factor),
            batches: self.batches.iter().map(slowed).collect(),
            sizes: Sizes {
                shapes: self
                    .sizes
                    .shapes
                    .iter()
                    .map(|shape| ShapeProfile {
                        dims: shape.dims.clone(),
                        batches: shape.batches.iter().map(slowed).collect(),
                    })
                    .collect(),
                ..self.sizes.clone()
            },
            concurrent: self
                .concurrent
                .iter()
                .map(|of| ConcurrentRun {
                    mean_ms: of.mean_ms * factor,
                    ..*of
                })
                .collect(),
            alpha_ms: self.alpha_ms * factor,
            beta_ms: self.beta_ms * factor,
            residual_ms: self.residual_ms * factor,
            saturation_rps: self.saturation_rps / factor,
            ..*self
        })
    }

    /// Sets the greatest rows per second to those of queries of one row that run one at a time.
    pub fn run_alone(&mut self) {
        let first = self.batches.iter().take(1).copied().collect::<Vec<_>>();
        self.saturation_rps = fit::saturation_rps(&first);
    }

    fn interpolate(&self, batch: u32, value: impl Fn(&BatchLatency) -> f64) -> f64 {
        interpolate(&self.batches, batch, self.alpha_ms, value)
    }
}

// === impl ConcurrentRun ===

impl ConcurrentRun {
    /// Made from run times in ms; `None` if there are none.
    pub fn of(running: u16, times_ms: &[f64]) -> Option<Self> {
        let count = times_ms.len() as f64;
        let mean_ms = times_ms.iter().sum::<f64>() / count;
        let squares = times_ms.iter().map(|time| (time - mean_ms).powi(2));
        let variance = squares.sum::<f64>() / (count - 1.0).max(1.0);
        (!times_ms.is_empty()).then(|| Self {
            running,
            mean_ms,
            scv: variance / (mean_ms * mean_ms).max(f64::MIN_POSITIVE),
            samples: u32::try_from(times_ms.len()).unwrap_or(u32::MAX),
        })
    }
}

// === impl ShapeProfile ===

impl ShapeProfile {
    /// Median latency of a batch of `batch` rows, ms: the measured point, linear in between, and beyond the last point
    /// extrapolated by the time of the last rows.
    pub fn latency_ms(&self, batch: u32) -> f64 {
        self.interpolate(batch, |point| point.p50_ms)
    }

    /// 99th percentile of a batch of `batch` rows, ms, interpolated like [`Self::latency_ms`].
    pub fn tail_latency_ms(&self, batch: u32) -> f64 {
        self.interpolate(batch, |point| point.p99_ms)
    }

    fn interpolate(&self, batch: u32, value: impl Fn(&BatchLatency) -> f64) -> f64 {
        let slope = match self.batches.as_slice() {
            [.., before, last] => {
                (value(last) - value(before)) / f64::from((last.batch - before.batch).max(1))
            }
            [only] => value(only) / f64::from(only.batch.max(1)),
            [] => 0.0,
        };
        interpolate(&self.batches, batch, slope, value)
    }
}

fn interpolate(
    points: &[BatchLatency],
    batch: u32,
    slope_ms: f64,
    value: impl Fn(&BatchLatency) -> f64,
) -> f64 {
    let Some(last) = points.last() else {
        return f64::INFINITY;
    };
    let next = points.partition_point(|point| point.batch < batch);
    let Some(above) = points.get(next) else {
        return value(last) + slope_ms.max(0.0) * f64::from(batch - last.batch);
    };
    if above.batch == batch || next == 0 {
        return value(above);
    }
    let below = &points[next - 1];
    let share = f64::from(batch - below.batch) / f64::from(above.batch - below.batch);
    value(below) + share * (value(above) - value(below))
}
