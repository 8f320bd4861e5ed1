//! Carries out LOADs and UNLOADs. Each worker has one task, which sends them in the order in which they were decided.
//!
//! The pages that an UNLOAD frees are available to the LOAD that follows it, because the task waits for the worker's
//! answer before it sends the next order. A task serves one life of its worker. When that life ends, the orders that
//! the task has not begun are dropped.
//!
//! While models are loaded, an administrator may change where those of an application run. A task therefore sends a
//! worker a LOAD of each variant that it has loaded, unless this life of the worker was already told where to run it. A
//! worker that already runs the variant there does nothing.

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

/// An order to a worker.
pub(crate) enum LoadOrder {
    Load {
        variant: VariantIx,
        load: Load,
    },
    /// The variant is loaded already. From now on it runs where its application says.
    Renew {
        load: Load,
    },
    Unload {
        variant: VariantIx,
        id: VariantId,
    },
}

/// The outcome of an order.
#[derive(Clone, Copy)]
pub(crate) enum LoadOutcome {
    Loaded {
        variant: VariantIx,
        took: Duration,
    },
    LoadFailed {
        variant: VariantIx,
    },
    /// The load was not started, because its window had closed.
    LoadLate {
        variant: VariantIx,
    },
    Unloaded {
        variant: VariantIx,
        /// How long the order took, during which no other is sent to the worker; `None` if it failed.
        took: Option<Duration>,
    },
}

/// The variant that a number stands for.
#[derive(Clone)]
pub(crate) enum VariantEntry {
    Published(Arc<Variant>),
    Retired(VariantId),
}

/// The queues of orders to the workers, and the variants by number.
#[derive(Default)]
pub(crate) struct LoadQueues {
    /// By position of the worker.
    queues: Mutex<IndexVec<DeviceIx, Option<Queue>>>,
    tasks: Mutex<JoinSet<()>>,
    /// By variant. A retired variant has only its id, by which it is unloaded.
    variants: Mutex<HashMap<VariantIx, VariantEntry>>,
    /// By variant: the reason for which its last LOAD failed.
    failures: Mutex<HashMap<VariantIx, String>>,
    sent: Arc<SendCounters>,
}

/// The queue of orders for one life of a worker.
struct Queue {
    sender: UnboundedSender<LoadOrder>,
    /// By variant: where the worker was last told to run it.
    told: HashMap<VariantIx, Option<Isolation>>,
}

impl LoadQueues {
    /// Makes queues that count in `sent` what they send.
    pub(crate) fn counted_in(sent: &Arc<SendCounters>) -> Self {
        Self {
            sent: Arc::clone(sent),
            ..Self::default()
        }
    }

    /// Sets the variant that a number stands for from now on.
    pub(crate) fn know(&self, number: VariantIx, variant: &Arc<Variant>) {
        let variant = VariantEntry::Published(Arc::clone(variant));
        self.variants.lock().insert(number, variant);
        self.failures.lock().remove(&number);
    }

    /// The variant is not loaded any longer.
    pub(crate) fn retire(&self, number: VariantIx) {
        self.failures.lock().remove(&number);
        if let Some(meant) = self.variants.lock().get_mut(&number) {
            *meant = VariantEntry::Retired(meant.id().clone());
        }
    }

    /// These retired variants are loaded nowhere and will never be ordered again, unless they are published again.
    pub(crate) fn forget(&self, retired: &[VariantIx]) {
        for variant in retired {
            self.variants.lock().remove(variant);
            self.failures.lock().remove(variant);
            for queue in self.queues.lock().iter_mut().flatten() {
                queue.told.remove(variant);
            }
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

    /// Has workers run what they have loaded where its application says. `loaded` has the position of the worker and
    /// the variant.
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
                // The window has closed, so a variant that is no longer loaded is not loaded again.
                latest: Some(Instant::now()),
                ..Load::at_once(Arc::clone(variant))
            };
            queue.send(LoadOrder::Renew { load });
        }
    }

    /// Starts the task of a worker. `done` receives the outcomes, and says before each order whether it is still
    /// wanted. Must be called within a runtime.
    pub(crate) fn start(self: &Arc<Self>, at: DeviceIx, worker: WorkerClient, done: impl Outcomes) {
        let (sender, orders) = unbounded_channel();
        let loads = Arc::clone(self);
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move { loads.serve(&worker, orders, done).await });
        let told = HashMap::new();
        *self.queues.lock().grown(at) = Some(Queue { sender, told });
    }

    /// Sends nothing more to the worker at position `at`.
    pub(crate) fn end(&self, at: DeviceIx) {
        if let Some(queue) = self.queues.lock().get_mut(at) {
            *queue = None;
        }
    }

    /// Ends all tasks at once.
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
                    outcomes.tell(self.unload(worker, variant, &id).await);
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

    async fn unload(
        &self,
        worker: &WorkerClient,
        number: VariantIx,
        id: &VariantId,
    ) -> LoadOutcome {
        let sent = Instant::now();
        let took = match worker.unload(id).await {
            Ok(()) => Some(sent.elapsed()),
            Err(error) => {
                self.sent.unload_failures.inc();
                tracing::warn!(variant = %id, %error, "a variant could not be unloaded");
                None
            }
        };
        LoadOutcome::Unloaded {
            variant: number,
            took,
        }
    }
}

/// The metadata store's feed reports what becomes of the instance.
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
    /// If the worker is gone, the controller has been told or will be told, so nobody waits for the outcome.
    fn send(&self, step: LoadOrder) {
        self.sender.send(step).ok();
    }
}

/// Receives the outcomes of one worker's orders.
pub(crate) trait Outcomes: Send + Sync + 'static {
    /// Whether the worker is still in the life for which the orders were decided.
    fn are_wanted(&self) -> bool;

    /// An order was carried out.
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
