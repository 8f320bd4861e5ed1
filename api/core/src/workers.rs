//! The workers that can be asked what they did. In a fleet they come and go.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::RwLock;
use sextant_rpc::WorkerClient;
use sextant_types::WorkerId;

/// A worker that can be asked.
#[derive(Clone)]
pub struct WorkerPart {
    /// What it runs batches on: `cpu`, `cuda:0`, `emulated:3` or the name of a runtime.
    pub device: String,
    /// How it is asked.
    pub client: WorkerClient,
}

/// A changing set of workers; clones share it.
#[derive(Clone, Default)]
pub struct Workers(Arc<RwLock<BTreeMap<WorkerId, WorkerPart>>>);

// === impl Workers ===

impl Workers {
    /// Adds a worker, in place of one of the same name.
    pub fn add(&self, part: WorkerPart) {
        let name = part.client.info().worker;
        let mut parts = self.0.write();
        parts.insert(name, part);
    }

    /// Forgets a worker. Returns whether it was there.
    pub fn remove(&self, worker: &WorkerId) -> bool {
        let mut parts = self.0.write();
        parts.remove(worker).is_some()
    }

    /// The worker of that name.
    pub fn get(&self, worker: &WorkerId) -> Option<WorkerPart> {
        let parts = self.0.read();
        parts.get(worker).cloned()
    }
}

impl FromIterator<WorkerPart> for Workers {
    fn from_iter<T: IntoIterator<Item = WorkerPart>>(parts: T) -> Self {
        let workers = Self::default();
        parts.into_iter().for_each(|part| workers.add(part));
        workers
    }
}
