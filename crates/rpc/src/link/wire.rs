//! The messages of a link, as plain data: any transport can carry them.
//!
//! Times (`_ns`) are on the sender's clock; see [`super::Clock`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sextant_types::{EngineName, Variant, VariantId, WorkerId};

mod errors;
mod stats;
mod tensors;

pub use errors::WireError;
pub use stats::{WireAction, WireActionStats, WireMispredictions};
pub(super) use stats::{from_wire, to_wire};
pub use tensors::{WireData, WireNamedTensor, WireTensor};

/// What goes along with every message, so that the receiver can compare the clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// When the message was sent.
    pub sent_at_ns: u64,
    /// The least difference that the sender has seen between its clock when a message arrived and
    /// the receiver's clock when it was sent; none before the first message.
    pub least_delta_ns: Option<i64>,
}

/// A message to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToWorker {
    /// When it was sent.
    pub stamp: Stamp,
    /// What is asked for.
    pub request: Request,
}

/// A message from a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FromWorker {
    /// When it was sent.
    pub stamp: Stamp,
    /// What became of what was asked for.
    pub report: Report,
}

/// What a worker is asked for. `id` is the caller's; the report on the request carries it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// A sign of life; answered by [`Report::Beat`].
    Beat,
    /// What the worker has now; answered by [`Report::State`].
    Look,
    /// A batch to run; answered by [`Report::Inferred`].
    Infer {
        /// The call.
        id: u64,
        /// The batch.
        batch: Batch,
    },
    /// A variant to load; answered by [`Report::Loaded`].
    Load {
        /// The call.
        id: u64,
        /// What to load.
        variant: Box<Variant>,
        /// When.
        window: Window,
    },
    /// A variant to unload; answered by [`Report::Unloaded`].
    Unload {
        /// The call.
        id: u64,
        /// Which.
        variant: VariantId,
    },
    /// Threads are to keep to other cores; answered by [`Report::Repinned`].
    Repin {
        /// The call.
        id: u64,
    },
    /// The worker is to leave; answered by [`Report::Leaves`].
    Leave {
        /// The call.
        id: u64,
    },
    /// Counts and mispredictions; answered by [`Report::Stats`].
    Stats {
        /// The call.
        id: u64,
    },
    /// An order of another version; answered by [`Report::Unknown`]. Transports make it of what they
    /// cannot read; nobody sends it.
    Unknown {
        /// The call.
        id: u64,
        /// What the order is called.
        order: String,
    },
}

/// A batch with its window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Which variant.
    pub variant: VariantId,
    /// One for each query in the batch.
    pub parts: Vec<WirePart>,
    /// Rows of offline jobs among them.
    #[serde(default)]
    pub offline_rows: u32,
    /// When to run it.
    pub window: Window,
}

/// [`Part`](crate::Part).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WirePart {
    /// The query's inputs.
    Inputs(Vec<WireNamedTensor>),
    /// A front end sends them.
    Held(crate::Ticket),
}

/// When something is to start and how long it is expected to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Not to be started before.
    pub earliest_ns: u64,
    /// Not to be started after.
    pub latest_ns: Option<u64>,
    /// Expected duration.
    pub expected_ns: u64,
}

/// What a worker says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
        outcome: Result<Outputs, WireError>,
    },
    /// What became of a load.
    Loaded {
        /// The call.
        id: u64,
        /// How long its steps took, or why it was refused.
        outcome: Result<WireLoadTimings, WireError>,
    },
    /// What became of an unload.
    Unloaded {
        /// The call.
        id: u64,
        /// Done, or why not.
        outcome: Result<(), WireError>,
    },
    /// Whether threads keep to other cores now.
    Repinned {
        /// The call.
        id: u64,
        /// Which cores, or why they stay where they are.
        outcome: Result<Vec<u16>, WireError>,
    },
    /// Whether the worker leaves now.
    Leaves {
        /// The call.
        id: u64,
        /// It does, or why not.
        outcome: Result<(), WireError>,
    },
    /// An order that this version cannot read.
    Unknown {
        /// The call.
        id: u64,
        /// What the order is called.
        order: String,
    },
    /// Counts and mispredictions.
    Stats {
        /// The call.
        id: u64,
        /// By kind of action, or why there are none.
        outcome: Result<BTreeMap<WireAction, WireActionStats>, WireError>,
    },
}

/// What a worker has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Its name.
    pub worker: WorkerId,
    /// CPU cores that batches may occupy at once.
    pub cores: u16,
    /// Engines whose variants it runs.
    pub engines: Vec<EngineName>,
    /// Size of a page, bytes.
    pub page_bytes: u64,
    /// Pages there are.
    pub pages: u64,
    /// Pages that nothing occupies.
    pub free_pages: u64,
    /// Share of device time that was busy over the last second, 0 to 1.
    pub utilization: f64,
    /// It finishes what it has begun and leaves: nothing new may be sent to it.
    #[serde(default)]
    pub draining: bool,
    /// It knows [`Request::Leave`], and answers orders that it does not know. Earlier versions break
    /// the link.
    #[serde(default)]
    pub can_leave: bool,
    /// The loaded variants, and for how long each has been idle, milliseconds.
    pub usage: Vec<(VariantId, u64)>,
}

/// The outputs of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outputs {
    /// For each part its outputs, or why it alone failed.
    pub parts: Vec<Result<Vec<WireTensor>, String>>,
    /// Where the time went.
    pub timings: WireTimings,
}

/// [`BatchTimings`](crate::BatchTimings).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WireTimings {
    /// When EXEC began.
    pub started_ns: u64,
    /// Waiting, microseconds.
    pub queue_us: f64,
    /// INPUT, microseconds.
    pub input_us: f64,
    /// EXEC, microseconds.
    pub exec_us: f64,
    /// OUTPUT, microseconds.
    pub output_us: f64,
    /// EXEC on the device's clock, microseconds.
    pub device_us: Option<f64>,
}

/// [`LoadTimings`](crate::LoadTimings).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WireLoadTimings {
    /// Waiting, microseconds.
    pub queue_us: f64,
    /// Fetching and checking the artefact, microseconds.
    pub fetch_us: f64,
    /// The engine's load, microseconds.
    pub load_us: f64,
}

impl From<crate::LoadTimings> for WireLoadTimings {
    fn from(timings: crate::LoadTimings) -> Self {
        Self {
            queue_us: timings.queue_us,
            fetch_us: timings.fetch_us,
            load_us: timings.load_us,
        }
    }
}

impl From<WireLoadTimings> for crate::LoadTimings {
    fn from(timings: WireLoadTimings) -> Self {
        Self {
            queue_us: timings.queue_us,
            fetch_us: timings.fetch_us,
            load_us: timings.load_us,
        }
    }
}
