//! The half of a link that sends batches: a worker in another process as a [`Work`].

use std::{future::Future, sync::Arc, time::Duration};

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use sextant_rpc::{
    BatchResult, Infer, InferError, InferOutcome, Load, LoadTimings, VariantUsage, Work, WorkError,
    WorkerInfo, WorkerStats,
};
use sextant_types::VariantId;
use tokio::time::{MissedTickBehavior, interval};

use super::{
    Batch, Broken, Clock, Done, FromWorker, Link, Outputs, Report, Request, State, ToWorker,
    Window,
    clock::Peer,
    pending::{Outcome, Pending, finish},
};
use crate::hearing::SilenceMeter;

/// How a connection is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Number of messages exchanged before the first batch, so that the clocks are compared.
    pub primers: u32,
    /// Time between two signs of life. Clocks drift apart by up to 20 microseconds in a second, and
    /// the least of the last 1,024 messages is compared: at 50 ms the error stays below 1 ms.
    pub beat: Duration,
    /// Number of signs of life between two looks at the worker's state.
    pub beats_per_look: u32,
    /// A worker that is silent for this long, while this process listens, is lost.
    pub silence: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            primers: 16,
            beat: Duration::from_millis(50),
            beats_per_look: 10,
            silence: Duration::from_secs(5),
        }
    }
}

type ClientLink = Arc<dyn Link<ToWorker, FromWorker>>;

/// A worker in another process. Its [`Connection`] must be run for calls to be answered.
pub struct RemoteWorker {
    link: ClientLink,
    peer: Mutex<Peer>,
    pending: Pending,
    /// The state at the last look.
    state: Mutex<State>,
}

/// Drives a [`RemoteWorker`]: receives, sends signs of life, and answers all calls at the end.
pub struct Connection {
    worker: Arc<RemoteWorker>,
    options: Options,
}

impl RemoteWorker {
    /// Exchanges messages with the worker at the other end and compares clocks. Waits as long as
    /// the other end is silent.
    ///
    /// # Errors
    /// If the link breaks meanwhile.
    pub async fn connect(
        link: ClientLink,
        clock: Clock,
        options: Options,
    ) -> Result<(Arc<Self>, Connection), Broken> {
        let mut peer = Peer::new(clock);
        let mut state = None;
        for number in 0..=options.primers.max(1) {
            let request = match number {
                0 => Request::Look,
                _ => Request::Beat,
            };
            let stamp = peer.stamp();
            link.send(ToWorker { stamp, request })?;
            let answer = link.receive().await?;
            peer.arrived(&answer.stamp);
            if let Report::State(seen) = answer.report {
                state = Some(seen);
            }
        }
        let worker = Arc::new(Self {
            link,
            peer: Mutex::new(peer),
            pending: Pending::new(),
            state: Mutex::new(state.ok_or(Broken)?),
        });
        let connection = Connection {
            worker: Arc::clone(&worker),
            options,
        };
        Ok((worker, connection))
    }

    fn send(&self, request: Request) -> Result<(), Broken> {
        // The lock is held while sending, so that stamps are sent in the order of their times.
        let peer = self.peer();
        let stamp = peer.stamp();
        self.link.send(ToWorker { stamp, request })
    }

