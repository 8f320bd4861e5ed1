//! Carries out LOADs and UNLOADs: one task for each worker, in the order in which they were decided.
//!
//! Pages that an UNLOAD gives back are there for the LOAD that follows it, because the worker has
//! answered before the next is sent. A task serves one life of its worker: when that ends, what it
//! had not begun is left undone.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sextant_rpc::{Load, WorkerClient};
use sextant_types::{Variant, VariantId};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinSet,
};

use crate::metrics::Sent;

/// What a worker is told.
pub(crate) enum Move {
    Load { model: u32, load: Load },
    Unload { model: u32, variant: VariantId },
}

/// What came of it.
#[derive(Clone, Copy)]
pub(crate) enum Moved {
    Loaded { model: u32, took: Duration },
    LoadFailed { model: u32 },
    Unloaded { model: u32 },
}

/// The queues to the workers, and what is known of the variants.
#[derive(Default)]
pub(crate) struct Movers {
    /// By position of the worker.
    senders: Mutex<Vec<Option<UnboundedSender<Move>>>>,
    tasks: Mutex<JoinSet<()>>,
    /// By model.
    variants: Mutex<HashMap<u32, Arc<Variant>>>,
    /// By model: why its last LOAD failed.
    failures: Mutex<HashMap<u32, String>>,
    sent: Arc<Sent>,
}

impl Movers {
    /// Counts what it sends.
    pub(crate) fn counted_in(sent: &Arc<Sent>) -> Self {
        Self {
            sent: Arc::clone(sent),
            ..Self::default()
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

    /// Hands a move to a worker's task.
    pub(crate) fn send(&self, at: usize, step: Move) {
        match step {
            Move::Load { .. } => self.sent.loads.inc(),
            Move::Unload { .. } => self.sent.unloads.inc(),
        };
        if let Some(Some(sender)) = lock(&self.senders).get(at) {
            // If the worker is gone, the controller has been told or will be: nobody waits for the
            // outcome.
            sender.send(step).ok();
        }
    }

    /// Starts the task of a worker; `done` is called with its outcomes and tells before each move
    /// whether it is still wanted. Must be called within a runtime.
    pub(crate) fn start(self: &Arc<Self>, at: usize, worker: WorkerClient, done: impl Outcomes) {
        let (sender, moves) = unbounded_channel();
        let movers = Arc::clone(self);
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move { movers.serve(&worker, moves, done).await });
        let mut senders = lock(&self.senders);
        if senders.len() <= at {
            senders.resize_with(at + 1, || None);
        }
        senders[at] = Some(sender);
    }

    /// Sends nothing more to the worker at a position.
    pub(crate) fn end(&self, at: usize) {
        if let Some(sender) = lock(&self.senders).get_mut(at) {
            *sender = None;
        }
    }

    /// Ends all tasks where they stand.
    pub(crate) fn stop(&self) {
        lock(&self.senders).clear();
        lock(&self.tasks).abort_all();
    }

    async fn serve(
        &self,
        worker: &WorkerClient,
        mut moves: UnboundedReceiver<Move>,
        outcomes: impl Outcomes,
    ) {
        while let Some(step) = moves.recv().await {
            let wanted = outcomes.are_wanted();
            match step {
                Move::Load { model, load } if wanted => {
                    outcomes.tell(self.load(worker, model, load).await);
                }
                Move::Unload { model, variant } if wanted => {
                    if let Err(error) = worker.unload(&variant).await {
                        self.sent.unload_failures.inc();
                        tracing::warn!(%variant, %error, "a variant could not be unloaded");
                    }
                    outcomes.tell(Moved::Unloaded { model });
                }
                Move::Load { .. } | Move::Unload { .. } => {}
            }
        }
    }

    async fn load(&self, worker: &WorkerClient, model: u32, load: Load) -> Moved {
        let variant = load.variant.id.clone();
        match worker.load(load).await {
            Ok(timings) => {
                lock(&self.failures).remove(&model);
                let us = (timings.fetch_us + timings.load_us).clamp(0.0, 1e15);
                let took = Duration::from_nanos((us * 1e3) as u64);
                Moved::Loaded { model, took }
            }
            Err(error) => {
                self.sent.load_failures.inc();
                tracing::warn!(%variant, %error, "a variant could not be loaded");
                lock(&self.failures).insert(model, error.to_string());
                Moved::LoadFailed { model }
            }
        }
    }
}

/// Who hears of the outcomes of one worker's moves.
pub(crate) trait Outcomes: Send + Sync + 'static {
    /// Whether the worker still lives the life for which the moves were decided.
    fn are_wanted(&self) -> bool;

    /// A move was carried out.
    fn tell(&self, moved: Moved);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
