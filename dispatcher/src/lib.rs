//! One query's way: choose a variant, queue, batch, send, answer.
//!
//! Entry points: [`Dispatcher::start`], which returns the handle (a [`sextant_rpc::Dispatch`]) and
//! the [`Service`] that keeps the index current; [`jobs::JobService`] for offline jobs.
//!
//! **Invariant:** knows no HTTP and no SQL. On the way of a query lie an in-memory snapshot, one
//! short lock of the scheduler, and nothing that waits for a store. Which variant and which batch is
//! decided in `sextant-policies`; this crate only asks and carries out.

mod clock;
mod core;
mod driver;
mod explain;
mod families;
mod gauges;
mod index;
mod meter;
mod mover;
mod pending;
mod query;
mod refusal;
mod service;

pub mod jobs;

use std::{collections::BTreeMap, sync::Arc};

use arc_swap::ArcSwap;
use sextant_metadata::MetadataStore;
use sextant_policies::{parallelism, placement, profile::Estimation, schedule::Options};
use sextant_rpc::WorkerClient;
use sextant_types::ApplicationId;
use tokio::sync::watch;

pub use crate::service::Service;
use crate::{clock::Clock, driver::Driver, index::Snapshot, meter::OnlineMeter};

/// Limits of a dispatcher, and how it schedules.
#[derive(Debug, Clone)]
pub struct Config {
    /// Most rows that may wait for one variant.
    pub max_waiting_rows: u32,
    /// Longest wait for a load on behalf of a query without a latency target, ms.
    pub max_load_wait_ms: u64,
    /// The scheduling policy and its parameters.
    pub schedule: Options,
    /// What is loaded where on behalf of queries.
    pub placement: placement::Options,
    /// What chooses how many queries of a model run side by side and on how many threads each, for
    /// models whose queries do not share batches; `None` leaves the threads to the selection.
    pub parallelism: Option<parallelism::Policy>,
    /// How run times are estimated.
    pub estimation: Estimation,
    /// What sets an application apart from others; one that is not listed has the defaults.
    pub tenants: BTreeMap<ApplicationId, Tenant>,
}

/// How the queries of an application stand to those of others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tenant {
    /// Higher goes first, whatever the deadlines.
    pub priority: u8,
    /// Share of what is served when not everything can be; 1 is normal.
    pub weight: f32,
}

impl Default for Tenant {
    fn default() -> Self {
        Self {
            priority: 100,
            weight: 1.0,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_waiting_rows: 4096,
            max_load_wait_ms: 30_000,
            // People wait for the answers: idle devices are there to be used.
            schedule: Options {
                hold: 0.0,
                ..Options::default()
            },
            placement: placement::Options::default(),
            parallelism: None,
            estimation: Estimation::default(),
            tenants: BTreeMap::new(),
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
    driver: Arc<Driver>,
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
        let driver = Driver::new(&config, workers, clock, Arc::clone(&online));
        let dispatcher = Arc::new(Self {
            config,
            clock,
            snapshot: ArcSwap::from_pointee(Snapshot::default()),
            revision: watch::Sender::new(0),
            driver,
            online,
        });
        let service = Service::new(Arc::clone(&dispatcher), metadata);
        (dispatcher, service)
    }
}
