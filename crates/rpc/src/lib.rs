//! The client types through which roles reach each other.
//!
//! Entry points: [`DispatcherClient`], [`WorkerClient`].
//!
//! **Invariant:** only messages and traits; a role implements a trait, another role holds the
//! client. A client is built from a local handle today; a remote channel fits behind the same
//! traits.

use std::sync::Arc;

pub mod dispatch;
pub mod follow;
pub mod front;
pub mod link;
pub mod offline;
pub mod work;

pub use dispatch::{
    Answer, Ask, Assignment, Candidate, Dispatch, Explanation, Holder, Query, QueryError, Route,
    Timings,
};
pub use offline::OfflineSpec;
pub use work::{
    ActionKind, ActionStats, BatchResult, BatchTimings, Infer, InferError, InferOutcome, Load,
    LoadTimings, Mispredictions, Pages, Part, Ticket, VariantUsage, Work, WorkError, WorkerInfo,
    WorkerStats,
};

/// How `api` and jobs reach a dispatcher.
pub type DispatcherClient = Arc<dyn Dispatch>;

/// How a dispatcher or an autoscaler reaches a worker.
pub type WorkerClient = Arc<dyn Work>;
