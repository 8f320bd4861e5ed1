//! Carries out LOADs and UNLOADs: one task for each worker, in the order in which they were decided.
//!
//! Pages that an UNLOAD gives back are there for the LOAD that follows it, because the worker has
//! answered before the next is sent. A task serves one life of its worker: when that ends, what it
//! had not begun is left undone.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use sextant_rpc::{Load, WorkerClient};
use sextant_types::{
    Variant, VariantId,
    index::{DeviceIx, IndexVec, VariantIx},
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinSet,
};

use crate::metrics::Sent;

/// What a worker is told.
pub(crate) enum LoadOrder {
    Load { variant: VariantIx, load: Load },
    Unload { variant: VariantIx, id: VariantId },
}

/// What came of it.
#[derive(Clone, Copy)]
pub(crate) enum LoadOutcome {
    Loaded { variant: VariantIx, took: Duration },
    LoadFailed { variant: VariantIx },
    Unloaded { variant: VariantIx },
}

/// What a number stands for.
#[derive(Clone)]
pub(crate) enum Meant {
    Published(Arc<Variant>),
    Retired(VariantId),
}

/// The queues to the workers, and what is known of the variants.
#[derive(Default)]
pub(crate) struct LoadQueues {
    /// By position of the worker.
    senders: Mutex<IndexVec<DeviceIx, Option<UnboundedSender<LoadOrder>>>>,
    tasks: Mutex<JoinSet<()>>,
    /// By variant; of those that were retired the names alone, by which they are unloaded.
    variants: Mutex<HashMap<VariantIx, Meant>>,
    /// By variant: why its last LOAD failed.
    failures: Mutex<HashMap<VariantIx, String>>,
    sent: Arc<Sent>,
}

impl LoadQueues {
    /// Counts what it sends.
    pub(crate) fn counted_in(sent: &Arc<Sent>) -> Self {
        Self {
            sent: Arc::clone(sent),
            ..Self::default()
        }
    }

    /// What a number stands for from now on.
    pub(crate) fn know(&self, number: VariantIx, variant: &Arc<Variant>) {
        let variant = Meant::Published(Arc::clone(variant));
        self.variants.lock().insert(number, variant);
        self.failures.lock().remove(&number);
    }

    /// The variant is loaded no more.
    pub(crate) fn retire(&self, number: VariantIx) {
        self.failures.lock().remove(&number);
        if let Some(meant) = self.variants.lock().get_mut(&number) {
            *meant = Meant::Retired(meant.id().clone());
        }
    }

    pub(crate) fn meant(&self, variant: VariantIx) -> Option<Meant> {
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
        }
        if let Some(sender) = self.senders.lock().known(at) {
            // If the worker is gone, the controller has been told or will be: nobody waits for the
            // outcome.
            sender.send(step).ok();
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
        *self.senders.lock().grown(at) = Some(sender);
    }

    /// Sends nothing more to the worker at a position.
    pub(crate) fn end(&self, at: DeviceIx) {
        if let Some(sender) = self.senders.lock().get_mut(at) {
            *sender = None;
        }
    }

    /// Ends all tasks where they stand.
    pub(crate) fn stop(&self) {
        *self.senders.lock() = IndexVec::default();
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
                LoadOrder::Load { .. } | LoadOrder::Unload { .. } => {}
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
            Err(error) => {
                self.sent.load_failed(&loaded.application);
                tracing::warn!(variant = %id, %error, "a variant could not be loaded");
                self.failures.lock().insert(number, error.to_string());
                LoadOutcome::LoadFailed { variant: number }
            }
        }
    }
}

/// Who hears of the outcomes of one worker's orders.
pub(crate) trait Outcomes: Send + Sync + 'static {
    /// Whether the worker still lives the life for which the orders were decided.
    fn are_wanted(&self) -> bool;

    /// A move was carried out.
    fn tell(&self, moved: LoadOutcome);
}

// === impl Meant ===

impl Meant {
    pub(crate) fn id(&self) -> &VariantId {
        match self {
            Self::Published(variant) => &variant.id,
            Self::Retired(id) => id,
        }
    }
}
