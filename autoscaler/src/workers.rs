//! The workers of an autoscaler, which come and go.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sextant_rpc::WorkerClient;
use sextant_types::WorkerId;
use tokio::sync::Notify;

/// A handle of the set of workers that an autoscaler looks after. Clones share the set.
#[derive(Clone, Default)]
pub struct Workers {
    clients: Arc<Mutex<BTreeMap<WorkerId, WorkerClient>>>,
    changed: Arc<Notify>,
}

impl Workers {
    /// A worker can be reached from now on, through this client.
    pub fn add(&self, worker: WorkerClient) {
        let id = worker.info().worker;
        self.lock().insert(id, worker);
        self.changed.notify_one();
    }

    /// A worker cannot be reached any more. Returns whether it was there.
    pub fn remove(&self, worker: &WorkerId) -> bool {
        self.lock().remove(worker).is_some()
    }

    pub(crate) fn list(&self) -> Vec<WorkerClient> {
        self.lock().values().cloned().collect()
    }

    /// Waits until a worker has come.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<WorkerId, WorkerClient>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