    fn window(
        &self,
        earliest: std::time::Instant,
        latest: Option<std::time::Instant>,
        expected: Duration,
    ) -> Window {
        // On the sender's clock: the worker converts it to its own.
        let peer = self.peer();
        let clock = peer.clock();
        Window {
            earliest_ns: clock.nanos(earliest),
            latest_ns: latest.map(|latest| clock.nanos(latest)),
            expected_ns: u64::try_from(expected.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// Sends a request and waits for the outcome; `None` if the link breaks.
    async fn ask(&self, request: impl FnOnce(u64) -> Request) -> Option<Outcome> {
        let (id, outcome) = self.pending.add()?;
        self.send(request(id)).ok()?;
        outcome.await.ok()
    }

    fn receive(&self, message: FromWorker) {
        self.peer().arrived(&message.stamp);
        match message.report {
            Report::Beat => {}
            Report::State(state) => {
                let mut known = self.state.lock();
                // A worker that leaves does not change its mind; this look may be older.
                let draining = known.draining || state.draining;
                *known = State { draining, ..state };
            }
            Report::Inferred { id, outcome } => {
                if let Some((_, done)) = self.pending.take_batch(id) {
                    finish(done, self.outcome(outcome));
                }
            }
            Report::Ended { id, outcome } => self.pending.answer(id, outcome),
        }
    }

    fn outcome(&self, outcome: Result<Outputs, InferError>) -> InferOutcome {
        let Outputs {
            parts,
            started_ns,
            steps,
        } = outcome?;
        Ok(BatchResult {
            outputs: parts,
            timings: steps.since(self.peer().instant(started_ns)),
        })
    }

    fn peer(&self) -> MutexGuard<'_, Peer> {
        self.peer.lock()
    }

    /// The reason for a call without an outcome of its own.
    fn why(&self, outcome: Option<&Outcome>) -> String {
        match outcome {
            None => self.lost(),
            Some(_) => format!(
                "worker `{}` is of another version and cannot read the order",
                self.state.lock().info.worker
            ),
        }
    }

    fn lost(&self) -> String {
        format!(
            "the connection to worker `{}` broke",
            self.state.lock().info.worker
        )
    }
}

#[async_trait]
impl Work for RemoteWorker {
    fn info(&self) -> WorkerInfo {
        self.state.lock().info.clone()
    }

    fn usage(&self) -> Vec<VariantUsage> {
        self.state.lock().usage.clone()
    }

    fn is_draining(&self) -> bool {
        self.state.lock().draining
    }

    fn infer(&self, infer: Infer) {
        let batch = Ok(Batch {
            parts: infer.parts,
            window: self.window(infer.earliest, infer.latest, infer.expected),
            offline_rows: infer.offline_rows,
            variant: infer.variant.clone(),
        });
        let id = match self.pending.add_batch(infer.variant, infer.done) {
            Ok(id) => id,
            Err(done) => return finish(done, Err(InferError::ShuttingDown)),
        };
        if self.send(Request::Infer { id, batch }).is_err()
            && let Some((_, done)) = self.pending.take_batch(id)
        {
            finish(done, Err(InferError::ShuttingDown));
        }
    }

    async fn load(&self, load: Load) -> Result<LoadTimings, WorkError> {
        let window = self.window(load.earliest, load.latest, load.expected);
        let variant = Box::new(load.variant.as_ref().clone());
        let id = load.variant.id.clone();
        let request = |id| Request::Load {
            id,
            variant,
            window,
        };
        match self.ask(request).await {
            Some(Ok(Done::Loaded(timings))) => Ok(timings),
            Some(Err(error)) => Err(error),
            other => Err(WorkError::Failed {
                variant: id,
                reason: self.why(other.as_ref()),
            }),
        }
    }

    async fn unload(&self, variant: &VariantId) -> Result<(), WorkError> {
        let request = |id| Request::Unload {
            id,
            variant: variant.clone(),
        };
        match self.ask(request).await {
            Some(Ok(Done::Unloaded)) => Ok(()),
            Some(Err(error)) => Err(error),
            other => Err(WorkError::Failed {
                variant: variant.clone(),
                reason: self.why(other.as_ref()),
            }),
        }
    }

    async fn repin(&self) -> Result<Vec<u16>, WorkError> {
        match self.ask(|id| Request::Repin { id }).await {
            Some(Ok(Done::Repinned(cores))) => Ok(cores),
            Some(Err(error)) => Err(error),
            other => Err(WorkError::Rejected(self.why(other.as_ref()))),
        }
    }

    async fn leave(&self) -> Result<(), WorkError> {
        match self.ask(|id| Request::Leave { id }).await {
            Some(Ok(Done::Leaves)) => {
                // The next look will say so as well.
                self.state.lock().draining = true;
                Ok(())
            }
            Some(Err(error)) => Err(error),
            other => Err(WorkError::Rejected(self.why(other.as_ref()))),
        }
    }

    async fn stats(&self) -> Result<WorkerStats, WorkError> {
        match self.ask(|id| Request::Stats { id }).await {
            Some(Ok(Done::Stats(stats))) => Ok(stats),
            Some(Err(error)) => Err(error),
            other => Err(WorkError::Rejected(self.why(other.as_ref()))),
        }
    }
}

impl Drop for RemoteWorker {
    fn drop(&mut self) {
        self.pending.fail(&self.lost());
    }
}

// === impl Connection ===

impl Connection {
    /// Runs until `shutdown`, or until the link breaks or falls silent. Then every waiting call is
    /// answered, and later ones are refused. Fails if the link broke.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), Broken> {
        let mut beats = interval(self.options.beat.max(Duration::from_millis(1)));
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut hearing = SilenceMeter::new(self.options.beat, self.options.silence);
        let mut beat = 0u32;
        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => return Ok(()),
                message = self.worker.link.receive() => {
                    self.worker.receive(message?);
                    hearing.heard();
                }
                _ = beats.tick() => {
                    if hearing.is_lost() {
                        return Err(Broken);
                    }
                    let look = beat.is_multiple_of(self.options.beats_per_look.max(1));
                    self.worker.send(if look { Request::Look } else { Request::Beat })?;
                    beat = beat.wrapping_add(1);
                }
            }
        }
    }
}

impl Drop for Connection {
    /// However it ends, no call waits any longer.
    fn drop(&mut self) {
        self.worker.pending.fail(&self.worker.lost());
    }
}
