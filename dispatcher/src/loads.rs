//! Loads on behalf of queries: each variant at most once at a time.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sextant_rpc::{Load, WorkError, WorkerClient};
use sextant_types::{Variant, VariantId};
use tokio::sync::watch;

/// Loads under way and the reasons of those that failed.
pub(crate) struct Loads {
    state: Mutex<State>,
    ended: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    under_way: HashSet<VariantId>,
    failed: HashMap<VariantId, String>,
}

impl Default for Loads {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            ended: watch::Sender::new(0),
        }
    }
}

impl Loads {
    /// Starts a load unless one is under way. Workers are tried in the order given.
    pub(crate) fn start(self: &Arc<Self>, variant: &Arc<Variant>, workers: Vec<WorkerClient>) {
        {
            let mut state = self.lock();
            if !state.under_way.insert(variant.id.clone()) {
                return;
            }
            state.failed.remove(&variant.id);
        }
        let (loads, variant) = (Arc::clone(self), Arc::clone(variant));
        tokio::spawn(async move {
            let result = load_on_any(&variant, workers).await;
            loads.end(&variant.id, result);
        });
    }

    /// Why the last load of `variant` failed, if it did.
    pub(crate) fn failure(&self, variant: &VariantId) -> Option<String> {
        self.lock().failed.get(variant).cloned()
    }

    /// Changes whenever a load ends.
    pub(crate) fn ended(&self) -> watch::Receiver<u64> {
        self.ended.subscribe()
    }

    fn end(&self, variant: &VariantId, result: Result<(), WorkError>) {
        {
            let mut state = self.lock();
            state.under_way.remove(variant);
            if let Err(error) = result {
                tracing::warn!(%variant, %error, "a variant could not be loaded");
                state.failed.insert(variant.clone(), error.to_string());
            }
        }
        self.ended.send_modify(|count| *count += 1);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn load_on_any(variant: &Arc<Variant>, workers: Vec<WorkerClient>) -> Result<(), WorkError> {
    let mut result = Err(WorkError::Rejected(format!(
        "no worker has the engine `{}`",
        variant.spec.engine
    )));
    for worker in workers {
        result = worker
            .load(Load::at_once(Arc::clone(variant)))
            .await
            .map(drop);
        if result.is_ok() {
            break;
        }
    }
    result
}
