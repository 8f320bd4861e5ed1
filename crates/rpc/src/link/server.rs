//! The half of a link where batches run.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use sextant_types::InvalidTensor;

use super::{
    Broken, Clock, Link,
    clock::Peer,
    wire::{
        self, Batch, FromWorker, Outputs, Report, Request, State, ToWorker, Window, WireError,
        WireTimings,
    },
};
use crate::{BatchTimings, Infer, InferError, InferOutcome, Load, Part, WorkError, WorkerClient};

type ServerLink = Arc<dyn Link<FromWorker, ToWorker>>;

/// What reports need.
struct Half {
    link: ServerLink,
    peer: Mutex<Peer>,
    worker: WorkerClient,
}

/// Hands what arrives on `link` to `worker` and its answers back, until `shutdown`. What the worker
/// has begun is not stopped by the end of a link.
///
/// # Errors
/// When the link breaks.
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
            message = half.link.receive() => half.take_in(message?),
        }
    }
}

impl Half {
    fn take_in(self: &Arc<Self>, message: ToWorker) {
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

    /// Requests that take their time.
    async fn answer(&self, request: Request) {
        let report = match request {
            Request::Load {
                id,
                variant,
                window,
            } => {
                let outcome = match self.window(&window) {
                    Some((earliest, latest, expected)) => {
                        let load = Load {
                            variant: Arc::new(*variant),
                            earliest,
                            latest,
                            expected,
                        };
                        self.worker.load(load).await
                    }
                    None => Err(WorkError::Failed {
                        variant: variant.id,
                        reason: UNKNOWN.to_owned(),
                    }),
                };
                Report::Loaded {
                    id,
                    outcome: outcome
                        .map(wire::WireLoadTimings::from)
                        .map_err(|error| WireError::from(&error)),
                }
            }
            Request::Unload { id, variant } => {
                let outcome = self.worker.unload(&variant).await;
                Report::Unloaded {
                    id,
                    outcome: outcome.map_err(|error| WireError::from(&error)),
                }
            }
            Request::Repin { id } => {
                let outcome = self.worker.repin().await;
                Report::Repinned {
                    id,
                    outcome: outcome.map_err(|error| WireError::from(&error)),
                }
            }
            Request::Leave { id } => {
                let outcome = self.worker.leave().await;
                Report::Leaves {
                    id,
                    outcome: outcome.map_err(|error| WireError::from(&error)),
                }
            }
            Request::Unknown { id, order } => Report::Unknown { id, order },
            Request::Stats { id } => {
                let outcome = self.worker.stats().await;
                Report::Stats {
                    id,
                    outcome: outcome
                        .map(wire::to_wire)
                        .map_err(|error| WireError::from(&error)),
                }
            }
            Request::Beat | Request::Look | Request::Infer { .. } => return,
        };
        self.report(report);
    }

    fn infer(self: &Arc<Self>, id: u64, batch: Batch) {
        let Some((earliest, latest, expected)) = self.window(&batch.window) else {
            return self.inferred(id, Err(InferError::Failed(UNKNOWN.to_owned())));
        };
        let parts = match parts(batch.parts) {
            Ok(parts) => parts,
            Err(error) => return self.inferred(id, Err(InferError::BadShape(error.to_string()))),
        };
        let half = Arc::clone(self);
        self.worker.infer(Infer {
            variant: batch.variant,
            parts,
            earliest,
            latest,
            expected,
            offline_rows: batch.offline_rows,
            done: Box::new(move |outcome| half.inferred(id, outcome)),
        });
    }

    fn inferred(&self, id: u64, outcome: InferOutcome) {
        let outcome = match outcome {
            Ok(result) => Ok(Outputs {
                parts: result
                    .outputs
                    .into_iter()
                    .map(|part| part.map(|tensors| tensors.iter().map(Into::into).collect()))
                    .collect(),
                timings: self.timings(&result.timings),
            }),
            Err(error) => Err(WireError::from(&error)),
        };
        self.report(Report::Inferred { id, outcome });
    }

    /// The window on the clock here; none while the clocks have not been compared.
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

    fn timings(&self, timings: &BatchTimings) -> WireTimings {
        WireTimings {
            started_ns: self.peer().clock().nanos(timings.started),
            queue_us: timings.queue_us,
            input_us: timings.input_us,
            exec_us: timings.exec_us,
            output_us: timings.output_us,
            device_us: timings.device_us,
        }
    }

    fn state(&self) -> State {
        let (info, usage) = (self.worker.info(), self.worker.usage());
        State {
            worker: info.worker,
            cores: info.cores,
            engines: info.engines,
            page_bytes: info.pages.page_bytes,
            pages: info.pages.total,
            free_pages: info.pages.free,
            utilization: info.utilization,
            draining: self.worker.is_draining(),
            can_leave: true,
            usage: usage
                .into_iter()
                .map(|it| (it.variant, it.idle_ms))
                .collect(),
        }
    }

    /// A report that a broken link does not take reaches nobody: the caller has been answered.
    fn report(&self, report: Report) {
        let peer = self.peer();
        let stamp = peer.stamp();
        let _ = self.link.send(FromWorker { stamp, report });
    }

    fn peer(&self) -> MutexGuard<'_, Peer> {
        self.peer.lock()
    }
}

/// Why a window cannot be kept.
const UNKNOWN: &str = "the clocks have not been compared: messages must be exchanged first";

fn parts(parts: Vec<wire::WirePart>) -> Result<Vec<Part>, InvalidTensor> {
    parts.into_iter().map(Part::try_from).collect()
}
