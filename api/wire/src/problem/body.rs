//! The problem document on the wire. Its members are in the order in which people read them.

use std::borrow::Cow;

use serde::Serialize;
use sextant_rpc::Candidate;
use sextant_types::Targets;
use utoipa::ToSchema;

/// One considered variant.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Candidate)]
pub struct CandidateBody {
    /// The variant. It is a candidate on each type of device on which it can run.
    pub variant: String,
    /// The type of that device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_type: Option<String>,
    /// Lower end of its accuracy's interval, for proportions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy_bound: Option<f64>,
    /// Upper end of its error's interval, for errors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_bound: Option<f64>,
    /// The same bound, in the metric's own unit, if it is of agreement with the uploaded file or of an
    /// unknown kind. It does not count for `min_accuracy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agreement_bound: Option<f64>,
    /// Expected latency for this query now, milliseconds.
    pub expected_ms: f64,
    /// US dollars for a thousand queries.
    pub cost_per_1k_usd: f64,
    /// Whether time and cost are estimates, because nothing was measured on this type of device or at this
    /// size of the inputs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
    /// State of its best instance: `active`, `degraded` (overloaded or interfered), `loading`, `inactive`, or
    /// `failed` if no worker can load it.
    pub state: Cow<'static, str>,
    /// `selected`, or the reason why it was not.
    pub verdict: Cow<'static, str>,
    /// Every target that it misses by the figures above: `accuracy`, `latency`, `cost`; only if the query was refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub misses: Vec<&'static str>,
}

/// An error: a problem document (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemBody {
    /// Page of the error.
    #[schema(example = "/docs/errors/target_infeasible")]
    pub r#type: String,
    /// What the code means.
    pub title: &'static str,
    /// HTTP status.
    pub status: u16,
    /// What happened.
    pub detail: String,
    /// Path of the request.
    pub instance: String,
    /// The id of the request, under which the log has it; also in the header `x-request-id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Stable code.
    #[schema(example = "target_infeasible")]
    pub code: &'static str,
    /// The detail again, on `/v2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When to try again, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Line of the body, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Column of the body, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    /// Which field is at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The variants that come nearest to infeasible targets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closest: Option<Vec<CandidateBody>>,
}

impl From<&Candidate> for CandidateBody {
    /// The bound is named by the metric's direction: errors are negative on the quality scale.
    fn from(candidate: &Candidate) -> Self {
        let bound = candidate.quality_bound;
        let is_error = bound.is_sign_negative();
        let is_accuracy = candidate.kind.is_accuracy();
        Self {
            variant: candidate.variant.to_string(),
            device_type: candidate.device_type.as_ref().map(ToString::to_string),
            accuracy_bound: (is_accuracy && !is_error).then_some(bound),
            error_bound: (is_accuracy && is_error).then_some(-bound),
            agreement_bound: (!is_accuracy).then_some(bound.abs()),
            expected_ms: candidate.expected_ms,
            cost_per_1k_usd: candidate.cost_per_1k_usd,
            estimated: candidate.estimated,
            state: candidate.state.clone(),
            verdict: candidate.verdict.clone(),
            misses: Vec::new(),
        }
    }
}

impl CandidateBody {
    /// A candidate, with those of the query's targets that it misses.
    pub fn missing(candidate: &Candidate, targets: &Targets) -> Self {
        let accuracy = targets
            .min_quality
            .map(|least| !candidate.kind.is_accuracy() || candidate.quality_bound < least);
        let latency = targets.latency_ms.map(|most| candidate.expected_ms > most);
        let cost = targets
            .max_cost_per_1k_usd
            .map(|most| candidate.cost_per_1k_usd > most);
        let each = [("accuracy", accuracy), ("latency", latency), ("cost", cost)];
        let missed = each.into_iter().filter(|(_, missed)| *missed == Some(true));
        Self {
            misses: missed.map(|(name, _)| name).collect(),
            ..Self::from(candidate)
        }
    }
}
