//! What all workers of one process do to its cores together: the time of their engines, and the stated time of all
//! else.

use std::{
    fmt, fs,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Instant,
};

use sextant_profile::{ProcessHistory, ProcessSample};
use sextant_types::{Amounts, Surroundings};

use crate::cores;

/// Counts of all workers of a process, which share it.
#[derive(Default)]
pub struct ProcessMeter {
    workers: AtomicU32,
    /// Stated time for what was answered, ns of a core.
    stated_nanos: AtomicU64,
    /// Time of this process's cores that engines took according to their profiles, ns of a core.
    engine_nanos: AtomicU64,
}

/// What a worker has seen of its process's counts.
pub(crate) struct Watch {
    seen: ProcessHistory,
    looked: Instant,
    cpu_nanos: u64,
    stated_nanos: u64,
    engine_nanos: u64,
}

// === impl ProcessMeter ===

impl ProcessMeter {
    /// Counts one more worker of this process.
    pub(crate) fn join(&self) {
        self.workers.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts queries that have run. `engine_nanos` is the engine's time on this process's cores, ns.
    pub(crate) fn add(&self, of: Amounts, engine_nanos: u64) {
        let stated = (of.core_s() * 1e9) as u64;
        self.stated_nanos.fetch_add(stated, Ordering::Relaxed);
        self.engine_nanos.fetch_add(engine_nanos, Ordering::Relaxed);
    }
}

impl fmt::Debug for ProcessMeter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ProcessMeter")
    }
}

// === impl Watch ===

impl Watch {
    pub(crate) fn new(of: &ProcessMeter) -> Self {
        Self {
            seen: ProcessHistory::default(),
            looked: Instant::now(),
            cpu_nanos: cpu_nanos(),
            stated_nanos: of.stated_nanos.load(Ordering::Relaxed),
            engine_nanos: of.engine_nanos.load(Ordering::Relaxed),
        }
    }

    /// Takes in the counts since the last look.
    pub(crate) fn look(&mut self, of: &ProcessMeter) {
        let since = |last: &mut u64, now: u64| {
            let before = std::mem::replace(last, now);
            now.saturating_sub(before) as f64 / 1e9
        };
        let now = Instant::now();
        let wall = now.saturating_duration_since(std::mem::replace(&mut self.looked, now));
        self.seen.observe(ProcessSample {
            wall_s: wall.as_secs_f64(),
            cpu_s: since(&mut self.cpu_nanos, cpu_nanos()),
            engine_s: since(
                &mut self.engine_nanos,
                of.engine_nanos.load(Ordering::Relaxed),
            ),
            stated_s: since(
                &mut self.stated_nanos,
                of.stated_nanos.load(Ordering::Relaxed),
            ),
        });
    }

    /// The surroundings of the engines of one of the workers, which share `cores` cores.
    pub(crate) fn surroundings(&self, of: &ProcessMeter, cores: f64, shared: bool) -> Surroundings {
        let workers = of.workers.load(Ordering::Relaxed);
        self.seen.of_worker(cores, (workers, shared))
    }
}

/// Time that this process has kept cores busy, ns, in steps of 10 ms; constant if the kernel does not show it.
fn cpu_nanos() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").ok();
    let used = stat.and_then(|stat| cores::used(&stat));
    used.map_or(0, |(_, hundredths)| hundredths.saturating_mul(10_000_000))
}
