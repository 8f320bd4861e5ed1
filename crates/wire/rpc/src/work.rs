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
    /// Which variant; it must be loaded.
    pub variant: VariantId,
    /// One for each query in the batch; joined by the worker.
    pub parts: Vec<Part>,
    /// Not to be started before.
    pub earliest: Instant,
    /// Refused when it cannot be started by then.
    pub latest: Option<Instant>,
    /// How long the run is expected to take; compared with what it took.
    pub expected: Duration,
    /// Rows of offline jobs among those of the batch: they are no load that anybody waits for.
    pub offline_rows: u32,
    /// Called exactly once, on the worker's thread.
    pub done: Box<dyn FnOnce(InferOutcome) + Send>,
}

/// What a query puts into a batch.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// Its inputs, in the signature's order.
    Inputs(Vec<NamedTensor>),
    /// Its inputs are sent to the worker by the front end that holds them, and the outputs go back
    /// there: the batch's result has none for it. Only a worker with a mailbox takes such parts.
    Held(Ticket),
}

/// Names the inputs of one query on their way to one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// The front end's life: a random number.
    pub holder: u64,
    /// The query's number there.
    pub query: u64,
    /// How often the query has been placed, over [`Self::PLACEMENTS`] for each time that it was asked; what comes
    /// for an earlier placement is stale.
    pub attempt: u32,
}

impl Ticket {
    /// Placements that one dispatcher can make of one query, at most.
    pub const PLACEMENTS: u32 = 1 << 16;

    /// How often this dispatcher had placed the query before.
    pub fn placed_before(&self) -> u32 {
        self.attempt % Self::PLACEMENTS
    }
}

/// What became of a batch.
pub type InferOutcome = Result<BatchResult, InferError>;

/// The outputs of one batch.
#[derive(Debug, Clone)]
pub struct BatchResult {
    /// For each part of the batch, its outputs in the signature's order, or why it alone failed.
    pub outputs: Vec<Result<Vec<Tensor>, InferError>>,
    /// Where the time went.
    pub timings: BatchTimings,
}

/// When a batch started and how long its steps took (Clockwork, section 5.2: INPUT, EXEC, OUTPUT).
#[derive(Debug, Clone, Copy)]
pub struct BatchTimings {
    /// When EXEC began.
    pub started: Instant,
    /// From the batch's arrival at the worker to the start of EXEC, less INPUT, microseconds.
    pub queue_us: f64,
    /// INPUT: joining the inputs and taking them to the device, microseconds.
    pub input_us: f64,
    /// EXEC: the engine's run as the host saw it, microseconds.
    pub exec_us: f64,
    /// OUTPUT: taking the outputs from the device and cutting them, microseconds.
    pub output_us: f64,
    /// EXEC as the device's own clock measured it, microseconds, where it has one.
    pub device_us: Option<f64>,
}

/// Why a batch did not run, or one part of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InferError {
    /// The window opens further ahead than a worker keeps batches.
    #[error("the batch's window opens too far ahead; send it later")]
    TooEarly,
    /// The window closed before the device was free.
    #[error("the batch could not be started inside its window")]
    TooLate,
    /// The variant is not loaded here.
    #[error("variant `{0}` is not loaded")]
    NotLoaded(VariantId),
    /// No room for the batch's inputs and outputs.
    #[error("no memory for the batch: {0}")]
    NoMemory(String),
    /// The variant was unloaded or loaded again while the batch ran; what it computed is void.
    #[error("the weights of variant `{0}` changed while the batch ran")]
    WeightsChanged(VariantId),
    /// The inputs are not what the variant takes.
    #[error("{0}")]
    BadShape(String),
    /// The front end that holds the inputs of the part had not sent them when the batch had to start.
    /// Another placement may succeed.
    #[error("the inputs did not arrive")]
    InputsMissing,
    /// The engine failed, or was stopped at a limit.
    #[error("{reason}")]
    Failed {
        /// What a client sees: [`Code::EngineFailed`], or which limit it was.
        code: Code,
        /// What happened.
        reason: String,
    },
    /// The engine did not come back, or is gone; the instance has been given up.
    #[error("variant `{variant}` has failed: {reason}")]
    Lost {
        /// Which variant.
        variant: VariantId,
        /// What happened.
        reason: String,
    },
    /// The worker could not be reached any more; what became of the batch is not known.
    #[error("the worker that ran variant `{variant}` was lost: {reason}")]
    Disconnected {
        /// Which variant.
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
    /// What to load, with everything the worker needs to know.
    pub variant: Arc<Variant>,
    /// Not to be started before.
    pub earliest: Instant,
    /// Refused when it cannot be started by then. It starts when the worker begins to fetch its
    /// artefact: what that takes is a part of it.
    pub latest: Option<Instant>,
    /// How long it is expected to take, with fetching the artefact.
    pub expected: Duration,
}

