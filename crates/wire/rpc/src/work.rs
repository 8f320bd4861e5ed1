//! Messages of the worker.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use sextant_types::{Code, EngineName, NamedTensor, Tensor, Variant, VariantId, WorkerId};

/// A batch to run inside its window.
pub struct Infer {
    /// The variant; it must be loaded.
    pub variant: VariantId,
    /// One for each query in the batch; the worker joins them.
    pub parts: Vec<Part>,
    /// The batch must not start before.
    pub earliest: Instant,
    /// The batch is refused if it cannot start by then.
    pub latest: Option<Instant>,
    /// Expected duration of the run, which is compared with the actual one.
    pub expected: Duration,
    /// Rows of offline jobs among those of the batch: no client waits for them.
    pub offline_rows: u32,
    /// Called exactly once, on the worker's thread.
    pub done: Box<dyn FnOnce(InferOutcome) + Send>,
}

/// The part of a query in a batch.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// Its inputs, in the signature's order.
    Inputs(Vec<NamedTensor>),
    /// The front end that holds its inputs sends them to the worker, and the outputs go back there: the batch's result
    /// contains none for it. Only a worker with a mailbox accepts such parts.
    Held(Ticket),
}

/// Names the inputs of one query on their way to one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// The life of the front end: a random number.
    pub holder: u64,
    /// The query's number there.
    pub query: u64,
    /// The number of earlier placements of the query, plus [`Self::PLACEMENTS`] for each time that it was asked.
    /// Messages for an earlier placement are stale.
    pub attempt: u32,
}

impl Ticket {
    /// Largest number of placements that one dispatcher can make of one query.
    pub const PLACEMENTS: u32 = 1 << 16;

    /// Number of earlier placements by this dispatcher.
    pub fn placed_before(&self) -> u32 {
        self.attempt % Self::PLACEMENTS
    }
}

/// The result of a batch.
pub type InferOutcome = Result<BatchResult, InferError>;

/// The outputs of one batch.
#[derive(Debug, Clone)]
pub struct BatchResult {
    /// For each part of the batch: its outputs in the signature's order, or the error of that part alone.
    pub outputs: Vec<Result<Vec<Tensor>, InferError>>,
    /// The times of its steps.
    pub timings: BatchTimings,
}

/// When a batch started and how long its steps took (Clockwork, section 5.2: INPUT, EXEC, OUTPUT).
#[derive(Debug, Clone, Copy)]
pub struct BatchTimings {
    /// When EXEC began.
    pub started: Instant,
    /// From the batch's arrival at the worker to the start of EXEC, less INPUT, microseconds.
    pub queue_us: f64,
    /// INPUT: joining the inputs and transferring them to the device, microseconds.
    pub input_us: f64,
    /// EXEC: the engine's run as measured by the host, microseconds.
    pub exec_us: f64,
    /// OUTPUT: transferring the outputs from the device and cutting them, microseconds.
    pub output_us: f64,
    /// EXEC as measured by the device's own clock, microseconds, if it has one.
    pub device_us: Option<f64>,
}

/// Why a batch, or one part of it, did not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InferError {
    /// The window opens further ahead than the worker's horizon.
    #[error("the batch's window opens too far ahead; send it later")]
    TooEarly,
    /// The window closed before the device was free.
    #[error("the batch could not be started inside its window")]
    TooLate,
    /// The variant is not loaded on this worker.
    #[error("variant `{0}` is not loaded")]
    NotLoaded(VariantId),
    /// No room for the batch's inputs and outputs.
    #[error("no memory for the batch: {0}")]
    NoMemory(String),
    /// The variant was unloaded or loaded again while the batch ran; its outputs are void.
    #[error("the weights of variant `{0}` changed while the batch ran")]
    WeightsChanged(VariantId),
    /// The inputs do not fit the variant.
    #[error("{0}")]
    BadShape(String),
    /// The front end that holds the inputs of the part had not sent them when the batch had to start. Another placement
    /// may succeed.
    #[error("the inputs did not arrive")]
    InputsMissing,
    /// The engine failed, or was stopped at a limit.
    #[error("{reason}")]
    Failed {
        /// The code for the client: [`Code::EngineFailed`], or that of the limit.
        code: Code,
        /// What happened.
        reason: String,
    },
    /// The engine did not return, or is gone; the instance has been given up.
    #[error("variant `{variant}` has failed: {reason}")]
    Lost {
        /// The variant.
        variant: VariantId,
        /// What happened.
        reason: String,
    },
    /// The worker cannot be reached any more; the result of the batch is not known.
    #[error("the worker that ran variant `{variant}` was lost: {reason}")]
    Disconnected {
        /// The variant.
        variant: VariantId,
        /// What happened.
        reason: String,
    },
    /// The worker is shutting down.
    #[error("the worker is shutting down")]
    ShuttingDown,
}

