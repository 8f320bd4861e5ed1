//! Messages of the worker.

use std::{sync::Arc, time::Instant};

use async_trait::async_trait;
use sextant_types::{NamedTensor, Tensor, Variant, VariantId, WorkerId};

/// A batch to run inside its window.
pub struct Infer {
    /// Which variant; it must be loaded.
    pub variant: VariantId,
    /// Inputs of each query in the batch, in the signature's order; joined by the worker.
    pub parts: Vec<Vec<NamedTensor>>,
    /// Not to be started before.
    pub earliest: Instant,
    /// Refused when it cannot be started by then.
    pub latest: Option<Instant>,
    /// Called exactly once, on the worker's thread.
    pub done: Box<dyn FnOnce(InferOutcome) + Send>,
}

/// What became of a batch.
pub type InferOutcome = Result<BatchResult, InferError>;

/// The outputs of one batch.
#[derive(Debug, Clone)]
pub struct BatchResult {
    /// For each part of the batch, its outputs in the signature's order, or why it alone failed.
    pub outputs: Vec<Result<Vec<Tensor>, String>>,
    /// Where the time went.
    pub timings: BatchTimings,
}

/// When a batch started and how long its steps took.
#[derive(Debug, Clone, Copy)]
pub struct BatchTimings {
    /// When the device took it up.
    pub started: Instant,
    /// Joining the inputs, microseconds.
    pub input_us: f64,
    /// The engine's run, microseconds.
    pub exec_us: f64,
    /// Cutting the outputs, microseconds.
    pub output_us: f64,
}

/// Why a batch did not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InferError {
    /// The variant is not loaded here.
    #[error("variant `{0}` is not loaded")]
    NotLoaded(VariantId),
    /// The window closed before the device was free.
    #[error("the batch could not be started inside its window")]
    TooLate,
    /// The engine failed or the parts could not be joined.
    #[error("{0}")]
    Failed(String),
    /// The worker is shutting down.
    #[error("the worker is shutting down")]
    ShuttingDown,
}

/// A variant to load.
#[derive(Debug, Clone)]
pub struct Load {
    /// What to load, with everything the worker needs to know.
    pub variant: Arc<Variant>,
}

/// Why a load or unload was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// No room within the worker's memory budget.
    #[error("variant `{variant}` needs `{needed}` bytes, `{free}` are free")]
    NoMemory {
        /// Which variant.
        variant: VariantId,
        /// Bytes it needs.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// The artefact could not be fetched or loaded.
    #[error("variant `{variant}` cannot be loaded: {reason}")]
    Failed {
        /// Which variant.
        variant: VariantId,
        /// Why.
        reason: String,
    },
    /// The instance is not in a state that allows it.
    #[error("{0}")]
    Rejected(String),
    /// The worker is shutting down.
    #[error("the worker is shutting down")]
    ShuttingDown,
}

/// What a worker has.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerInfo {
    /// Its name.
    pub worker: WorkerId,
    /// CPU cores that batches may occupy at once.
    pub cores: u16,
    /// Bytes that loaded variants may occupy.
    pub memory_bytes: u64,
    /// Bytes in use.
    pub memory_used_bytes: u64,
    /// Share of core time that was busy over the last second, 0 to 1.
    pub utilization: f64,
}

/// What a loaded variant is used for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariantUsage {
    /// Which variant.
    pub variant: VariantId,
    /// Since its last batch (or its load), ms.
    pub idle_ms: u64,
}

/// A worker as other roles see it.
///
/// Contract: `infer` never blocks; its `done` is called exactly once, whatever happens. `load`
/// and `unload` are idempotent and return when the instance's state says so. Nothing is retried
/// by the worker and nothing is evicted implicitly.
#[async_trait]
pub trait Work: Send + Sync {
    /// What the worker has, now.
    fn info(&self) -> WorkerInfo;

    /// The loaded variants and how long each has been idle.
    fn usage(&self) -> Vec<VariantUsage>;

    /// Queues a batch on the device.
    fn infer(&self, infer: Infer);

    /// Fetches and loads a variant.
    async fn load(&self, load: Load) -> Result<(), WorkError>;

    /// Drains and unloads a variant.
    async fn unload(&self, variant: &VariantId) -> Result<(), WorkError>;
}
