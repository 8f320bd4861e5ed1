//! The durable record of the service: applications, models, variants, registration steps, jobs,
//! API keys, and the audit record.
//!
//! Entry points: [`Registry`] (`open` a SQLite file or `connect` to a PostgreSQL server, then call
//! its methods), [`Job`] and [`NewJob`], [`NewModel`], [`ApiKey`], [`Audit`], [`Error`].
//!
//! **Invariant:** rows in, rows out: nothing here loads, measures or decides. Every change of
//! several rows is one transaction, and the effect of a call that has returned is durable. No clock
//! is read: times are arguments, in milliseconds since the Unix epoch.

mod application;
mod audit;
mod blob;
mod database;
pub mod dump;
mod error;
mod feedback;
mod identity;
mod job;
mod key;
mod model;
mod once;
mod pipeline;
mod profile;
mod registry;
mod retention;
mod rows;
mod sql;
mod variant;
mod version;

pub use application::Application;
pub use audit::{Audit, AuditFilter};
pub use blob::{BlobRole, BlobUse, CondemnedBlob};
#[cfg(feature = "postgres")]
pub use database::postgres::ConnectOptions;
pub use error::{Entity, Error};
pub use feedback::{
    ErasureScope, Fate, Feedback, FeedbackAlarm, FeedbackBounds, FeedbackKey, FeedbackPlace,
    FeedbackSums, ShadowAnswer,
};
pub use job::{
    AnsweredBy, Job, JobFilter, JobKind, JobQueueKey, JobState, NewJob, Plan, PlannedExtension,
};
pub use key::{ApiKey, KeyScope, NewKey};
pub use model::{
    DataFile, Failure, METRIC_FILE, Model, ModelStatus, NO_LABELS, NewModel, Registrant,
    Registration, ScoredOutput, Step,
};
pub use once::OnceKey;
pub use pipeline::{NewPipeline, Pipeline, PipelineMeasure};
pub use profile::FailedProfile;
pub use registry::{Reads, Registry};
pub use version::{Act, VersionChange, releases_of};

#[cfg(test)]
mod tests;