/// A variant to load inside a window.
#[derive(Debug, Clone)]
pub struct Load {
    /// The variant, with everything that the worker needs to know.
    pub variant: Arc<Variant>,
    /// The load must not start before.
    pub earliest: Instant,
    /// The load is refused if it cannot start by then. It starts when the worker begins to fetch its artefact: the time
    /// for that is a part of the load.
    pub latest: Option<Instant>,
    /// Expected duration, including fetching the artefact.
    pub expected: Duration,
}

/// The times of a load's steps. All are zero for a variant that was loaded already.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LoadTimings {
    /// From the request's arrival to its start, microseconds.
    pub queue_us: f64,
    /// Fetching and checking the artefact, microseconds.
    pub fetch_us: f64,
    /// The engine's load, microseconds.
    pub load_us: f64,
}

/// Why a load or unload was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// The window opens further ahead than the worker's horizon.
    #[error("the load's window opens too far ahead; send it later")]
    TooEarly,
    /// The window closed before the load could start.
    #[error("the load could not be started inside its window")]
    TooLate,
    /// The worker does not have the artefact or the engine.
    #[error("variant `{variant}` is not known here: {reason}")]
    Unknown {
        /// The variant.
        variant: VariantId,
        /// What is missing.
        reason: String,
    },
    /// There are too few free pages; nothing is evicted implicitly.
    #[error(
        "variant `{variant}` needs `{needed}` pages of `{page_bytes}` bytes, `{free}` are free"
    )]
    NoMemory {
        /// The variant.
        variant: VariantId,
        /// The pages that it needs in addition to shared ones.
        needed: u64,
        /// Pages that are free.
        free: u64,
        /// Size of a page, bytes.
        page_bytes: u64,
    },
    /// The artefact could not be fetched or loaded.
    #[error("variant `{variant}` cannot be loaded: {reason}")]
    Failed {
        /// The variant.
        variant: VariantId,
        /// The reason.
        reason: String,
    },
    /// The state of the instance does not permit it.
    #[error("{0}")]
    Rejected(String),
    /// The worker is shutting down.
    #[error("the worker is shutting down")]
    ShuttingDown,
}

/// The resources of a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerInfo {
    /// Its name.
    pub worker: WorkerId,
    /// CPU cores that batches may occupy at once.
    pub cores: u16,
    /// Names of the engines whose variants it runs.
    pub engines: Vec<EngineName>,
    /// The pages for loaded variants.
    pub pages: Pages,
    /// Share of core time that was busy over the last second, 0 to 1.
    pub utilization: f64,
}

/// A device's page cache: all that the dispatcher must know of its memory (Clockwork, section 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pages {
    /// Size of a page, bytes.
    pub page_bytes: u64,
    /// Number of all pages.
    pub total: u64,
    /// Number of free pages.
    pub free: u64,
}

/// The actions of a worker, and how well their durations were predicted.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WorkerStats {
    /// By kind of action.
    pub actions: BTreeMap<ActionKind, ActionStats>,
}

/// The kind of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActionKind {
    /// Run a batch.
    Infer,
    /// Load a variant.
    Load,
    /// Unload a variant.
    Unload,
}

/// Counts and mispredictions of one kind of action since the worker's start.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ActionStats {
    /// Actions that succeeded.
    pub succeeded: u64,
    /// Failed actions, by code.
    pub failed: BTreeMap<&'static str, u64>,
    /// How much longer than expected the last actions took.
    pub under_predicted: Mispredictions,
    /// How much shorter than expected the last actions took.
    pub over_predicted: Mispredictions,
    /// How much later the last actions ended than their start and expected duration said.
    pub late_completion: Mispredictions,
}

/// Quantiles of prediction errors, microseconds (Clockwork, figure 10).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Mispredictions {
    /// Number of actions in the log with an error in this direction.
    pub count: u64,
    /// Median error.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Largest error.
    pub max_us: f64,
}

/// The use of a loaded variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariantUsage {
    /// The variant.
    pub variant: VariantId,
    /// Time since its last batch (or its load), ms.
    pub idle_ms: u64,
}

