//! One query's way: choose a variant, queue, batch, send, answer.
//!
//! Entry points: [`Dispatcher::start`], which returns the handle (a [`sextant_rpc::Dispatch`]) and
//! the [`Service`] that keeps the index current; [`jobs::JobService`] for offline jobs.
//!
//! **Invariant:** knows no HTTP and no SQL. On the way of a query lie an in-memory snapshot, one
//! short lock of a device's scheduler, and nothing that waits for a store. Which variant and which
//! batch is decided in `sextant-policies`; this crate only asks and carries out.

mod device;
mod explain;
mod index;
mod loads;
mod query;
mod refusal;
mod service;

pub mod jobs;

use std::sync::Arc;

use arc_swap::ArcSwap;
use sextant_metadata::MetadataStore;
use sextant_rpc::WorkerClient;
use tokio::sync::watch;

pub use crate::service::Service;
use crate::{
    device::{Clock, Device, OnlineMeter},
    index::Snapshot,
    loads::Loads,
};

/// Limits of a dispatcher.
#[derive(Debug, Clone)]
pub struct Config {
    /// Most rows that may wait for one variant on one worker.
    pub max_waiting_rows: u32,
    /// Longest wait for a load on behalf of a query without a latency target, ms.
    pub max_load_wait_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_waiting_rows: 4096,
            max_load_wait_ms: 30_000,
        }
    }
}

/// The dispatcher's handle.
pub struct Dispatcher {
    config: Config,
    clock: Clock,
    snapshot: ArcSwap<Snapshot>,
    /// Counts snapshots, so that a query can wait for the next.
    revision: watch::Sender<u64>,
    devices: Arc<Vec<Arc<Device>>>,
    loads: Arc<Loads>,
    online: Arc<OnlineMeter>,
}

impl Dispatcher {
    /// A dispatcher over `workers`. The returned [`Service`] must be run: it follows the metadata
    /// store's feed, without which the dispatcher knows no variant.
    pub fn start(
        config: Config,
        workers: Vec<WorkerClient>,
        metadata: Arc<dyn MetadataStore>,
    ) -> (Arc<Self>, Service) {
        let clock = Clock::start();
        let online = Arc::new(OnlineMeter::new(&workers));
        let devices: Vec<Arc<Device>> = workers
            .into_iter()
            .map(|worker| Device::new(worker, clock, Arc::clone(&online)))
            .collect();
        let dispatcher = Arc::new(Self {
            config,
            clock,
            snapshot: ArcSwap::from_pointee(Snapshot::default()),
            revision: watch::Sender::new(0),
            devices: Arc::new(devices),
            loads: Arc::default(),
            online,
        });
        let service = Service::new(Arc::clone(&dispatcher), metadata);
        (dispatcher, service)
    }
}
