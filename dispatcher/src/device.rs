//! The shell around one device's scheduler: a lock, a clock, a timer, and the worker behind it.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use sextant_policies::schedule::{
    Action, BatchId, DropReason, NEVER, Nanos, QueueSpec, Request, Scheduler,
};
use sextant_rpc::{BatchTimings, Infer, InferError, InferOutcome, WorkerClient};
use sextant_types::{NamedTensor, Tensor, VariantId};
use tokio::sync::{Notify, oneshot};

/// Nanoseconds since the dispatcher's start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    epoch: Instant,
}

/// A query waiting for its answer.
pub(crate) struct Pending {
    pub(crate) variant: VariantId,
    pub(crate) inputs: Vec<NamedTensor>,
    pub(crate) online: bool,
    pub(crate) reply: oneshot::Sender<Reply>,
}

/// What became of a pending query.
pub(crate) type Reply = Result<Done, Refusal>;

/// The outputs of one query.
pub(crate) struct Done {
    pub(crate) outputs: Vec<Tensor>,
    pub(crate) timings: BatchTimings,
    pub(crate) batch_rows: u32,
}

/// Why a pending query has no outputs.
#[derive(Debug)]
pub(crate) enum Refusal {
    Dropped(DropReason),
    Worker(InferError),
}

/// One worker's device as the dispatcher drives it.
pub(crate) struct Device {
    pub(crate) worker: WorkerClient,
    clock: Clock,
    scheduler: Mutex<Scheduler<Pending>>,
    /// Copies of the scheduler's estimates, so that selection reads them without the lock.
    busy_until: AtomicU64,
    queued: AtomicU64,
    /// When the timer task will look next.
    armed: AtomicU64,
    rearm: Notify,
    online: Arc<OnlineMeter>,
    this: Weak<Self>,
}

impl Device {
    pub(crate) fn new(worker: WorkerClient, clock: Clock, online: Arc<OnlineMeter>) -> Arc<Self> {
        let slots = worker.info().cores;
        Arc::new_cyclic(|this| Self {
            worker,
            clock,
            scheduler: Mutex::new(Scheduler::new(slots)),
            busy_until: AtomicU64::new(0),
            queued: AtomicU64::new(0),
            armed: AtomicU64::new(NEVER),
            rearm: Notify::new(),
            online,
            this: Weak::clone(this),
        })
    }

    /// Queues a query; its reply arrives exactly once.
    pub(crate) fn enqueue(&self, ordinal: u32, request: Request<Pending>) {
        let now = self.clock.now();
        self.step(|scheduler| scheduler.on_request(now, ordinal, request));
    }

    pub(crate) fn on_loaded(&self, ordinal: u32, spec: QueueSpec) {
        self.lock().on_loaded(ordinal, spec);
    }

    pub(crate) fn on_unloaded(&self, ordinal: u32) {
        self.step(|scheduler| scheduler.on_unloaded(ordinal));
    }

    /// Estimated time until a new batch could start, ns.
    pub(crate) fn wait(&self, now: Nanos) -> Nanos {
        let busy = self.busy_until.load(Ordering::Relaxed).saturating_sub(now);
        busy + self.queued.load(Ordering::Relaxed)
    }

