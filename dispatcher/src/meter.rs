//! How much of the workers' time online queries take.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use sextant_policies::schedule::Nanos;
use sextant_rpc::BatchTimings;

/// Device time spent on online queries: what offline jobs make room for.
pub(crate) struct OnlineMeter {
    cores: AtomicU64,
    started: Instant,
    busy_nanos: AtomicU64,
    exec_nanos: AtomicU64,
    expected_nanos: AtomicU64,
    window: Mutex<Window>,
}

#[derive(Default, Clone, Copy)]
struct Window {
    at: u64,
    busy: u64,
    exec: u64,
    expected: u64,
    share: f64,
    slow_down: f64,
}

/// Shortest window over which a share is computed.
const WINDOW_NANOS: u64 = 500_000_000;

impl OnlineMeter {
    pub(crate) fn new() -> Self {
        Self {
            cores: AtomicU64::new(0),
            started: Instant::now(),
            busy_nanos: AtomicU64::new(0),
            exec_nanos: AtomicU64::new(0),
            expected_nanos: AtomicU64::new(0),
            window: Mutex::default(),
        }
    }

    /// The workers that are up have so many cores from now on.
    pub(crate) fn set_cores(&self, cores: u64) {
        self.cores.store(cores, Ordering::Relaxed);
    }

    /// Counts a batch in which `online` of `all` queries were online ones.
    pub(crate) fn add(&self, timings: BatchTimings, expected: Nanos, online: usize, all: usize) {
        let total_us = timings.input_us + timings.exec_us + timings.output_us;
        let share = online as f64 / all.max(1) as f64;
        let count = |counter: &AtomicU64, nanos: f64| {
            counter.fetch_add((nanos * share) as u64, Ordering::Relaxed);
        };
        count(&self.busy_nanos, total_us * 1e3);
        count(&self.exec_nanos, timings.exec_us * 1e3);
        count(&self.expected_nanos, expected as f64);
    }

    /// Measured over profiled run time of online batches in the last whole window; 0 without any.
    pub(crate) fn slow_down(&self) -> f64 {
        self.look().slow_down
    }

    /// Share of device time in the last whole window, 0 to 1.
    pub(crate) fn utilization(&self) -> f64 {
        self.look().share
    }

    fn look(&self) -> Window {
        let at = self.started.elapsed().as_nanos() as u64;
        let busy = self.busy_nanos.load(Ordering::Relaxed);
        let exec = self.exec_nanos.load(Ordering::Relaxed);
        let expected = self.expected_nanos.load(Ordering::Relaxed);
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed = at.saturating_sub(window.at);
        if elapsed >= WINDOW_NANOS {
            let cores = self.cores.load(Ordering::Relaxed).max(1);
            let capacity = elapsed as f64 * cores as f64;
            let share = (busy.saturating_sub(window.busy) as f64 / capacity).min(1.0);
            let measured = exec.saturating_sub(window.exec) as f64;
            let profiled = expected.saturating_sub(window.expected) as f64;
            let slow_down = if profiled > 0.0 {
                measured / profiled
            } else {
                0.0
            };
            *window = Window {
                at,
                busy,
                exec,
                expected,
                share,
                slow_down,
            };
        }
        *window
    }
}
