//! The client types through which roles reach each other.
//!
//! Entry points: [`DispatcherClient`] and [`WorkerClient`]. `sextant_links` has such clients of roles in
//! other processes.
//!
//! **Invariant:** a role implements a trait, another role holds the client, and neither knows whether
//! the other is in its process. No transport and no serialisation is known here.

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

/// How `api` reaches whoever publishes.
pub type PublisherClient = Arc<dyn Publish>;

/// How `api` reaches whoever scores answers.
pub type ExaminerClient = Arc<dyn Examine>;

/// How `api` and jobs reach a dispatcher.
pub type DispatcherClient = Arc<dyn Dispatch>;

/// How a dispatcher reaches a worker.
pub type WorkerClient = Arc<dyn Work>;
