//! Schemas for OpenAPI of bodies that the hot path reads and writes by hand.

use serde::Serialize;
use sextant_rpc::{Explanation, StepRecord};
use utoipa::ToSchema;

use crate::problem::CandidateBody;

/// The answer to a query.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Answer)]
pub struct AnswerBody {
    /// The id of the query, if it had one.
    pub id: Option<String>,
    /// The model that answered.
    pub model: String,
    /// The number of its version, from 1; absent if this front end does not know it yet.
    pub version: Option<u32>,
    /// The variant that answered.
    pub variant: String,
    /// Outputs in the model's order.
    pub outputs: Vec<OutputBody>,
    /// Whether every stated target was met.
    pub targets_met: bool,
    /// Cost of the query, US dollars: its share, by rows, of the price of the device time of its batch. Idle
    /// time of the device is not included.
    pub cost_usd: f64,
    /// Where the time went.
    pub timings: TimingsBody,
    /// `true` if the answer was kept from an earlier query with the same inputs and no device ran; otherwise absent.
    pub cached: Option<bool>,
    /// Token for feedback on this answer, if the application takes feedback: `POST /v1/feedback`.
    pub feedback_token: Option<String>,
    /// The variants that were considered, if the request asks for them.
    pub explanation: Option<ExplanationBody>,
    /// The most likely classes, if the request asks for them, best first: a list for each vector along the
    /// last axis of the scored output, so for each row.
    pub classification: Option<Vec<Vec<LikelyClassBody>>>,
}

/// One of the most likely classes.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LikelyClass)]
pub struct LikelyClassBody {
    /// Its position, from 0.
    pub class: usize,
    /// Its name, if the model's classes have names.
    pub name: Option<String>,
    /// What the model says of it.
    pub score: f64,
}

/// One output tensor. Among floats, a missing value (NaN) is `null`, and infinities are `"Infinity"` and
/// `"-Infinity"`.
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

/// The variants that the selection considered, and the reason for its choice.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Explanation)]
pub struct ExplanationBody {
    /// One sentence.
    pub reason: String,
    /// Variants considered in all.
    pub considered: usize,
    /// The best of them, best first.
    pub candidates: Vec<CandidateBody>,
    /// The result of each step, in the order in which they ended; absent unless a pipeline answered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepBody>,
}

/// The result of one step of a pipeline in one query.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StepTaken)]
pub struct StepBody {
    /// Its name.
    pub name: String,
    /// `answered`, `skipped`, or `default`: it failed and gave the outputs that the definition says.
    pub outcome: String,
    /// Why it was skipped or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The variant that answered; the last one if the rows were asked one by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Rows that a model was asked for.
    pub rows: u32,
    /// Waiting for batches and devices, microseconds: the longest of its rows.
    pub queue_us: f64,
    /// Running, microseconds: the longest of its rows.
    pub compute_us: f64,
    /// From its begin to its end, including further attempts, microseconds.
    pub total_us: f64,
    /// Its share of the price of devices' time, US dollars.
    pub cost_usd: f64,
}

impl From<&Explanation> for ExplanationBody {
    fn from(explanation: &Explanation) -> Self {
        Self {
            reason: explanation.reason.clone(),
            considered: explanation.considered,
            candidates: explanation
                .candidates
                .iter()
                .map(CandidateBody::from)
                .collect(),
            steps: explanation.steps.iter().map(StepBody::from).collect(),
        }
    }
}

impl From<&StepRecord> for StepBody {
    fn from(step: &StepRecord) -> Self {
        Self {
            name: step.name.clone(),
            outcome: step.outcome.to_string(),
            why: step.why.clone(),
            variant: step.variant.as_ref().map(ToString::to_string),
            rows: step.rows,
            queue_us: step.queue_us,
            compute_us: step.compute_us,
            total_us: step.total_us,
            cost_usd: step.cost_usd,
        }
    }
}
