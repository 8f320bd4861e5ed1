//! A class of queries with similar targets, in the terms of their application's metric.

use serde::Serialize;
use sextant_types::{ApplicationId, TargetClass};
use utoipa::ToSchema;

use crate::ApiState;

/// Queries with similar targets. The member of a target is absent if they have no such target.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TargetClass)]
pub struct ClassBody {
    /// Their latency targets are at least this and less than twice as long, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_ms: Option<f64>,
    /// Their least accuracy is at most this and more than a hundredth below, for the metrics top1, top5
    /// and exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    min_accuracy: Option<f64>,
    /// Their greatest error is at least this and less than a hundredth above, for the metric mae.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_error: Option<f64>,
    /// The share of the uploaded file's agreement that they take instead of an accuracy is at most this and more than a
    /// hundredth below.
    #[serde(skip_serializing_if = "Option::is_none")]
    min_agreement: Option<f64>,
}

// === impl ClassBody ===

impl ClassBody {
    /// A class of queries of an application.
    pub fn new(state: &ApiState, application: &ApplicationId, class: &TargetClass) -> Self {
        let quality = class.min_quality();
        // The application may have been deleted since: errors are negative on the quality scale.
        let is_higher_better = match state.metric(application) {
            Some(metric) => metric.higher_is_better(),
            None => quality.is_none_or(|quality| quality >= 0.0),
        };
        Self {
            latency_ms: class.latency_ms(),
            min_accuracy: quality.filter(|_| is_higher_better),
            // An error of 0 must not become `-0.0`.
            max_error: quality
                .filter(|_| !is_higher_better)
                .map(|quality| 0.0 - quality),
            min_agreement: class.min_agreement(),
        }
    }
}
