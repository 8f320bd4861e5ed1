//! The accuracy that a query gets which names a model and asks for none: that of the file as it was uploaded.
//!
//! Whoever names a model means the model that was trained. A cheaper variant may answer if its accuracy lies
//! within the measured interval of the uploaded file's, which is what the validation set can tell.

use std::sync::Arc;

use sextant_types::{Targets, Variant, as_uploaded};

use super::{Known, Scope};
use crate::extent::Extent;

/// Steps of least qualities: demand is counted by hundredths, rounded to the strict side.
const STEPS: f64 = 100.0;

/// The least quality of a model's usual answers, on the scale of [`sextant_types::Metric::quality`]; `None`
/// where no variant computes as the file says.
pub(super) fn usual_quality(members: &[Arc<Known>]) -> Option<f64> {
    let variants: Vec<&Variant> = members.iter().map(|known| &*known.variant).collect();
    let usual = as_uploaded(&variants).into_iter();
    let bounds = usual.map(|variant| variant.accuracy.quality_bound());
    let lowest = bounds.reduce(f64::min)?;
    Some((lowest * STEPS).floor() / STEPS)
}

impl Scope {
    /// The targets of a query that asks for no accuracy. Those that it has go first: where nothing of the usual
    /// accuracy could ever meet them, they stay as they are.
    pub(crate) fn usual_targets(&self, targets: Targets, extent: Extent) -> Targets {
        let Some(usual) = self.usual_quality.filter(|_| targets.min_quality.is_none()) else {
            return targets;
        };
        let latency_ms = targets.latency_ms.unwrap_or(f64::INFINITY);
        let most_usd = targets.max_cost_per_1k_usd.unwrap_or(f64::INFINITY);
        let entries = self.index(extent).entries();
        let is_met = entries.iter().any(|entry| {
            entry.quality_bound >= usual
                && entry.latency_ms <= latency_ms
                && entry.cost_per_1k_usd <= most_usd
        });
        Targets {
            min_quality: is_met.then_some(usual),
            ..targets
        }
    }
}
