//! What a worker may use and how long it waits.

use std::{sync::Arc, time::Duration};

use sextant_health::Thresholds;
use sextant_types::{DeviceType, Isolation, Variant, WorkerId};

use crate::process::ProcessMeter;

/// Default size of a page, bytes: small enough that rounding up costs little on a CPU.
const PAGE_BYTES: u64 = 1 << 20;

/// Default for the bytes of inputs that may wait at a worker (Clockwork, section 5.2).
const IO_BYTES: u64 = 768 << 20;

/// Default size of a file from which on the file is mapped, bytes.
const MAP_FROM_BYTES: u64 = 512 << 20;

/// What a worker may use and how long it waits.
#[derive(Debug, Clone)]
pub struct Config {
    /// The worker's name, unique in the fleet.
    pub worker: WorkerId,
    /// The address at which other processes reach the worker, `host:port`; `None` if only its own process reaches it.
    pub endpoint: Option<Arc<str>>,
    /// The worker's device as it is reported to other processes: `cpu`, `cuda:0`, ..
    pub device: Arc<str>,
    /// The type of that device and its price, as they are reported to other processes; `None` reports neither.
    pub device_type: Option<Arc<DeviceType>>,
    /// CPU cores that batches may occupy at once. A device with an executor of its own runs one batch at a time and
    /// ignores this.
    pub cores: u16,
    /// Bytes that loaded variants may occupy. A device with memory of its own states this itself.
    pub memory_bytes: u64,
    /// Size of a page of that memory, bytes. A device with memory of its own states this itself.
    pub page_bytes: u64,
    /// Bytes of inputs of waiting and running batches. The worker refuses batches beyond that.
    pub io_bytes: u64,
    /// How far ahead the window of a batch or load may open.
    pub horizon: Duration,
    /// When a batch or a load counts as stuck.
    pub watchdog: Watchdog,
    /// Cores for the threads that run batches, in the order of the threads; `None` leaves the choice to the operating
    /// system.
    pub pin: Option<Vec<usize>>,
    /// Period in which the worker looks at its instances and sends a heartbeat, ms.
    pub period_ms: u64,
    /// Most time between the announcement that the worker leaves and its end. In this time it finishes the batches that
    /// it still receives. A worker that only its own process reaches (no [`Self::endpoint`]) does not wait: when that
    /// process ends, it receives nothing more.
    pub drain: Duration,
    /// Time without a heartbeat after which the worker's lease lapses, ms.
    pub lease_ms: u64,
    /// When an instance counts as overloaded or interfered.
    pub thresholds: Thresholds,
    /// Which models run in processes of their own, if the engine supports that.
    pub isolated: IsolationPolicy,
    /// The common counts of all workers of this process: each worker is given the same meter.
    pub process: Arc<ProcessMeter>,
    /// Files of models of at least this size are mapped instead of being read into memory, bytes.
    pub map_from_bytes: u64,
}

/// Which models run in processes of their own, unless their application states something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsolationPolicy {
    /// No model.
    Nothing,
    /// Models that were registered with a key that is not an administrator's.
    Foreign,
    /// All models.
    Everything,
}

/// When a batch or a load counts as stuck: when it takes longer than `factor` times the expected duration, and longer
/// than the floor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Watchdog {
    /// No batch counts as stuck before this time.
    pub batch_floor: Duration,
    /// No load counts as stuck before this time.
    pub load_floor: Duration,
    /// Multiple of the expected duration that counts as too long.
    pub factor: f64,
    /// Longest time that an engine may take to return after it was asked to end a run.
    pub end_grace: Duration,
}

/// Multiple of the grace that the end of an engine's own process may take. The process is killed and ends when the
/// machine has time for it.
const KILLED: u32 = 12;

// === impl Config ===

impl Config {
    /// A worker with these values and the defaults for the rest.
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
    /// Longest run of a batch with this expected duration.
    pub(crate) fn batch_limit(&self, expected: Duration) -> Duration {
        self.batch_floor.max(times(expected, self.factor))
    }

    /// Longest time from killing a run's process to the end of the run.
    pub(crate) fn kill_grace(&self) -> Duration {
        self.end_grace.saturating_mul(KILLED)
    }

    /// Longest load with this expected duration.
    pub(crate) fn load_limit(&self, expected: Duration) -> Duration {
        self.load_floor.max(times(expected, self.factor))
    }
}

/// If the factor is not a number, or the product exceeds what a clock holds, the product adds nothing to the floor.
fn times(expected: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(expected.as_secs_f64() * factor).unwrap_or_default()
}
