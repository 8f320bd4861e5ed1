//! The traits through which roles reach each other, with their messages.
//!
//! Entry points: [`DispatcherClient`] and [`WorkerClient`]. `sextant_links` has such clients for roles in other
//! processes.
//!
//! **Invariant:** a role implements a trait, and another role holds the client. Neither knows whether the other runs in
//! its process. This crate knows no transport and no serialisation.

use std::sync::Arc;

pub mod dispatch;
pub mod examine;
pub mod notify;
pub mod offline;
pub mod publish;
pub mod work;

pub use dispatch::{
    Answer, Ask, Assignment, CacheHit, Candidate, Composite, CompositeChoice, Dispatch,
    Explanation, ForStep, Holder, KeptAnswer, Query, QueryError, StepRecord, Timings,
};
pub use examine::{Examine, NoExaminer};
pub use notify::{DeliveryFailure, Notice, Notify};
pub use offline::{Offline, OnlineLoad};
pub use publish::{Publish, PublishError};
pub use work::{
    ActionKind, ActionStats, BatchResult, BatchTimings, Infer, InferError, InferOutcome, Load,
    LoadTimings, Mispredictions, Pages, Part, Ticket, VariantUsage, Work, WorkError, WorkerInfo,
    WorkerStats,
};

/// The client with which `api` publishes.
pub type PublisherClient = Arc<dyn Publish>;

/// The client with which `api` has answers scored.
pub type ExaminerClient = Arc<dyn Examine>;

/// The client with which `api` and jobs reach a dispatcher.
pub type DispatcherClient = Arc<dyn Dispatch>;

/// The client with which a dispatcher reaches a worker.
pub type WorkerClient = Arc<dyn Work>;
