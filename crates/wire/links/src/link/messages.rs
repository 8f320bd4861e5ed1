//! What a dispatcher and a worker say to each other over a link.
//!
//! Times (`_ns`) are on the sender's clock; see [`super::Clock`].

use sextant_rpc::{
    BatchTimings, InferError, LoadTimings, Part, VariantUsage, WorkError, WorkerInfo, WorkerStats,
};
use sextant_types::{Tensor, Variant, VariantId};

/// What goes along with every message, so that the receiver can compare the clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// When the message was sent.
    pub sent_at_ns: u64,
    /// The least difference that the sender has seen between its clock when a message arrived and
    /// the receiver's clock when it was sent; none before the first message.
    pub least_delta_ns: Option<i64>,
}

/// A message to a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct ToWorker {
    /// When it was sent.
    pub stamp: Stamp,
    /// What is asked for.
    pub request: Request,
}

/// A message from a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct FromWorker {
    /// When it was sent.
    pub stamp: Stamp,
    /// What became of what was asked for.
    pub report: Report,
}

/// What a worker is asked for. `id` is the caller's; the report on the request carries it.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// A sign of life; answered by [`Report::Beat`].
    Beat,
    /// What the worker has now; answered by [`Report::State`].
    Look,
    /// A batch to run; answered by [`Report::Inferred`].
    Infer {
        /// The call.
        id: u64,
        /// The batch, or why the transport could not carry it.
        batch: Result<Batch, InferError>,
    },
    /// A variant to load; answered by [`Done::Loaded`].
    Load {
        /// The call.
        id: u64,
        /// What to load.
        variant: Box<Variant>,
        /// When.
        window: Window,
    },
    /// A variant to unload; answered by [`Done::Unloaded`].
    Unload {
        /// The call.
        id: u64,
        /// Which.
        variant: VariantId,
    },
    /// Threads are to keep to other cores; answered by [`Done::Repinned`].
    Repin {
        /// The call.
        id: u64,
    },
    /// The worker is to leave; answered by [`Done::Leaves`].
    Leave {
        /// The call.
        id: u64,
    },
    /// Counts and mispredictions; answered by [`Done::Stats`].
    Stats {
        /// The call.
        id: u64,
    },
    /// An order of another version; answered by [`Done::Unknown`]. Transports make it of what they
    /// cannot read; nobody sends it.
    Unknown {
        /// The call.
        id: u64,
    },
}

/// A batch with its window.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// Which variant.
    pub variant: VariantId,
    /// One for each query in the batch.
    pub parts: Vec<Part>,
    /// Rows of offline jobs among them.
    pub offline_rows: u32,
    /// When to run it.
    pub window: Window,
}

/// When something is to start and how long it is expected to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Not to be started before.
    pub earliest_ns: u64,
    /// Not to be started after.
    pub latest_ns: Option<u64>,
    /// Expected duration.
    pub expected_ns: u64,
}

/// What a worker says.
#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    /// A sign of life.
    Beat,
    /// What the worker has.
    State(State),
    /// What became of a batch.
    Inferred {
        /// The call.
        id: u64,
        /// Its outputs, or why it did not run.
        outcome: Result<Outputs, InferError>,
    },
    /// What became of an order or of a question.
    Ended {
        /// The call.
        id: u64,
        /// What was done, or why nothing was.
        outcome: Result<Done, WorkError>,
    },
}

/// What a worker has done, or found out.
#[derive(Debug, Clone, PartialEq)]
pub enum Done {
    /// [`Request::Load`]: how long its steps took.
    Loaded(LoadTimings),
    /// [`Request::Unload`].
    Unloaded,
    /// [`Request::Repin`]: the cores that threads keep to now.
    Repinned(Vec<u16>),
    /// [`Request::Leave`]: it leaves now.
    Leaves,
    /// [`Request::Stats`].
    Stats(WorkerStats),
    /// [`Request::Unknown`]: nothing.
    Unknown,
}

/// What a worker has.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// Its name, cores, engines, pages and utilisation.
    pub info: WorkerInfo,
    /// It finishes what it has begun and leaves: nothing new may be sent to it.
    pub draining: bool,
    /// The loaded variants.
    pub usage: Vec<VariantUsage>,
}

/// The outputs of a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Outputs {
    /// For each part its outputs, or why it alone failed.
    pub parts: Vec<Result<Vec<Tensor>, InferError>>,
    /// When EXEC began.
    pub started_ns: u64,
    /// How long the steps took.
    pub steps: Steps,
}

/// [`BatchTimings`] but for the start, microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steps {
    /// Waiting.
    pub queue_us: f64,
    /// INPUT.
    pub input_us: f64,
    /// EXEC.
    pub exec_us: f64,
    /// OUTPUT.
    pub output_us: f64,
    /// EXEC on the device's clock.
    pub device_us: Option<f64>,
}

// === impl Steps ===

impl Steps {
    /// With the start on the receiver's clock.
    pub(super) fn since(self, started: std::time::Instant) -> BatchTimings {
        BatchTimings {
            started,
            queue_us: self.queue_us,
            input_us: self.input_us,
            exec_us: self.exec_us,
            output_us: self.output_us,
            device_us: self.device_us,
        }
    }
}

impl From<&BatchTimings> for Steps {
    fn from(timings: &BatchTimings) -> Self {
        Self {
            queue_us: timings.queue_us,
            input_us: timings.input_us,
            exec_us: timings.exec_us,
            output_us: timings.output_us,
            device_us: timings.device_us,
        }
    }
}
