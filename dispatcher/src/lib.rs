//! The way of one query: choose a variant, queue the query, make a batch, send it, answer.
//!
//! Entry points: [`Dispatcher::start`] returns the handle (a [`sextant_rpc::Dispatch`]) and the [`Service`] that keeps
//! the index current. [`Dispatcher::add_worker`] and [`Dispatcher::remove_worker`] are for workers that come and go.
//! [`Dispatcher::set_leading`] is for several dispatchers that serve the same workers. [`jobs::JobService`] is for
//! offline jobs.
//!
//! **Invariant:** this crate knows no HTTP and no SQL. A query passes an in-memory snapshot and one short lock of the
//! scheduler, and it never waits for a store. `sextant-selection` decides which variant answers and
//! `sextant-controller` decides which batch carries the query; this crate only asks them and carries out their
//! decisions.

mod agreement;
mod ask;
mod budget;
mod cached;
mod clock;
mod composites;
mod costs;
mod demand;
mod driver;
mod explain;
mod families;
mod gauges;
mod grown;
mod live_load;
mod loads;
mod meter;
mod metrics;
mod pending;
mod place;
pub mod profiles;
mod query;
mod reach;
mod refusal;
mod relief;
mod service;
mod shadows;
mod snapshot;
mod versions;
mod warm_up;
mod workers;

pub mod jobs;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use sextant_answers::Caches;
use sextant_fleet::Token;
use sextant_metadata::MetadataStore;
use sextant_picture::Queueing;
use sextant_placement as placement;
use sextant_profile::Estimation;
use sextant_rpc::WorkerClient;
use sextant_scaling::fleet::LONGEST_STAY;
use sextant_schedule::{Delay, Options, Schedulers};
use sextant_types::{ApplicationId, WorkerId};
use tokio::sync::watch;

use crate::{
    agreement::Agreements, clock::Clock, demand::Counts, driver::Driver, meter::OnlineMeter,
    shadows::Shadows, snapshot::Snapshot, versions::Trials, warm_up::WarmUp,
};
pub use crate::{agreement::Sampling, families::Choice, service::Service, shadows::ShadowService};

/// Limits of a dispatcher, and how it schedules.
#[derive(Debug, Clone)]
pub struct Config {
    /// The most rows that may wait for one variant.
    pub max_waiting_rows: u32,
    /// The longest wait for a load on behalf of a query without a latency target, ms.
    pub max_load_wait_ms: u64,
    /// The parameters of the scheduling policy.
    pub schedule: Options,
    /// The time that messages between front ends, dispatcher and workers take. The schedule allows for it in addition
    /// to what [`Self::schedule`] says. `control` and `data_per_row` are from a decision until the inputs are at the
    /// worker, `response` is from there to the front end. All are zero in one process.
    pub network: Delay,
    /// The rules by which variants are loaded on devices on behalf of queries.
    pub placement: placement::Options,
    /// Chooses how many queries of a model run side by side and on how many threads each, for models whose queries do
    /// not share batches. `None` leaves the threads to the selection.
    pub parallelism: Option<Choice>,
    /// How run times are estimated.
    pub estimation: Estimation,
    /// The factor by which a variant is expected to take longer on another type of device than on the one where it was
    /// measured, until it is measured there.
    pub estimate_factor: f64,
    /// How long a worker that somebody has taken out is kept if desired variants depend on it.
    pub longest_stay: Duration,
    /// The settings of single applications. An application that is not listed has the defaults.
    pub tenants: BTreeMap<ApplicationId, Tenant>,
    /// Which answers are compared with those of the uploaded file.
    pub agreement: Sampling,
    /// The most bytes of answers in the caches of all applications together.
    pub max_cache_bytes: u64,
}

/// The priority and weight of an application's queries against those of others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tenant {
    /// Queries of a higher priority go first, whatever the deadlines.
    pub priority: u8,
    /// The application's share of what is served if not everything can be served; 1 is normal.
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
            schedule: Options::default(),
            network: Delay::default(),
            placement: placement::Options::default(),
            parallelism: None,
            estimation: Estimation::default(),
            estimate_factor: 1.0,
            longest_stay: LONGEST_STAY,
            tenants: BTreeMap::new(),
            agreement: Sampling::default(),
            max_cache_bytes: 1 << 30,
        }
    }
}

// === impl Config ===

impl Config {
    /// How queries of an application wait if the registry has no setting for it.
    fn queueing(&self, application: &ApplicationId) -> Queueing {
        let tenant = self.tenants.get(application).copied().unwrap_or_default();
        Queueing {
            max_waiting_rows: self.max_waiting_rows,
            priority: tenant.priority,
            weight: tenant.weight,
        }
    }
}

