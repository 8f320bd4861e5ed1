//! The messages between a dispatcher and a worker on a link.
//!
//! Times (`_ns`) are on the sender's clock; see [`super::Clock`].

use sextant_rpc::{
    BatchTimings, InferError, LoadTimings, Part, VariantUsage, WorkError, WorkerInfo, WorkerStats,
};
use sextant_types::{Tensor, Variant, VariantId};

/// Added to every message, so that the receiver can compare the clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// When the message was sent.
    pub sent_at_ns: u64,
    /// The least delta that the sender has seen: its clock when a message arrived, less the
    /// receiver's clock when it was sent; `None` before the first message.
    pub least_delta_ns: Option<i64>,
}

/// A message to a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct ToWorker {
    /// When it was sent.
    pub stamp: Stamp,
    /// The request.
    pub request: Request,
}

/// A message from a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct FromWorker {
    /// When it was sent.
    pub stamp: Stamp,
    /// The report on a request.
    pub report: Report,
}

/// A request to a worker. The caller chooses `id`; the report on the request has the same.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// A sign of life; answered by [`Report::Beat`].
    Beat,
    /// Asks for the worker's present state; answered by [`Report::State`].
    Look,
    /// A batch to run; answered by [`Report::Inferred`].
    Infer {
        /// The id of the call.
        id: u64,
        /// The batch, or why the transport could not carry it.
        batch: Result<Batch, InferError>,
    },
    /// A variant to load; answered by [`Done::Loaded`].
    Load {
        /// The id of the call.
        id: u64,
        /// The variant.
        variant: Box<Variant>,
        /// Its window.
        window: Window,
    },
    /// A variant to unload; answered by [`Done::Unloaded`].
    Unload {
        /// The id of the call.
        id: u64,
        /// The variant.
        variant: VariantId,
    },
    /// The threads must keep to other cores; answered by [`Done::Repinned`].
    Repin {
        /// The id of the call.
        id: u64,
    },
    /// The worker must leave; answered by [`Done::Leaves`].
    Leave {
        /// The id of the call.
        id: u64,
    },
    /// Counts and mispredictions; answered by [`Done::Stats`].
    Stats {
        /// The id of the call.
        id: u64,
    },
    /// An order of another version; answered by [`Done::Unknown`]. Transports create it from an
    /// order that they cannot read; it is never sent.
    Unknown {
        /// The id of the call.
        id: u64,
    },
}

/// A batch with its window.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// The variant.
    pub variant: VariantId,
    /// One for each query in the batch.
    pub parts: Vec<Part>,
    /// Number of rows of offline jobs among them.
    pub offline_rows: u32,
    /// Its window.
    pub window: Window,
}

/// The window of a start, and the expected duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The earliest start.
    pub earliest_ns: u64,
    /// The latest start.
    pub latest_ns: Option<u64>,
    /// Expected duration.
    pub expected_ns: u64,
}

/// A report of a worker.
#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    /// A sign of life.
    Beat,
    /// The state of the worker.
    State(State),
    /// The result of a batch.
    Inferred {
        /// The id of the call.
        id: u64,
        /// Its outputs, or why it did not run.
        outcome: Result<Outputs, InferError>,
    },
    /// The result of any other request.
    Ended {
        /// The id of the call.
        id: u64,
        /// What was done, or why nothing was done.
        outcome: Result<Done, WorkError>,
    },
}

/// What a worker has done or answers.
#[derive(Debug, Clone, PartialEq)]
pub enum Done {
    /// [`Request::Load`]: the times of its steps.
    Loaded(LoadTimings),
    /// [`Request::Unload`].
    Unloaded,
    /// [`Request::Repin`]: the present cores of the threads.
    Repinned(Vec<u16>),
    /// [`Request::Leave`]: it leaves now.
    Leaves,
    /// [`Request::Stats`].
    Stats(WorkerStats),
    /// [`Request::Unknown`]: nothing was done.
    Unknown,
}

/// The state of a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// Its name, cores, engines, pages and utilisation.
    pub info: WorkerInfo,
    /// Whether it finishes what it has begun and leaves: nothing new may be sent to it.
    pub draining: bool,
    /// The loaded variants.
    pub usage: Vec<VariantUsage>,
}

/// The outputs of a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Outputs {
    /// For each part: its outputs, or the error of that part alone.
    pub parts: Vec<Result<Vec<Tensor>, InferError>>,
    /// When EXEC began.
    pub started_ns: u64,
    /// The times of the steps.
    pub steps: Steps,
}

/// [`BatchTimings`] without the start, microseconds.
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
    /// EXEC on the device's own clock.
    pub device_us: Option<f64>,
}

// === impl Steps ===

impl Steps {
    /// The timings with a start on the receiver's clock.
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
