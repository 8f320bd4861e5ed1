//! The workers that the front end can ask for statistics. In a fleet they come and go.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::RwLock;
use sextant_rpc::WorkerClient;
use sextant_types::WorkerId;

/// A worker that can be asked.
#[derive(Clone)]
pub struct WorkerPart {
    /// What it runs batches on: `cpu`, `cuda:0`, `emulated:3` or the name of a runtime.
    pub device: String,
    /// The client that asks it.
    pub client: WorkerClient,
}

/// A changing set of workers; clones share it.
#[derive(Clone, Default)]
pub struct Workers(Arc<RwLock<Known>>);

#[derive(Default)]
struct Known {
    parts: BTreeMap<WorkerId, WorkerPart>,
    /// Workers that have connected and whose device is not known yet, with the numbers of their arrivals.
    arriving: BTreeMap<WorkerId, u64>,
    /// Number of arrivals so far.
    came: u64,
}

/// A worker that has connected, until its device is known.
pub struct Arrival {
    workers: Workers,
    client: WorkerClient,
    number: u64,
}

// === impl Workers ===

impl Workers {
    /// Adds a worker; it replaces one with the same name.
    pub fn add(&self, part: WorkerPart) {
        let name = part.client.info().worker;
        let mut known = self.0.write();
        known.arriving.remove(&name);
        known.parts.insert(name, part);
    }

    /// Notes that a worker has connected, which is added once its device is known. A worker with the same name stays
    /// until then.
    pub fn arriving(&self, client: WorkerClient) -> Arrival {
        let name = client.info().worker;
        let mut known = self.0.write();
        known.came += 1;
        let number = known.came;
        known.arriving.insert(name, number);
        drop(known);
        Arrival {
            workers: self.clone(),
            client,
            number,
        }
    }

    /// Forgets a worker, also one whose device is not known yet. Returns whether it had been added.
    pub fn remove(&self, worker: &WorkerId) -> bool {
        let mut known = self.0.write();
        known.arriving.remove(worker);
        known.parts.remove(worker).is_some()
    }

    /// The worker of that name.
    pub fn get(&self, worker: &WorkerId) -> Option<WorkerPart> {
        let known = self.0.read();
        known.parts.get(worker).cloned()
    }
}

// === impl Arrival ===

impl Arrival {
    /// Adds the worker, unless it has gone meanwhile or has connected again. Returns whether it was added.
    pub fn enter(self, device: String) -> bool {
        let Self {
            workers,
            client,
            number,
        } = self;
        let name = client.info().worker;
        let mut known = workers.0.write();
        if known.arriving.get(&name) != Some(&number) {
            return false;
        }
        known.arriving.remove(&name);
        known.parts.insert(name, WorkerPart { device, client });
        true
    }
}

impl FromIterator<WorkerPart> for Workers {
    fn from_iter<T: IntoIterator<Item = WorkerPart>>(parts: T) -> Self {
        let workers = Self::default();
        parts.into_iter().for_each(|part| workers.add(part));
        workers
    }
}