/// The dispatcher's handle.
pub struct Dispatcher {
    config: Config,
    clock: Clock,
    snapshot: ArcSwap<Snapshot>,
    /// Counts snapshots, so that a query can wait for the next one.
    revision: watch::Sender<u64>,
    leading: watch::Sender<bool>,
    gathering: WarmUp,
    driver: Arc<Driver>,
    online: Arc<OnlineMeter>,
    /// How queries have ended.
    counts: Counts,
    agreements: Agreements,
    trials: Trials,
    caches: Caches,
    shadows: Shadows,
}

impl Dispatcher {
    /// Starts a dispatcher that leads and serves `workers`; more workers may be added. The caller must run the returned
    /// [`Service`]: it follows the metadata store's feed, without which the dispatcher knows no variant.
    pub fn start(
        config: Config,
        workers: Vec<WorkerClient>,
        metadata: Arc<dyn MetadataStore>,
    ) -> (Arc<Self>, Service) {
        let ours = config.schedule.clone();
        Self::start_by(&ours, config, workers, metadata)
    }

    /// Like [`Self::start`], with another scheduling policy in place of [`Config::schedule`]. Experiments use it to
    /// compare policies.
    pub fn start_by(
        schedulers: &impl Schedulers,
        config: Config,
        workers: Vec<WorkerClient>,
        metadata: Arc<dyn MetadataStore>,
    ) -> (Arc<Self>, Service) {
        let clock = Clock::start();
        let online = Arc::new(OnlineMeter::new());
        let driver = Driver::new(&config, schedulers, clock, Arc::clone(&online));
        let (agreements, samples) = Agreements::new(config.agreement);
        let dispatcher = Arc::new(Self {
            config,
            clock,
            snapshot: ArcSwap::from_pointee(Snapshot::default()),
            revision: watch::Sender::new(0),
            leading: watch::Sender::new(true),
            gathering: WarmUp::over(),
            driver,
            online,
            counts: Counts::default(),
            agreements,
            trials: Trials::default(),
            caches: Caches::default(),
            shadows: Shadows::default(),
        });
        for worker in workers {
            dispatcher.add_worker(worker);
        }
        let service = Service::new(Arc::clone(&dispatcher), metadata, samples);
        (dispatcher, service)
    }

    /// A worker can be reached from now on. This client replaces any that was given for it before. The worker gets
    /// batches as soon as the metadata store has its heartbeat.
    pub fn add_worker(&self, worker: WorkerClient) {
        self.driver.add_worker(worker);
    }

    /// A worker can no longer be reached, and nothing is sent to it. Its client must answer what runs on it. Returns
    /// whether the worker was present.
    pub fn remove_worker(&self, worker: &WorkerId) -> bool {
        self.driver.remove_worker(worker)
    }

    /// Starts or stops leading. A dispatcher that does not lead knows everything and gives out nothing: it refuses
    /// queries as `unavailable`, including those that wait, and it loads and unloads nothing. What it has sent to
    /// workers ends by itself. A dispatcher that starts leading lets queries that it cannot place wait for a moment,
    /// until it has reached the workers.
    pub fn set_leading(&self, leading: bool) {
        match leading {
            true if !self.is_leading() => self.gathering.begin(),
            true => {}
            false => self.gathering.end(),
        }
        self.driver.set_leads(leading);
        self.leading.send_if_modified(|known| {
            let changed = *known != leading;
            *known = leading;
            changed
        });
    }

    /// Stops leading and waits for what is under way, so that clients have their answers before another dispatcher
    /// leads.
    pub async fn stand_down(&self) {
        self.set_leading(false);
        self.driver.settled().await;
    }

    /// Waits until the metadata store has been read once. A dispatcher that leads earlier does not know what is
    /// registered.
    pub async fn informed(&self) {
        let mut revisions = self.revision.subscribe();
        // The sender lives as long as `self`.
        drop(revisions.wait_for(|revision| *revision > 0).await);
    }

    /// Whether this dispatcher leads.
    pub fn is_leading(&self) -> bool {
        self.driver.leads()
    }

    /// A receiver of the value that [`Self::set_leading`] sets.
    pub fn leading(&self) -> watch::Receiver<bool> {
        self.leading.subscribe()
    }

    /// Leads while there is a token. Returns when the sender of tokens is gone.
    pub async fn lead_with(&self, mut token: Token) {
        loop {
            let leads = token.borrow_and_update().is_some();
            self.set_leading(leads);
            if token.changed().await.is_err() {
                return;
            }
        }
    }
}
