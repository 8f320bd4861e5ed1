//! Jobs on the wire.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sextant_registry::Job;
use utoipa::ToSchema;

use crate::{codec::Text, models::FailureBody, targets::TargetsBody};

/// An offline job. Exactly one of `application`, `model` and `variant` says who answers.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewJob)]
pub struct NewJobBody<'a> {
    /// Name of the job; the same name and content twice is one job. A new name when left out.
    #[serde(default)]
    pub id: Option<String>,
    /// Any variant of any model of this application.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>)]
    pub application: Option<Text<'a>>,
    /// Any variant of this model.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>)]
    pub model: Option<Text<'a>>,
    /// This variant and no other.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>)]
    pub variant: Option<Text<'a>>,
    /// What is asked for, as in queries.
    #[serde(default)]
    pub targets: TargetsBody,
    /// Path in the artefact store: JSONL, each line `{"inputs": {"name": array}}`.
    pub input: String,
    /// Path in the artefact store for the answers, one line for each record.
    pub output: String,
    /// Records that are committed together, 1 to 65536.
    #[serde(default = "default_chunk")]
    #[schema(default = 256, minimum = 1, maximum = 65536)]
    pub chunk: u32,
}

/// A job.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Job)]
pub struct JobBody {
    /// Its name.
    pub id: String,
    /// `register` or `offline`.
    pub kind: &'static str,
    /// For which application.
    pub application: String,
    /// For which model, if for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// `queued`, `running`, `paused`, `succeeded`, `failed` or `cancelled`.
    pub state: &'static str,
    /// What is being done.
    pub step: String,
    /// How far it has come.
    pub progress: ProgressBody,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureBody>,
    /// How often a runner took it up.
    pub attempts: u32,
    /// What was asked for.
    pub spec: Value,
    /// What it came to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Milliseconds since the Unix epoch.
    pub created_ms: u64,
    /// Milliseconds since the Unix epoch.
    pub updated_ms: u64,
}

/// How far a job has come.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Progress)]
pub struct ProgressBody {
    /// Units done: steps of a registration, records of an offline job.
    pub done: u64,
    /// Units in all; 0 while unknown.
    pub total: u64,
}

/// Jobs.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Jobs)]
pub struct JobsBody {
    /// Newest first.
    pub jobs: Vec<JobBody>,
}

fn default_chunk() -> u32 {
    256
}

impl From<Job> for JobBody {
    fn from(job: Job) -> Self {
        Self {
            id: job.id.to_string(),
            kind: job.kind.as_str(),
            application: job.application.to_string(),
            model: job.model.map(|model| model.to_string()),
            state: job.state.as_str(),
            step: job.step,
            progress: ProgressBody {
                done: job.progress_done,
                total: job.progress_total,
            },
            error: job.error.map(FailureBody::from),
            attempts: job.attempts,
            spec: job.spec,
            result: job.result,
            created_ms: job.created_ms,
            updated_ms: job.updated_ms,
        }
    }
}
