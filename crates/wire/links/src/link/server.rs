//! The half of a link that runs batches.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use sextant_rpc::{Infer, InferError, InferOutcome, Load, LoadTimings, WorkError, WorkerClient};
use sextant_types::Variant;

use super::{
    Batch, Broken, Clock, Done, FromWorker, Link, Outputs, Report, Request, State, Steps, ToWorker,
    Window, clock::Peer,
};

type ServerLink = Arc<dyn Link<FromWorker, ToWorker>>;

/// What is needed to send reports.
struct Half {
    link: ServerLink,
    peer: Mutex<Peer>,
    worker: WorkerClient,
}

/// Passes what arrives on `link` to `worker` and sends its answers back, until `shutdown`. The end
/// of a link does not stop what the worker has begun.
///
/// # Errors
/// If the link breaks.
pub async fn serve_worker(
    worker: WorkerClient,
    link: ServerLink,
    clock: Clock,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Broken> {
    let half = Arc::new(Half {
        link,
        peer: Mutex::new(Peer::new(clock)),
        worker,
    });
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => return Ok(()),
            message = half.link.receive() => half.receive(message?),
        }
    }
}

impl Half {
    fn receive(self: &Arc<Self>, message: ToWorker) {
        self.peer().arrived(&message.stamp);
        match message.request {
            Request::Beat => self.report(Report::Beat),
            Request::Look => self.report(Report::State(self.state())),
            Request::Infer { id, batch } => self.infer(id, batch),
            other => {
                let half = Arc::clone(self);
                tokio::spawn(async move { half.answer(other).await });
            }
        }
    }

    /// Answers requests that take time.
    async fn answer(&self, request: Request) {
        let (id, outcome) = match request {
            Request::Load {
                id,
                variant,
                window,
            } => (id, self.load(*variant, &window).await.map(Done::Loaded)),
            Request::Unload { id, variant } => {
                let outcome = self.worker.unload(&variant).await;
                (id, outcome.map(|()| Done::Unloaded))
            }
            Request::Repin { id } => (id, self.worker.repin().await.map(Done::Repinned)),
            Request::Leave { id } => (id, self.worker.leave().await.map(|()| Done::Leaves)),
            Request::Unknown { id } => (id, Ok(Done::Unknown)),
            Request::Stats { id } => (id, self.worker.stats().await.map(Done::Stats)),
            Request::Beat | Request::Look | Request::Infer { .. } => return,
        };
        self.report(Report::Ended { id, outcome });
    }

    async fn load(&self, variant: Variant, window: &Window) -> Result<LoadTimings, WorkError> {
        let Some((earliest, latest, expected)) = self.window(window) else {
            return Err(WorkError::Failed {
                variant: variant.id,
                reason: UNKNOWN.to_owned(),
            });
        };
        let load = Load {
            variant: Arc::new(variant),
            earliest,
            latest,
            expected,
        };
        self.worker.load(load).await
    }

    fn infer(self: &Arc<Self>, id: u64, batch: Result<Batch, InferError>) {
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => return self.inferred(id, Err(error)),
        };
        let Some((earliest, latest, expected)) = self.window(&batch.window) else {
            return self.inferred(id, Err(InferError::failed(UNKNOWN)));
        };
        let half = Arc::clone(self);
        self.worker.infer(Infer {
            variant: batch.variant,
            parts: batch.parts,
            earliest,
            latest,
            expected,
            offline_rows: batch.offline_rows,
            done: Box::new(move |outcome| half.inferred(id, outcome)),
        });
    }

    fn inferred(&self, id: u64, outcome: InferOutcome) {
        let outcome = outcome.map(|result| Outputs {
            parts: result.outputs,
            started_ns: self.peer().clock().nanos(result.timings.started),
            steps: Steps::from(&result.timings),
        });
        self.report(Report::Inferred { id, outcome });
    }

    /// The window on the local clock; `None` while the clocks have not been compared.
    fn window(&self, window: &Window) -> Option<(Instant, Option<Instant>, Duration)> {
        let peer = self.peer();
        peer.is_known().then(|| {
            (
                peer.instant(window.earliest_ns),
                window.latest_ns.map(|latest| peer.instant(latest)),
                Duration::from_nanos(window.expected_ns),
            )
        })
    }

    fn state(&self) -> State {
        State {
            info: self.worker.info(),
            draining: self.worker.is_draining(),
            usage: self.worker.usage(),
        }
    }

    /// Sends a report. If the link is broken, the report is dropped: the caller has been answered.
    fn report(&self, report: Report) {
        let peer = self.peer();
        let stamp = peer.stamp();
        let _ = self.link.send(FromWorker { stamp, report });
    }

    fn peer(&self) -> MutexGuard<'_, Peer> {
        self.peer.lock()
    }
}

/// Why a window cannot be converted.
const UNKNOWN: &str = "the clocks have not been compared: messages must be exchanged first";
