//! Carries out LOADs and UNLOADs: one task for each worker, in the order in which they were decided.
//!
//! Pages that an UNLOAD gives back are there for the LOAD that follows it, because the worker has
//! answered before the next is sent. A task serves one life of its worker: when that ends, what it
//! had not begun is left undone.
//!
//! An administrator may say anew where the models of an application run while they are loaded. So a worker is sent what it has
//! loaded again where this life of it was not told that yet, whoever had it loaded: a worker that has it there already does
//! nothing.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sextant_rpc::{Load, WorkError, WorkerClient};
use sextant_types::{
    Isolation, Variant, VariantId,
    index::{DeviceIx, IndexVec, VariantIx},
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinSet,
};

use crate::metrics::SendCounters;

/// What a worker is told.
pub(crate) enum LoadOrder {
    Load {
        variant: VariantIx,
        load: Load,
    },
    /// It is loaded already, and runs from now on where its application says.
    Renew {
        load: Load,
    },
    Unload {
        variant: VariantIx,
        id: VariantId,
    },
}

/// What came of it.
#[derive(Clone, Copy)]
pub(crate) enum LoadOutcome {
    Loaded {
        variant: VariantIx,
        took: Duration,
    },
    LoadFailed {
        variant: VariantIx,
    },
    /// It was not started: its window had closed.
    LoadLate {
        variant: VariantIx,
    },
    Unloaded {
        variant: VariantIx,
    },
}

/// What a number stands for.
#[derive(Clone)]
pub(crate) enum VariantEntry {
    Published(Arc<Variant>),
    Retired(VariantId),
}

/// The queues to the workers, and what is known of the variants.
#[derive(Default)]
pub(crate) struct LoadQueues {
    /// By position of the worker.
    queues: Mutex<IndexVec<DeviceIx, Option<Queue>>>,
    tasks: Mutex<JoinSet<()>>,
    /// By variant; of those that were retired the names alone, by which they are unloaded.
    variants: Mutex<HashMap<VariantIx, VariantEntry>>,
    /// By variant: why its last LOAD failed.
    failures: Mutex<HashMap<VariantIx, String>>,
    sent: Arc<SendCounters>,
}

/// The orders of one life of a worker.
struct Queue {
    sender: UnboundedSender<LoadOrder>,
    /// By variant: where the worker was told last to run it.
    told: HashMap<VariantIx, Option<Isolation>>,
}

impl LoadQueues {
    /// Counts what it sends.
    pub(crate) fn counted_in(sent: &Arc<SendCounters>) -> Self {
        Self {
            sent: Arc::clone(sent),
            ..Self::default()
        }
    }

    /// What a number stands for from now on.
    pub(crate) fn know(&self, number: VariantIx, variant: &Arc<Variant>) {
        let variant = VariantEntry::Published(Arc::clone(variant));
        self.variants.lock().insert(number, variant);
        self.failures.lock().remove(&number);
    }

    /// The variant is loaded no more.
    pub(crate) fn retire(&self, number: VariantIx) {
        self.failures.lock().remove(&number);
        if let Some(meant) = self.variants.lock().get_mut(&number) {
            *meant = VariantEntry::Retired(meant.id().clone());
        }
    }

    pub(crate) fn meant(&self, variant: VariantIx) -> Option<VariantEntry> {
        self.variants.lock().get(&variant).cloned()
    }

    /// Why the last LOAD of a variant failed, if it did.
    pub(crate) fn failure(&self, variant: VariantIx) -> Option<String> {
        self.failures.lock().get(&variant).cloned()
    }

    /// Hands an order to a worker's task.
    pub(crate) fn send(&self, at: DeviceIx, step: LoadOrder) {
        match &step {
            LoadOrder::Load { load, .. } => self.sent.load_ordered(&load.variant.application),
            LoadOrder::Unload { .. } => {
                self.sent.unloads.inc();
            }
            LoadOrder::Renew { .. } => {}
        }
        if let Some(queue) = self.queues.lock().known_mut(at) {
            if let LoadOrder::Load { variant, load } = &step {
                queue
                    .told
                    .insert(*variant, load.variant.resources.isolation);
            }
            queue.send(step);
        }
    }

