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
pub struct Workers(Arc<RwLock<Known>>);

#[derive(Default)]
struct Known {
    parts: BTreeMap<WorkerId, WorkerPart>,
    /// Those that have come and of which it is not known yet what they run on, with the numbers of their arrivals.
    arriving: BTreeMap<WorkerId, u64>,
    /// How many have come so.
    came: u64,
}

/// A worker that has come, until it is known what it runs on.
pub struct Arrival {
    workers: Workers,
    client: WorkerClient,
    number: u64,
}

// === impl Workers ===

impl Workers {
    /// Adds a worker, in place of one of the same name.
    pub fn add(&self, part: WorkerPart) {
        let name = part.client.info().worker;
        let mut known = self.0.write();
        known.arriving.remove(&name);
        known.parts.insert(name, part);
    }

    /// A worker has come that can be added once it is known what it runs on. One of the same name stays until then.
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

    /// Forgets a worker, one that is arriving, too. Returns whether it was there.
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
    /// Adds the worker, unless it has gone since or has come again. Returns whether it did.
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
