//! How much of the workers' time online queries take.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sextant_health::throttle::Observation;
use sextant_rpc::BatchTimings;
use sextant_schedule::Nanos;
use sextant_types::index::{DeviceIx, IndexVec};

/// Device time spent on online queries: what offline jobs make room for.
pub(crate) struct OnlineMeter {
    started: Instant,
    /// By position.
    workers: ArcSwap<IndexVec<DeviceIx, Arc<Meter>>>,
}

/// Of one worker.
#[derive(Default)]
struct Meter {
    /// 0 while it is away.
    cores: AtomicU64,
    /// When an online batch was last sent, ns; 0 before the first.
    sent: AtomicU64,
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

/// Time without an online batch after which none is expected on a worker. Where queries come one a second by chance, one in
/// 150 finds a worker that had none for so long.
const QUIET_NANOS: u64 = 5_000_000_000;

impl OnlineMeter {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            workers: ArcSwap::default(),
        }
    }

    /// The workers that are up have so many cores from now on, by position.
    pub(crate) fn set_cores(&self, up: impl Iterator<Item = (DeviceIx, u16)>) {
        let mut workers = IndexVec::clone(&self.workers.load());
        for worker in workers.iter() {
            worker.cores.store(0, Ordering::Relaxed);
        }
        for (at, cores) in up {
            workers
                .grown(at)
                .cores
                .store(cores.into(), Ordering::Relaxed);
        }
        self.workers.store(Arc::new(workers));
    }

    /// Notes that an online batch is sent to a worker.
    pub(crate) fn note_sent(&self, at: DeviceIx) {
        if let Some(meter) = self.workers.load().get(at) {
            // 0 stands for none.
            meter.sent.store(self.now().max(1), Ordering::Relaxed);
        }
    }

    /// Whether no online query is expected on one of some workers, on one of all where none is named.
    pub(crate) fn is_quiet(&self, of: &[DeviceIx]) -> bool {
        let (now, workers) = (self.now(), self.workers.load());
        let quiet = up_among(&workers, of).map(|meter| meter.is_quiet(now));
        quiet.reduce(|one, other| one || other).unwrap_or(true)
    }

    /// Counts a batch on a worker in which `online` of `all` queries were online ones.
    pub(crate) fn add(
        &self,
        at: DeviceIx,
        timings: BatchTimings,
        expected: Nanos,
        (online, all): (usize, usize),
    ) {
        let workers = self.workers.load();
        let Some(meter) = workers.get(at) else {
            return;
        };
        let total_us = timings.input_us + timings.exec_us + timings.output_us;
        let share = online as f64 / all.max(1) as f64;
        let count = |counter: &AtomicU64, nanos: f64| {
            counter.fetch_add((nanos * share) as u64, Ordering::Relaxed);
        };
        count(&meter.busy_nanos, total_us * 1e3);
        count(&meter.exec_nanos, timings.exec_us * 1e3);
        count(&meter.expected_nanos, expected as f64);
    }

    /// Share of the device time of all workers in the last whole windows, 0 to 1.
    pub(crate) fn utilization(&self) -> f64 {
        let at = self.now();
        let (mut busy, mut cores) = (0.0, 0.0);
        for meter in self.workers.load().iter() {
            let of = meter.cores.load(Ordering::Relaxed) as f64;
            busy += meter.look(at).share * of;
            cores += of;
        }
        if cores > 0.0 { busy / cores } else { 0.0 }
    }

    /// What was seen of that of some workers which online queries keep least busy; of all workers
    /// where none is named.
    pub(crate) fn quietest(&self, of: &[DeviceIx]) -> Observation {
        let at = self.now();
        let workers = self.workers.load();
        let seen = up_among(&workers, of).map(|meter| {
            let window = meter.look(at);
            Observation {
                online_utilization: window.share,
                slow_down: window.slow_down,
            }
        });
        let quietest = seen.min_by(|a, b| {
            let by_load = a.online_utilization.total_cmp(&b.online_utilization);
            by_load.then(a.slow_down.total_cmp(&b.slow_down))
        });
        quietest.unwrap_or(Observation {
            online_utilization: 0.0,
            slow_down: 0.0,
        })
    }

    /// Since the start, ns.
    fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }
}

/// Those of some workers that are up; of all where none is named.
fn up_among<'a>(
    workers: &'a IndexVec<DeviceIx, Arc<Meter>>,
    of: &'a [DeviceIx],
) -> impl Iterator<Item = &'a Meter> {
    let named = workers
        .numbered()
        .filter(move |(at, _)| of.is_empty() || of.contains(at));
    let up = named.filter(|(_, meter)| meter.cores.load(Ordering::Relaxed) > 0);
    up.map(|(_, meter)| &**meter)
}

impl Meter {
    fn is_quiet(&self, now: u64) -> bool {
        let sent = self.sent.load(Ordering::Relaxed);
        sent == 0 || now.saturating_sub(sent) >= QUIET_NANOS
    }

    fn look(&self, at: u64) -> Window {
        let busy = self.busy_nanos.load(Ordering::Relaxed);
        let exec = self.exec_nanos.load(Ordering::Relaxed);
        let expected = self.expected_nanos.load(Ordering::Relaxed);
        let mut window = self.window.lock();
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