/// A worker as other roles see it.
///
/// Contract: `infer` never blocks, and its `done` is called exactly once, whatever happens. `load`, `unload` and
/// `leave` are idempotent; the first two return when the instance's state says so. The worker retries nothing and
/// evicts nothing implicitly.
#[async_trait]
pub trait Work: Send + Sync {
    /// The present resources of the worker.
    fn info(&self) -> WorkerInfo;

    /// The loaded variants, and how long each has been idle.
    fn usage(&self) -> Vec<VariantUsage>;

    /// Whether it finishes what it has begun and leaves: nothing new may be sent to it.
    ///
    /// The provided method is for workers that never drain.
    fn is_draining(&self) -> bool {
        false
    }

    /// Queues a batch on the device.
    fn infer(&self, infer: Infer);

    /// Fetches and loads a variant. A variant that is loaded already is loaded again, whatever the window, if its
    /// application's policy now requires another process: the worker loads a second instance beside the one that
    /// serves, and then unloads the first.
    async fn load(&self, load: Load) -> Result<LoadTimings, WorkError>;

    /// Drains and unloads a variant.
    async fn unload(&self, variant: &VariantId) -> Result<(), WorkError>;

    /// Moves the threads that run batches to the cores that other processes use least. Returns these cores.
    ///
    /// # Errors
    /// [`WorkError::Rejected`] if no other cores are better, if the device is not a processor, or if the kernel does
    /// not show how its cores are used.
    ///
    /// The provided method is for workers without cores of their own.
    async fn repin(&self) -> Result<Vec<u16>, WorkError> {
        Err(WorkError::Rejected(
            "this worker keeps to no cores".to_owned(),
        ))
    }

    /// Makes the worker leave, for good. When the call has returned, [`Self::is_draining`] is true. The worker finishes
    /// what has begun. As far as there is time, it does what is still sent until all senders know. It answers what has
    /// not begun by then with [`InferError::ShuttingDown`]. Then it unloads everything and is removed from the metadata
    /// store. For a worker that drains already the call succeeds at once.
    ///
    /// # Errors
    /// [`WorkError::Rejected`] if the worker cannot be reached, or does not know this call.
    async fn leave(&self) -> Result<(), WorkError>;

    /// Counts and mispredictions since the start.
    async fn stats(&self) -> Result<WorkerStats, WorkError>;
}

// === impl InferError ===

impl InferError {
    /// The engine failed for a reason without a code of its own.
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Failed {
            code: Code::EngineFailed,
            reason: reason.into(),
        }
    }

    /// A short stable name: `too_late`, `not_loaded`, ..
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooEarly => "too_early",
            Self::TooLate => "too_late",
            Self::NotLoaded(_) => "not_loaded",
            Self::NoMemory(_) => "no_memory",
            Self::WeightsChanged(_) => "weights_changed",
            Self::BadShape(_) => "bad_shape",
            Self::InputsMissing => "inputs_missing",
            Self::Failed { .. } => "failed",
            Self::Lost { .. } => "lost",
            Self::Disconnected { .. } => "disconnected",
            Self::ShuttingDown => "shutting_down",
        }
    }
}

// === impl WorkError ===

impl WorkError {
    /// A short stable name: `no_memory`, `unknown`, ..
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooEarly => "too_early",
            Self::TooLate => "too_late",
            Self::Unknown { .. } => "unknown",
            Self::NoMemory { .. } => "no_memory",
            Self::Failed { .. } => "failed",
            Self::Rejected(_) => "rejected",
            Self::ShuttingDown => "shutting_down",
        }
    }
}

// === impl Load ===

impl Load {
    /// A load without a window: it may start at any time from now on.
    pub fn at_once(variant: Arc<Variant>) -> Self {
        Self {
            expected: Duration::try_from_secs_f64(variant.profile.first_ms() / 1e3)
                .unwrap_or_default(),
            variant,
            earliest: Instant::now(),
            latest: None,
        }
    }
}

// === impl Pages ===

impl Pages {
    /// Size of all pages, bytes.
    pub fn bytes(&self) -> u64 {
        self.total.saturating_mul(self.page_bytes)
    }

    /// Size of the occupied pages, bytes.
    pub fn used_bytes(&self) -> u64 {
        self.total
            .saturating_sub(self.free)
            .saturating_mul(self.page_bytes)
    }
}