/// How long the steps of a load took. All zero for a variant that was loaded already.
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
    /// The window opens further ahead than a worker keeps loads.
    #[error("the load's window opens too far ahead; send it later")]
    TooEarly,
    /// The window closed before the load could start.
    #[error("the load could not be started inside its window")]
    TooLate,
    /// The artefact or the engine is not known here.
    #[error("variant `{variant}` is not known here: {reason}")]
    Unknown {
        /// Which variant.
        variant: VariantId,
        /// What is missing.
        reason: String,
    },
    /// Not enough free pages; nothing is evicted implicitly.
    #[error(
        "variant `{variant}` needs `{needed}` pages of `{page_bytes}` bytes, `{free}` are free"
    )]
    NoMemory {
        /// Which variant.
        variant: VariantId,
        /// Pages it needs in addition.
        needed: u64,
        /// Pages that are free.
        free: u64,
        /// Size of a page, bytes.
        page_bytes: u64,
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
    /// Names of the engines whose variants it runs.
    pub engines: Vec<EngineName>,
    /// Pages for what is loaded.
    pub pages: Pages,
    /// Share of core time that was busy over the last second, 0 to 1.
    pub utilization: f64,
}

/// A device's page cache: all that a controller needs to know of its memory (Clockwork, section 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pages {
    /// Size of a page, bytes.
    pub page_bytes: u64,
    /// Pages there are.
    pub total: u64,
    /// Pages that nothing occupies.
    pub free: u64,
}

/// What a worker did and how well it was foreseen.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WorkerStats {
    /// By kind of action.
    pub actions: BTreeMap<ActionKind, ActionStats>,
}

/// What a worker is told to do.
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
    /// Actions that did not, by code.
    pub failed: BTreeMap<&'static str, u64>,
    /// By how much the last actions took longer than expected.
    pub under_predicted: Mispredictions,
    /// By how much the last actions took less than expected.
    pub over_predicted: Mispredictions,
    /// By how much the last actions ended later than their start and expectation said.
    pub late_completion: Mispredictions,
}

/// Quantiles of prediction errors, microseconds (Clockwork, figure 10).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Mispredictions {
    /// Actions in the log that erred this way.
    pub count: u64,
    /// Median error.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Greatest.
    pub max_us: f64,
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
/// Contract: `infer` never blocks; its `done` is called exactly once, whatever happens. `load`,
/// `unload` and `leave` are idempotent; the first two return when the instance's state says so.
/// Nothing is retried by the worker and nothing is evicted implicitly.
#[async_trait]
pub trait Work: Send + Sync {
    /// What the worker has, now.
    fn info(&self) -> WorkerInfo;

    /// The loaded variants and how long each has been idle.
    fn usage(&self) -> Vec<VariantUsage>;

    /// Whether it finishes what it has begun and leaves: nothing new may be sent to it.
    ///
    /// Provided for workers that never drain.
    fn is_draining(&self) -> bool {
        false
    }

    /// Queues a batch on the device.
    fn infer(&self, infer: Infer);

    /// Fetches and loads a variant. One that is loaded already is loaded again, whatever the window, where its application
    /// says that it runs in another process than it does: beside the instance that serves, which then goes.
    async fn load(&self, load: Load) -> Result<LoadTimings, WorkError>;

    /// Drains and unloads a variant.
    async fn unload(&self, variant: &VariantId) -> Result<(), WorkError>;

    /// Keeps the threads that run batches to those cores that others use least; answers which.
    ///
    /// # Errors
    /// [`WorkError::Rejected`] where no other cores are better, where the device is not a processor
    /// and where the kernel does not say how its cores are used.
    ///
    /// Provided for workers without cores of their own.
    async fn repin(&self) -> Result<Vec<u16>, WorkError> {
        Err(WorkError::Rejected(
            "this worker keeps to no cores".to_owned(),
        ))
    }

    /// Has the worker leave, for good. From the return on [`Self::is_draining`] is true: what has begun
    /// is finished, what is still sent until everyone knows is done as far as there is time, what has
    /// not begun by then is answered with [`InferError::ShuttingDown`]. Then everything is unloaded and
    /// the worker is gone from the metadata store. A worker that drains already succeeds at once.
    ///
    /// # Errors
    /// [`WorkError::Rejected`] where the worker cannot be reached, or knows no such order.
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
    /// A load that may start at any time from now on.
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
    /// Bytes there are.
    pub fn bytes(&self) -> u64 {
        self.total.saturating_mul(self.page_bytes)
    }

    /// Bytes of the pages that are occupied.
    pub fn used_bytes(&self) -> u64 {
        self.total
            .saturating_sub(self.free)
            .saturating_mul(self.page_bytes)
    }
}
