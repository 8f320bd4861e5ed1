//! What the workers of one process do to its cores together: their engines' share, and what is stated for the rest.

use std::{
    fmt, fs,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Instant,
};

use sextant_profile::{ProcessHistory, ProcessSample};
use sextant_types::{Amounts, Surroundings};

use crate::cores;

/// Counts of all workers of a process, which they share.
#[derive(Default)]
pub struct ProcessMeter {
    workers: AtomicU32,
    /// Time that is stated for what was answered, ns of a core.
    stated_nanos: AtomicU64,
    /// Time of this process's cores that engines took by their profiles, ns of a core.
    engine_nanos: AtomicU64,
}

/// What a worker has seen of its process.
pub(crate) struct Watch {
    seen: ProcessHistory,
    looked: Instant,
    cpu_nanos: u64,
    stated_nanos: u64,
    engine_nanos: u64,
}

// === impl ProcessMeter ===

impl ProcessMeter {
    /// One more worker is of this process.
    pub(crate) fn join(&self) {
        self.workers.fetch_add(1, Ordering::Relaxed);
    }

    /// Such queries have run, of which an engine took so long of this process's cores, ns.
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

    /// Takes in what has come since the last look.
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

    /// What surrounds the engines of one of the workers, which share so many cores.
    pub(crate) fn surroundings(&self, of: &ProcessMeter, cores: f64, shared: bool) -> Surroundings {
        let workers = of.workers.load(Ordering::Relaxed);
        self.seen.of_worker(cores, (workers, shared))
    }
}

/// Time that this process has kept cores busy, ns, in steps of 10 ms; always the same where the kernel does not say.
fn cpu_nanos() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").ok();
    let used = stat.and_then(|stat| cores::used(&stat));
    used.map_or(0, |(_, hundredths)| hundredths.saturating_mul(10_000_000))
}
