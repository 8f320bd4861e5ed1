//! Jobs: a durable queue with leases.
//!
//! A runner claims a job for a while, renews its claim, and reports its progress. If it dies, the claim lapses and
//! another runner continues where the stored progress ends. A runner that has lost a job learns of it from its next
//! call about the job. The status of a model changes in the same transactions as the state of the job that registers
//! it.

use serde_json::Value;
use sextant_types::{ApplicationId, EngineName, JobId, ModelId};
use uuid::Uuid;

use crate::Failure;

mod extension;
mod queue;
mod run;

pub use extension::{Plan, PlannedExtension};

pub(crate) use extension::cancel_all as cancel_extensions;
pub(crate) use queue::{create, job as read, registration_of, unfinished_of};

/// The kind of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobKind {
    /// Registers a model.
    Register,
    /// Measures a ready model with one more engine.
    Extend,
    /// Runs a model over a file of records.
    Offline,
    /// Measures the accuracy of a pipeline as a whole.
    Measure,
}

impl JobKind {
    /// Every kind, in order of declaration.
    pub const ALL: [Self; 4] = [Self::Register, Self::Extend, Self::Offline, Self::Measure];

    /// `register`, `extend`, `offline`, `measure`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Register => "register",
            Self::Extend => "extend",
            Self::Offline => "offline",
            Self::Measure => "measure",
        }
    }

    /// The inverse of [`Self::as_str`].
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// What answers the records of an offline job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnsweredBy {
    /// Variants: the application of the job is not a pipeline.
    Variants,
    /// A pipeline, which is the application of the job.
    Pipelines,
}

impl AnsweredBy {
    fn as_str(self) -> &'static str {
        match self {
            Self::Variants => "variants",
            Self::Pipelines => "pipelines",
        }
    }
}

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobState {
    /// Waiting for a runner.
    Queued,
    /// Held by a runner.
    Running,
    /// Held by a runner that waits for spare resources.
    Paused,
    /// It ended with a result.
    Succeeded,
    /// It ended with an error.
    Failed,
    /// It was stopped on request.
    Cancelled,
}

impl JobState {
    /// Every state, in order of declaration.
    pub const ALL: [Self; 6] = [
        Self::Queued,
        Self::Running,
        Self::Paused,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
    ];

    /// The lower-case name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The inverse of [`Self::as_str`].
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Whether the job does not change any more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// A job's row.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Its id; ids grow with the time of creation.
    pub id: JobId,
    /// Its kind.
    pub kind: JobKind,
    /// Its application.
    pub application: ApplicationId,
    /// Its model, if it is about one.
    pub model: Option<ModelId>,
    /// The engine that its runner needs; `None` if any runner will do.
    pub engine: Option<EngineName>,
    /// The data for its runner.
    pub spec: Value,
    /// Its state.
    pub state: JobState,
    /// The present step, for people; empty before the first report.
    pub step: String,
    /// Units done; the runner chooses the unit.
    pub progress_done: u64,
    /// Units in total; 0 while unknown.
    pub progress_total: u64,
    /// Why it failed.
    pub error: Option<Failure>,
    /// Number of claims.
    pub attempts: u32,
    /// Its holder.
    pub owner: Option<String>,
    /// When the holder's claim lapses, ms since the Unix epoch; 0 if it has no holder.
    pub lease_until_ms: u64,
    /// ms since the Unix epoch.
    pub created_ms: u64,
    /// ms since the Unix epoch.
    pub updated_ms: u64,
    /// Its result, if it succeeded.
    pub result: Option<Value>,
}

/// A queue of waiting jobs: those that one registrant has begun for an application.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobQueueKey {
    /// The registrant of the jobs' models, as the audit record names them; empty for jobs without a registrant.
    pub registrant: String,
    /// The application.
    pub application: ApplicationId,
}

/// A job to create.
#[derive(Debug, Clone, PartialEq)]
pub struct NewJob {
    /// Its id. Creating a job of the same id twice creates one.
    pub id: JobId,
    /// Its kind.
    pub kind: JobKind,
    /// Its application.
    pub application: ApplicationId,
    /// Its model, if it is about one. A [`JobKind::Register`] job determines its model's status.
    pub model: Option<ModelId>,
    /// The engine that its runner needs; `None` if any runner will do.
    pub engine: Option<EngineName>,
    /// The data for its runner.
    pub spec: Value,
}

impl NewJob {
    /// A job with a new id.
    pub fn new(kind: JobKind, application: ApplicationId, spec: Value) -> Self {
        // The characters of a UUID are valid in a name.
        let id = JobId::new(Uuid::now_v7().to_string()).expect("a UUID is a valid name");
        Self {
            id,
            kind,
            application,
            model: None,
            engine: None,
            spec,
        }
    }

    /// Returns the job for one model.
    pub fn for_model(mut self, model: ModelId) -> Self {
        self.model = Some(model);
        self
    }

    /// Returns the job for a model that has got its id, which is also added to its `spec`.
    pub(crate) fn named(mut self, model: &ModelId) -> Self {
        if let Some(named) = self.spec.get_mut("model") {
            *named = Value::from(model.as_str());
        }
        self.for_model(model.clone())
    }

    /// Returns the job so that only a runner with the engine can claim it.
    pub fn for_engine(mut self, engine: EngineName) -> Self {
        self.engine = Some(engine);
        self
    }
}

/// Which jobs to list, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobFilter {
    /// Only of this kind.
    pub kind: Option<JobKind>,
    /// Only in this state.
    pub state: Option<JobState>,
    /// Only of this application.
    pub application: Option<ApplicationId>,
    /// Only of this model.
    pub model: Option<ModelId>,
    /// Only jobs created before this one: the end of the previous page.
    pub before: Option<JobId>,
    /// Largest number of jobs in the answer; `None` for a hundred.
    pub limit: Option<u32>,
}
