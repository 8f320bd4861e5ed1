//! Shapes that are written by hand on the hot path, described for OpenAPI.

use serde::Serialize;
use utoipa::ToSchema;

/// The answer to a query.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Answer)]
pub struct AnswerBody {
    /// The id of the query, if it had one.
    pub id: Option<String>,
    /// The model that answered.
    pub model: String,
    /// The variant that answered.
    pub variant: String,
    /// Outputs in the model's order.
    pub outputs: Vec<OutputBody>,
    /// Whether every stated target was met.
    pub targets_met: bool,
    /// Where the time went.
    pub timings: TimingsBody,
    /// What was considered, when asked for.
    pub explanation: Option<ExplanationBody>,
}

/// One output tensor. Elements that JSON cannot express (NaN, infinities) are `null`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Output)]
pub struct OutputBody {
    /// Name of the output in the graph.
    pub name: String,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Element type.
    pub datatype: String,
    /// Elements, row-major and flat.
    pub data: Vec<serde_json::Value>,
}

/// Where the time of a query went.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Timings)]
pub struct TimingsBody {
    /// Waiting for a batch and a device, microseconds.
    pub queue_us: f64,
    /// Running, microseconds.
    pub compute_us: f64,
    /// From arrival to answer, microseconds.
    pub total_us: f64,
    /// Rows in the batch that carried the query.
    pub batch_rows: u32,
}

/// What the selection looked at and why it chose.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Explanation)]
pub struct ExplanationBody {
    /// One sentence.
    pub reason: String,
    /// Variants considered in all.
    pub considered: usize,
    /// The best of them, best first.
    pub candidates: Vec<CandidateBody>,
}

/// One considered variant.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Candidate)]
pub struct CandidateBody {
    /// Which variant.
    pub variant: String,
    /// Lower bound of its accuracy, for proportions.
    pub accuracy_bound: Option<f64>,
    /// Upper bound of its error, for errors.
    pub error_bound: Option<f64>,
    /// Expected latency for this query now, milliseconds.
    pub expected_ms: f64,
    /// US dollars for a thousand queries.
    pub cost_per_1k_usd: f64,
    /// State of its instance.
    pub state: String,
    /// `selected`, or what spoke against it.
    pub verdict: String,
}

/// An error: a problem document (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemBody {
    /// Page of the error.
    #[schema(example = "/docs/errors/target_infeasible")]
    pub r#type: String,
    /// What the code means.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// What happened.
    pub detail: String,
    /// Path of the request.
    pub instance: String,
    /// Stable code.
    #[schema(example = "target_infeasible")]
    pub code: String,
    /// The detail again, on `/v2`.
    pub error: Option<String>,
    /// When to try again, milliseconds.
    pub retry_after_ms: Option<u64>,
    /// The variants that come nearest to infeasible targets.
    pub closest: Option<Vec<CandidateBody>>,
    /// Line of the body, from 1.
    pub line: Option<usize>,
    /// Column of the body, from 1.
    pub column: Option<usize>,
    /// Which field is at fault.
    pub field: Option<String>,
}