    /// Queries that wait for a batch.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting()
    }

    /// Drops what became impossible, exactly when it does.
    pub(crate) async fn run_timer(self: Arc<Self>) {
        loop {
            let next = self.armed.load(Ordering::Acquire);
            if next == NEVER {
                self.rearm.notified().await;
                continue;
            }
            let until = self.clock.instant(next) + Duration::from_micros(50);
            tokio::select! {
                () = tokio::time::sleep_until(until.into()) => {
                    let now = self.clock.now();
                    self.armed.store(NEVER, Ordering::Release);
                    self.step(|scheduler| scheduler.on_timer(now));
                }
                () = self.rearm.notified() => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Scheduler<Pending>> {
        self.scheduler
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// One step of the scheduler, then what it asks for, outside the lock.
    fn step(&self, step: impl FnOnce(&mut Scheduler<Pending>) -> Vec<Action<Pending>>) {
        let actions = {
            let mut scheduler = self.lock();
            let actions = step(&mut scheduler);
            self.busy_until
                .store(scheduler.busy_until().unwrap_or(0), Ordering::Relaxed);
            self.queued.store(scheduler.queued(), Ordering::Relaxed);
            self.arm(scheduler.next_timer().unwrap_or(NEVER));
            actions
        };
        actions
            .into_iter()
            .for_each(|action| self.carry_out(action));
    }

    fn arm(&self, next: Nanos) {
        if next < self.armed.fetch_min(next, Ordering::AcqRel) {
            self.rearm.notify_one();
        }
    }

    fn carry_out(&self, action: Action<Pending>) {
        match action {
            Action::Drop { request, reason } => {
                request.payload.answer(Err(Refusal::Dropped(reason)));
            }
            Action::Infer {
                requests,
                latest,
                id,
                ..
            } => self.send(requests, latest, id),
        }
    }

    fn send(&self, requests: Vec<Request<Pending>>, latest: Nanos, id: BatchId) {
        let Some(device) = self.this.upgrade() else {
            return;
        };
        let Some(first) = requests.first() else {
            return;
        };
        let variant = first.payload.variant.clone();
        let batch_rows = requests.iter().map(|request| request.rows).sum();
        let mut waiting = Vec::with_capacity(requests.len());
        let mut parts = Vec::with_capacity(requests.len());
        for request in requests {
            let Pending {
                inputs,
                online,
                reply,
                ..
            } = request.payload;
            parts.push(inputs);
            waiting.push((online, reply));
        }
        let latest = (latest != NEVER).then(|| self.clock.instant(latest));
        let done = Box::new(move |outcome| device.finish(id, batch_rows, waiting, outcome));
        self.worker.infer(Infer {
            variant,
            parts,
            earliest: self.clock.epoch,
            latest,
            done,
        });
    }

    /// The device is free again: first keep it busy, then answer.
    fn finish(
        &self,
        id: BatchId,
        batch_rows: u32,
        waiting: Vec<(bool, oneshot::Sender<Reply>)>,
        outcome: InferOutcome,
    ) {
        let now = self.clock.now();
        self.step(|scheduler| scheduler.on_result(now, id));
        match outcome {
            Err(error) => {
                for (_, reply) in waiting {
                    drop(reply.send(Err(Refusal::Worker(error.clone()))));
                }
            }
            Ok(result) => {
                let online = waiting.iter().filter(|(online, _)| *online).count();
                self.online
                    .add(result.timings, id.expected(), online, waiting.len());
                for ((_, reply), outputs) in waiting.into_iter().zip(result.outputs) {
                    let timings = result.timings;
                    let done = outputs
                        .map(|outputs| Done {
                            outputs,
                            timings,
                            batch_rows,
                        })
                        .map_err(|reason| Refusal::Worker(InferError::Failed(reason)));
                    // A client that went away leaves nobody to answer.
                    drop(reply.send(done));
                }
            }
        }
    }
}

// === impl Pending ===

impl Pending {
    fn answer(self, reply: Reply) {
        // A client that went away leaves nobody to answer.
        drop(self.reply.send(reply));
    }
}

// === impl Clock ===

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            epoch: Instant::now(),
        }
    }

    pub(crate) fn now(&self) -> Nanos {
        self.epoch.elapsed().as_nanos() as Nanos
    }

    pub(crate) fn nanos(&self, instant: Instant) -> Nanos {
        instant.saturating_duration_since(self.epoch).as_nanos() as Nanos
    }

    pub(crate) fn instant(&self, nanos: Nanos) -> Instant {
        self.epoch + Duration::from_nanos(nanos)
    }
}

// === OnlineMeter ===

/// Device time spent on online queries: what offline jobs make room for.
pub(crate) struct OnlineMeter {
    cores: u64,
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
    pub(crate) fn new(workers: &[WorkerClient]) -> Self {
        let cores = workers
            .iter()
            .map(|worker| u64::from(worker.info().cores))
            .sum();
        Self {
            cores,
            started: Instant::now(),
            busy_nanos: AtomicU64::new(0),
            exec_nanos: AtomicU64::new(0),
            expected_nanos: AtomicU64::new(0),
            window: Mutex::default(),
        }
    }

    fn add(&self, timings: BatchTimings, expected: Nanos, online: usize, all: usize) {
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
            let capacity = elapsed as f64 * self.cores.max(1) as f64;
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
