//! Jobs: a durable queue with leases.
//!
//! A runner claims a job for a while, renews its claim, and reports as it goes. When it dies, the
//! claim lapses and another runner goes on where the stored progress ends. Whoever lost a job
//! learns it from the next call it makes about it. The status of a model is kept in the same
//! transactions as the state of the job that registers it.

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

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobKind {
    /// Registers a model.
    Register,
    /// Measures a model that is ready with one more engine.
    Extend,
    /// Runs a model over a file of records.
    Offline,
    /// Measures how right a pipeline is as a whole.
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

/// Who can answer the records of an offline job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnsweredBy {
    /// Variants: the job is of an application that is no pipeline.
    Variants,
    /// A pipeline, which its application is.
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

/// Where a job is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobState {
    /// Waiting for a runner.
    Queued,
    /// Held by a runner.
    Running,
    /// Held by a runner that waits for spare resources.
    Paused,
    /// Done.
    Succeeded,
    /// Given up, with an error.
    Failed,
    /// Stopped on request.
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

    /// Whether nothing will happen to the job any more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// A job's row.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Its name; ids grow with time of creation.
    pub id: JobId,
    /// What it does.
    pub kind: JobKind,
    /// For which application.
    pub application: ApplicationId,
    /// For which model, if for one.
    pub model: Option<ModelId>,
    /// Which engine its runner needs; `None` where any runner will do.
    pub engine: Option<EngineName>,
    /// What its runner needs to know.
    pub spec: Value,
    /// Where it is in its life.
    pub state: JobState,
    /// What is being done, for people; empty before the first report.
    pub step: String,
    /// Units done; the unit is the runner's.
    pub progress_done: u64,
    /// Units in all; 0 while unknown.
    pub progress_total: u64,
    /// Why it failed.
    pub error: Option<Failure>,
    /// How often it was claimed.
    pub attempts: u32,
    /// Who holds it.
    pub owner: Option<String>,
    /// When the holder's claim lapses, ms since the Unix epoch; 0 when nobody holds it.
    pub lease_until_ms: u64,
    /// ms since the Unix epoch.
    pub created_ms: u64,
    /// ms since the Unix epoch.
    pub updated_ms: u64,
    /// What it came to, when it succeeded.
    pub result: Option<Value>,
}

/// Whose jobs wait: those that one registrant has begun for an application.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobQueueKey {
    /// Who registered the jobs' models, as the audit record names them; empty for jobs that have no such.
    pub registrant: String,
    /// The application.
    pub application: ApplicationId,
}

/// A job to create.
#[derive(Debug, Clone, PartialEq)]
pub struct NewJob {
    /// Its name. Creating a job of the same name twice creates one.
    pub id: JobId,
    /// What it does.
    pub kind: JobKind,
    /// For which application.
    pub application: ApplicationId,
    /// For which model, if for one. A [`JobKind::Register`] job carries its model's status along.
    pub model: Option<ModelId>,
    /// Which engine its runner needs; `None` where any runner will do.
    pub engine: Option<EngineName>,
    /// What its runner needs to know.
    pub spec: Value,
}

impl NewJob {
    /// A job with a new name.
    pub fn new(kind: JobKind, application: ApplicationId, spec: Value) -> Self {
        // A UUID in text is made of what names are made of.
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

    /// The same for one model.
    pub fn for_model(mut self, model: ModelId) -> Self {
        self.model = Some(model);
        self
    }

    /// The same for a model that has got its id, which its `spec` tells as well.
    pub(crate) fn named(mut self, model: &ModelId) -> Self {
        if let Some(named) = self.spec.get_mut("model") {
            *named = Value::from(model.as_str());
        }
        self.for_model(model.clone())
    }

    /// The same, to be claimed only by who names the engine.
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
    /// Only jobs created before this one: the end of the page before.
    pub before: Option<JobId>,
    /// Most jobs in the answer; `None` for a hundred.
    pub limit: Option<u32>,
}
