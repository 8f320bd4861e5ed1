//! Carries out LOADs and UNLOADs: one task for each worker, in the order in which they were decided.
//!
//! Pages that an UNLOAD gives back are there for the LOAD that follows it, because the worker has
//! answered before the next is sent.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sextant_rpc::{Load, WorkerClient};
use sextant_types::{Variant, VariantId};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinSet,
};

/// What a worker is told.
pub(crate) enum Move {
    Load { model: u32, load: Load },
    Unload { model: u32, variant: VariantId },
}

/// What came of it.
#[derive(Clone, Copy)]
pub(crate) enum Moved {
    Loaded { model: u32 },
    LoadFailed { model: u32 },
    Unloaded { model: u32 },
}

/// The queues to the workers, and what is known of the variants.
pub(crate) struct Movers {
    senders: Vec<UnboundedSender<Move>>,
    receivers: Mutex<Vec<UnboundedReceiver<Move>>>,
    /// By model.
    variants: Mutex<HashMap<u32, Arc<Variant>>>,
    /// By model: why its last LOAD failed.
    failures: Mutex<HashMap<u32, String>>,
    /// Models that are loaded though no query waits for them.
    warming: Mutex<HashSet<u32>>,
}

impl Movers {
    pub(crate) fn new(workers: usize) -> Self {
        let (senders, receivers) = (0..workers).map(|_| unbounded_channel()).unzip();
        Self {
            senders,
            receivers: Mutex::new(receivers),
            variants: Mutex::default(),
            failures: Mutex::default(),
            warming: Mutex::default(),
        }
    }

    /// What a number stands for from now on.
    pub(crate) fn know(&self, model: u32, variant: &Arc<Variant>) {
        lock(&self.variants).insert(model, Arc::clone(variant));
        lock(&self.failures).remove(&model);
    }

    pub(crate) fn variant(&self, model: u32) -> Option<Arc<Variant>> {
        lock(&self.variants).get(&model).cloned()
    }

    /// Why the last LOAD of a variant failed, if it did.
    pub(crate) fn failure(&self, model: u32) -> Option<String> {
        lock(&self.failures).get(&model).cloned()
    }

    /// The variant, unless it is being warmed already.
    pub(crate) fn begin_warming(&self, model: u32) -> Option<Arc<Variant>> {
        let variant = self.variant(model)?;
        lock(&self.warming).insert(model).then_some(variant)
    }

    pub(crate) fn end_warming(&self, model: u32) {
        lock(&self.warming).remove(&model);
    }

    /// Hands a move to a worker's task.
    pub(crate) fn send(&self, worker: usize, step: Move) {
        if let Some(sender) = self.senders.get(worker) {
            // Without its task the service has ended, and nobody waits for the outcome.
            drop(sender.send(step));
        }
    }

    /// The tasks; `done` is called with each worker's outcomes.
    pub(crate) fn run(
        self: &Arc<Self>,
        workers: &[WorkerClient],
        done: impl Fn(usize, Moved) + Clone + Send + Sync + 'static,
    ) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let receivers = std::mem::take(&mut *lock(&self.receivers));
        for (at, (worker, moves)) in workers.iter().zip(receivers).enumerate() {
            let (movers, worker, done) = (Arc::clone(self), Arc::clone(worker), done.clone());
            tasks.spawn(async move {
                movers.serve(&worker, moves, |moved| done(at, moved)).await;
            });
        }
        tasks
    }

    async fn serve(
        &self,
        worker: &WorkerClient,
        mut moves: UnboundedReceiver<Move>,
        done: impl Fn(Moved) + Send,
    ) {
        while let Some(step) = moves.recv().await {
            done(match step {
                Move::Load { model, load } => self.load(worker, model, load).await,
                Move::Unload { model, variant } => {
                    if let Err(error) = worker.unload(&variant).await {
                        tracing::warn!(%variant, %error, "a variant could not be unloaded");
                    }
                    Moved::Unloaded { model }
                }
            });
        }
    }

    async fn load(&self, worker: &WorkerClient, model: u32, load: Load) -> Moved {
        let variant = load.variant.id.clone();
        let loaded = worker.load(load).await;
        self.end_warming(model);
        match loaded {
            Ok(_) => {
                lock(&self.failures).remove(&model);
                Moved::Loaded { model }
            }
            Err(error) => {
                tracing::warn!(%variant, %error, "a variant could not be loaded");
                lock(&self.failures).insert(model, error.to_string());
                Moved::LoadFailed { model }
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
