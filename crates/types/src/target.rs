//! What a query asks for.

use serde::{Deserialize, Serialize};

/// The targets of one query. `None` means: no demand of that kind.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Targets {
    /// Deadline in milliseconds, counted from the arrival of the last byte of the request.
    pub latency_ms: Option<f64>,
    /// Least acceptable quality, on the scale of [`crate::Metric::quality`]: compared with the
    /// lower bound of a variant's measured interval, never with the point estimate.
    pub min_quality: Option<f64>,
    /// Most to be paid for a thousand queries, in US dollars, at saturation.
    pub max_cost_per_1k_usd: Option<f64>,
}

/// A target that no variant could ever be compared with.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("target `{name}` is `{value}`: it must be {rule}")]
pub struct InvalidTarget {
    /// The field's public name.
    pub name: &'static str,
    /// The refused value.
    pub value: f64,
    /// What would be accepted.
    pub rule: &'static str,
}

/// Longest accepted latency target: a day.
pub const MAX_LATENCY_MS: f64 = 86_400_000.0;

impl Targets {
    /// Refuses NaN, infinities, non-positive latencies and costs.
    pub fn validate(&self) -> Result<(), InvalidTarget> {
        let refuse = |name, value, rule| Err(InvalidTarget { name, value, rule });
        if let Some(value) = self.latency_ms
            && !(value > 0.0 && value <= MAX_LATENCY_MS)
        {
            return refuse("latency_ms", value, "a number above 0 and at most 86400000");
        }
        if let Some(value) = self.min_quality
            && !value.is_finite()
        {
            return refuse("min_accuracy", value, "a finite number");
        }
        if let Some(value) = self.max_cost_per_1k_usd
            && !(value > 0.0 && value.is_finite())
        {
            return refuse("max_cost_per_1k_usd", value, "a finite number above 0");
        }
        Ok(())
    }
}