    /// Has what workers have loaded run where its application says, by position of the worker and variant.
    pub(crate) fn renew(&self, loaded: impl IntoIterator<Item = (DeviceIx, VariantIx)>) {
        let variants = self.variants.lock();
        let mut queues = self.queues.lock();
        for (at, number) in loaded {
            let (Some(queue), Some(VariantEntry::Published(variant))) =
                (queues.known_mut(at), variants.get(&number))
            else {
                continue;
            };
            let isolation = variant.resources.isolation;
            if queue.told.insert(number, isolation) == Some(isolation) {
                continue;
            }
            let load = Load {
                // What is not loaded any more stays so.
                latest: Some(Instant::now()),
                ..Load::at_once(Arc::clone(variant))
            };
            queue.send(LoadOrder::Renew { load });
        }
    }

    /// Starts the task of a worker; `done` is called with its outcomes and tells before each order
    /// whether it is still wanted. Must be called within a runtime.
    pub(crate) fn start(self: &Arc<Self>, at: DeviceIx, worker: WorkerClient, done: impl Outcomes) {
        let (sender, orders) = unbounded_channel();
        let loads = Arc::clone(self);
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move { loads.serve(&worker, orders, done).await });
        let told = HashMap::new();
        *self.queues.lock().grown(at) = Some(Queue { sender, told });
    }

    /// Sends nothing more to the worker at a position.
    pub(crate) fn end(&self, at: DeviceIx) {
        if let Some(queue) = self.queues.lock().get_mut(at) {
            *queue = None;
        }
    }

    /// Ends all tasks where they stand.
    pub(crate) fn stop(&self) {
        *self.queues.lock() = IndexVec::default();
        self.tasks.lock().abort_all();
    }

    async fn serve(
        &self,
        worker: &WorkerClient,
        mut orders: UnboundedReceiver<LoadOrder>,
        outcomes: impl Outcomes,
    ) {
        while let Some(step) = orders.recv().await {
            let wanted = outcomes.are_wanted();
            match step {
                LoadOrder::Load { variant, load } if wanted => {
                    outcomes.tell(self.load(worker, variant, load).await);
                }
                LoadOrder::Unload { variant, id } if wanted => {
                    if let Err(error) = worker.unload(&id).await {
                        self.sent.unload_failures.inc();
                        tracing::warn!(variant = %id, %error, "a variant could not be unloaded");
                    }
                    outcomes.tell(LoadOutcome::Unloaded { variant });
                }
                LoadOrder::Renew { load } if wanted => renew(worker, load).await,
                LoadOrder::Load { .. } | LoadOrder::Renew { .. } | LoadOrder::Unload { .. } => {}
            }
        }
    }

    async fn load(&self, worker: &WorkerClient, number: VariantIx, load: Load) -> LoadOutcome {
        let loaded = Arc::clone(&load.variant);
        let id = &loaded.id;
        match worker.load(load).await {
            Ok(timings) => {
                self.failures.lock().remove(&number);
                let us = (timings.fetch_us + timings.load_us).clamp(0.0, 1e15);
                let took = Duration::from_nanos((us * 1e3) as u64);
                LoadOutcome::Loaded {
                    variant: number,
                    took,
                }
            }
            Err(WorkError::TooLate) => {
                tracing::debug!(variant = %id, "a load was not started inside its window");
                LoadOutcome::LoadLate { variant: number }
            }
            Err(error) => {
                self.sent.load_failed(&loaded.application);
                tracing::warn!(variant = %id, %error, "a variant could not be loaded");
                self.failures.lock().insert(number, error.to_string());
                LoadOutcome::LoadFailed { variant: number }
            }
        }
    }
}

/// What becomes of the instance is told by the metadata store's feed.
async fn renew(worker: &WorkerClient, load: Load) {
    let variant = Arc::clone(&load.variant);
    match worker.load(load).await {
        Ok(_) | Err(WorkError::TooLate) => {}
        Err(error) => {
            let id = &variant.id;
            tracing::warn!(variant = %id, %error, "a loaded variant could not change its process");
        }
    }
}

// === impl Queue ===

impl Queue {
    /// If the worker is gone, the controller has been told or will be: nobody waits for the outcome.
    fn send(&self, step: LoadOrder) {
        self.sender.send(step).ok();
    }
}

/// Who hears of the outcomes of one worker's orders.
pub(crate) trait Outcomes: Send + Sync + 'static {
    /// Whether the worker still lives the life for which the orders were decided.
    fn are_wanted(&self) -> bool;

    /// A move was carried out.
    fn tell(&self, moved: LoadOutcome);
}

// === impl VariantEntry ===

impl VariantEntry {
    pub(crate) fn id(&self) -> &VariantId {
        match self {
            Self::Published(variant) => &variant.id,
            Self::Retired(id) => id,
        }
    }
}
