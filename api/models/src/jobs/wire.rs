//! Jobs on the wire.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sextant_registry::{Job, JobKind};
use sextant_types::offline::{OfflineStep, shown_webhook};
use utoipa::ToSchema;

use crate::{codec::Text, json, models::FailureBody, targets::TargetsBody};

/// An offline job. Exactly one of `application`, `model` and `variant` says what it asks.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewJob)]
pub struct NewJobBody<'a> {
    /// Name of the job; sending the same name and content twice makes one job. If it is left out, the service
    /// chooses a new name.
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
    #[serde(default, deserialize_with = "json::or_default")]
    pub targets: TargetsBody,
    /// The name of one of the application's presets, as in queries.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>, example = "fast")]
    pub preset: Option<Text<'a>>,
    /// Path in the artefact store: JSONL (each line `{"inputs": {"name": array}}`), an NPY array
    /// whose rows are the records, an NPZ archive with an array for each input, CSV whose first row names the columns,
    /// or Parquet. A path that ends in `/` means all files below it, in the order of
    /// their names.
    pub input: String,
    /// Path in the artefact store for the answers, in the order of the records. If the path ends in `/`, the
    /// job writes a file for each file of the input.
    pub output: String,
    /// The format of the input: `jsonl`, `npy`, `npz`, `csv` or `parquet`, or `file` if each file is one
    /// record. If it is left out, the suffix of the path says it.
    #[serde(default)]
    pub format: Option<String>,
    /// The format of the output: `jsonl`, `npy`, `npz`, `csv` or `parquet`. If it is left out, the suffix of
    /// the path says it.
    #[serde(default)]
    pub output_format: Option<String>,
    /// An `http` or `https` address to which the service sends a message when the job has ended.
    #[serde(default)]
    pub webhook: Option<String>,
    /// Records that are committed together, 1 to 65536.
    #[serde(default)]
    #[schema(default = 256, minimum = 1, maximum = 65536)]
    pub chunk: Option<u32>,
}

/// A job.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Job)]
pub struct JobBody {
    /// Its name.
    pub id: String,
    /// `register`, `extend`, `offline` or `measure`.
    pub kind: &'static str,
    /// For which application.
    pub application: String,
    /// The model, if it is for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// `queued`, `running`, `paused`, `succeeded`, `failed` or `cancelled`.
    pub state: &'static str,
    /// What is being done.
    pub step: String,
    /// Its progress.
    pub progress: ProgressBody,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureBody>,
    /// How often a process has started it.
    pub attempts: u32,
    /// What was asked for.
    #[schema(value_type = Object)]
    pub spec: Value,
    /// What it came to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub result: Option<Value>,
    /// Milliseconds since the Unix epoch.
    pub created_ms: u64,
    /// Milliseconds since the Unix epoch.
    pub updated_ms: u64,
}

/// Progress of a job.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Progress)]
pub struct ProgressBody {
    /// Units done: steps of a registration, records of an offline job or of a measurement.
    pub done: u64,
    /// Units in all; 0 while unknown.
    pub total: u64,
    /// Records of an offline job that could not be answered; known while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<u64>,
    /// Estimated time to the end of an offline job, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_s: Option<u64>,
}

/// Jobs.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Jobs)]
pub struct JobsBody {
    /// Newest first.
    pub jobs: Vec<JobBody>,
    /// Where the next page begins: `?after=`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl From<Job> for JobBody {
    fn from(mut job: Job) -> Self {
        if let Some(Value::String(webhook)) = job.spec.get_mut("webhook") {
            *webhook = shown_webhook(webhook);
        }
        let progress = ProgressBody::of(&job);
        Self {
            id: job.id.to_string(),
            kind: job.kind.as_str(),
            application: job.application.to_string(),
            model: job.model.map(|model| model.to_string()),
            state: job.state.as_str(),
            step: job.step,
            progress,
            error: job.error.map(FailureBody::from),
            attempts: job.attempts,
            spec: job.spec,
            result: job.result,
            created_ms: job.created_ms,
            updated_ms: job.updated_ms,
        }
    }
}

impl ProgressBody {
    fn of(job: &Job) -> Self {
        let step = match job.kind {
            JobKind::Offline => job.step.parse::<OfflineStep>().ok(),
            JobKind::Register | JobKind::Extend | JobKind::Measure => None,
        };
        let left_s = step.as_ref().and_then(|step| step.left_s);
        Self {
            done: job.progress_done,
            total: job.progress_total,
            failed: step.map(|step| step.failed),
            left_s: left_s.filter(|_| !job.state.is_final()),
        }
    }
}
