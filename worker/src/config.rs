//! What a worker may use and how patient it is.

use std::{sync::Arc, time::Duration};

use sextant_health::Thresholds;
use sextant_types::{DeviceType, Isolation, Variant, WorkerId};

use crate::process::ProcessMeter;

/// Size of a page where none is configured: small enough that rounding up costs little on a CPU.
const PAGE_BYTES: u64 = 1 << 20;

/// Bytes of inputs that wait at a worker where nothing is configured (Clockwork, section 5.2).
const IO_BYTES: u64 = 768 << 20;

/// Size of a file from which on it is mapped where nothing is configured.
const MAP_FROM_BYTES: u64 = 512 << 20;

/// What a worker may use and how patient it is.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its name, unique in the fleet.
    pub worker: WorkerId,
    /// Where other processes reach it, `host:port`; `None` where only its own process does.
    pub endpoint: Option<Arc<str>>,
    /// What it runs batches on, as the others are told: `cpu`, `cuda:0`, ..
    pub device: Arc<str>,
    /// The type of that device and its price, as the others are told; `None` tells nothing.
    pub device_type: Option<Arc<DeviceType>>,
    /// CPU cores that batches may occupy at once. A device with an executor of its own runs one
    /// batch at a time, whatever this says.
    pub cores: u16,
    /// Bytes that loaded variants may occupy. A device with memory of its own says itself.
    pub memory_bytes: u64,
    /// Size of a page of that memory, bytes. A device with memory of its own says itself.
    pub page_bytes: u64,
    /// Bytes of inputs that may wait here or run; batches beyond are refused.
    pub io_bytes: u64,
    /// How far ahead the window of a batch or load may open.
    pub horizon: Duration,
    /// When a batch or load counts as stuck.
    pub watchdog: Watchdog,
    /// Cores that the threads that run batches keep to, one after the other; `None` leaves them to
    /// the operating system.
    pub pin: Option<Vec<usize>>,
    /// Time between two looks at the instances, ms; heartbeats go along.
    pub period_ms: u64,
    /// Most time between the announcement that the worker leaves and its end, in which it finishes
    /// what it is still sent. A worker that only its own process reaches (no [`Self::endpoint`]) is sent
    /// nothing any more when that ends, and then does not wait.
    pub drain: Duration,
    /// How long the others believe in this worker without a heartbeat, ms.
    pub lease_ms: u64,
    /// When an instance counts as overloaded or interfered.
    pub thresholds: Thresholds,
    /// Which models engines run in processes of their own, where an engine has such.
    pub isolated: IsolationPolicy,
    /// What the workers of this process do to its cores together: each is given the same.
    pub process: Arc<ProcessMeter>,
    /// Files of models from this size on are mapped in place of being read into memory, bytes.
    pub map_from_bytes: u64,
}

/// Which models run in processes of their own, as far as their applications say nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsolationPolicy {
    /// None of them.
    Nothing,
    /// Those that were registered with a key that is no administrator's.
    Foreign,
    /// All of them.
    Everything,
}

/// When what runs counts as stuck: past `factor` times what was expected, and past the floor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Watchdog {
    /// No batch counts as stuck before.
    pub batch_floor: Duration,
    /// No load counts as stuck before.
    pub load_floor: Duration,
    /// How many times the expected duration is too long.
    pub factor: f64,
    /// How long an engine that was asked to end a run may take to come back.
    pub end_grace: Duration,
}

/// So many times as long may the end of an engine's own process take: it is killed, and ends as soon as the machine has time
/// for that.
const KILLED: u32 = 12;

// === impl Config ===

impl Config {
    /// A worker with everything but these left to the defaults.
    pub fn new(worker: WorkerId, cores: u16, memory_bytes: u64) -> Self {
        Self {
            worker,
            endpoint: None,
            device: "cpu".into(),
            device_type: None,
            cores,
            memory_bytes,
            page_bytes: PAGE_BYTES,
            io_bytes: IO_BYTES,
            horizon: Duration::from_secs(10),
            watchdog: Watchdog::default(),
            pin: None,
            map_from_bytes: MAP_FROM_BYTES,
            isolated: IsolationPolicy::Nothing,
            process: Arc::default(),
            period_ms: 1000,
            drain: Duration::ZERO,
            lease_ms: 10_000,
            thresholds: Thresholds::default(),
        }
    }
}

// === impl IsolationPolicy ===

impl IsolationPolicy {
    /// Whether this variant runs in a process of its own.
    pub(crate) fn has(self, variant: &Variant) -> bool {
        match (variant.resources.isolation, self) {
            (Some(said), _) => said == Isolation::Process,
            (None, Self::Nothing) => false,
            (None, Self::Foreign) => variant.foreign,
            (None, Self::Everything) => true,
        }
    }
}

// === impl Watchdog ===

impl Default for Watchdog {
    fn default() -> Self {
        Self {
            batch_floor: Duration::from_secs(10),
            load_floor: Duration::from_secs(60),
            factor: 10.0,
            end_grace: Duration::from_secs(5),
        }
    }
}

impl Watchdog {
    /// Longest run of a batch that is expected to take so long.
    pub(crate) fn batch_limit(&self, expected: Duration) -> Duration {
        self.batch_floor.max(times(expected, self.factor))
    }

    /// How long the end of a run may take whose process is killed.
    pub(crate) fn kill_grace(&self) -> Duration {
        self.end_grace.saturating_mul(KILLED)
    }

    /// Longest load that is expected to take so long.
    pub(crate) fn load_limit(&self, expected: Duration) -> Duration {
        self.load_floor.max(times(expected, self.factor))
    }
}

/// A factor that is not a number, or a product beyond what a clock holds, adds nothing to the floor.
fn times(expected: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(expected.as_secs_f64() * factor).unwrap_or_default()
}
