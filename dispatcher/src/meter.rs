//! How much of the workers' time online queries take.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sextant_health::throttle::{self, Observation};
use sextant_rpc::BatchTimings;
use sextant_schedule::Nanos;
use sextant_types::index::{DeviceIx, IndexVec};
use tokio::sync::Notify;

/// Measures the device time of online queries, for which offline jobs make room.
pub(crate) struct OnlineMeter {
    started: Instant,
    /// By position.
    workers: ArcSwap<IndexVec<DeviceIx, Arc<Meter>>>,
    /// Notified when an online batch has ended.
    ended: Arc<Notify>,
}

/// An online batch that was sent and has no outcome yet. It is dropped when the outcome comes.
pub(crate) struct OnlineBatch {
    meter: Arc<Meter>,
    slots: u64,
    ended: Arc<Notify>,
}

/// The counters of one worker.
#[derive(Default)]
struct Meter {
    /// The worker's cores; 0 while it is away.
    cores: AtomicU64,
    /// When an online batch was last sent, ns; 0 before the first.
    sent: AtomicU64,
    /// Slots that online batches occupy.
    occupied: AtomicU64,
    busy_nanos: AtomicU64,
    exec_nanos: AtomicU64,
    expected_nanos: AtomicU64,
    window: Mutex<Window>,
}

#[derive(Debug, Default, Clone, Copy)]
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

/// If no online batch has come for this long, none is expected on a worker. If queries come at random at one a second,
/// one in 150 finds a worker that had none for so long.
const QUIET_NANOS: u64 = 5_000_000_000;

/// The longest wait of a job's query for online batches. After it the job goes on, on the capacity that online batches
/// leave over time.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

impl OnlineMeter {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            workers: ArcSwap::default(),
            ended: Arc::default(),
        }
    }

    /// Sets the cores of the workers that are up, by position.
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

    /// Notes that an online batch is sent to a worker and occupies this many of its slots.
    pub(crate) fn begin(&self, at: DeviceIx, slots: u16) -> Option<OnlineBatch> {
        let (slots, workers) = (u64::from(slots), self.workers.load());
        let meter = Arc::clone(workers.get(at)?);
        // 0 means that none was sent.
        meter.sent.store(self.now().max(1), Ordering::Relaxed);
        meter.occupied.fetch_add(slots, Ordering::Relaxed);
        Some(OnlineBatch {
            meter,
            slots,
            ended: Arc::clone(&self.ended),
        })
    }

    /// Waits a moment until online batches leave room for a batch of a job on at least one of the workers `of`, or on
    /// any worker if `of` is empty.
    pub(crate) async fn await_room(&self, of: &[DeviceIx]) {
        if self.has_room(of) {
            return;
        }
        let room = async {
            loop {
                let ended = self.ended.notified();
                if self.has_room(of) {
                    return;
                }
                ended.await;
            }
        };
        drop(tokio::time::timeout(LONGEST_WAIT, room).await);
    }

    fn has_room(&self, of: &[DeviceIx]) -> bool {
        let workers = self.workers.load();
        let room = up_among(&workers, of).map(Meter::has_room);
        room.reduce(|one, other| one || other).unwrap_or(true)
    }

    /// Whether no online query is expected on at least one of the workers `of`, or on any worker if `of` is empty.
    pub(crate) fn is_quiet(&self, of: &[DeviceIx]) -> bool {
        let (now, workers) = (self.now(), self.workers.load());
        let quiet = up_among(&workers, of).map(|meter| meter.is_quiet(now));
        quiet.reduce(|one, other| one || other).unwrap_or(true)
    }

    /// Counts a batch that occupied this many slots of a worker, and of whose `all` queries `online` were online ones.
    pub(crate) fn add(
        &self,
        (at, slots): (DeviceIx, u16),
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
        // A batch occupies all slots of a worker that has fewer.
        let cores = meter.cores.load(Ordering::Relaxed).max(1);
        let slots = u64::from(slots).clamp(1, cores) as f64;
        let count = |counter: &AtomicU64, nanos: f64| {
            counter.fetch_add((nanos * share) as u64, Ordering::Relaxed);
        };
        count(&meter.busy_nanos, total_us * 1e3 * slots);
        count(&meter.exec_nanos, timings.exec_us * 1e3);
        count(&meter.expected_nanos, expected as f64);
    }

    /// The share of all workers' device time that online queries took in the last complete windows, 0 to 1.
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

    /// The observation of the worker that online queries keep least busy, among the workers `of`, or among all workers
    /// if `of` is empty.
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

    /// Time since the start, ns.
    fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }
}

/// Those of the workers `of` that are up; all workers that are up if `of` is empty.
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

    fn has_room(&self) -> bool {
        let slots = self.cores.load(Ordering::Relaxed);
        throttle::has_room(self.occupied.load(Ordering::Relaxed), slots)
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

// === impl OnlineBatch ===

impl Drop for OnlineBatch {
    fn drop(&mut self) {
        self.meter.occupied.fetch_sub(self.slots, Ordering::Relaxed);
        self.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_batch_counts_by_the_slots_that_it_occupies() {
        let (meter, one) = (OnlineMeter::new(), DeviceIx::new(0));
        meter.set_cores([(one, 4)].into_iter());
        let timings = BatchTimings {
            started: Instant::now(),
            queue_us: 0.0,
            input_us: 0.0,
            exec_us: 100_000.0,
            output_us: 0.0,
            device_us: None,
        };
        for (slots, windows, wanted) in [(1, 1, 0.05), (2, 2, 0.1), (8, 3, 0.2)] {
            meter.add((one, slots), timings, 0, (1, 1));
            let seen = meter.workers.load()[one].look(windows * WINDOW_NANOS);
            assert!((seen.share - wanted).abs() < 1e-9, "{slots}: {seen:?}");
        }
    }

    #[tokio::test]
    async fn a_query_of_a_job_waits_while_online_batches_occupy_each_of_its_workers() {
        let (meter, one, other) = (OnlineMeter::new(), DeviceIx::new(0), DeviceIx::new(1));
        meter.set_cores([(one, 4), (other, 4)].into_iter());
        let begin = |at, slots| meter.begin(at, slots).expect("it is up");
        let goes = |of: &[DeviceIx]| meter.await_room(of).now_or_never().is_some();
        let first = begin(one, 1);
        assert!(goes(&[one]));
        let second = begin(one, 1);
        assert!(!goes(&[one]) && goes(&[other]) && goes(&[one, other]) && goes(&[]));
        let third = begin(other, 2);
        assert!(!goes(&[one, other]) && !goes(&[]));
        drop((first, third));
        assert!(goes(&[one]) && goes(&[]));
        drop(second);
        assert!(goes(&[one]));
    }
}
