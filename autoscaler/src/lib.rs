//! The role `autoscaler`: it decides how many workers there should be, and what should be loaded on them.
//!
//! Entry point: [`Service`]. It follows the metadata store, which holds the published variants, the workers with their
//! utilisation, and the demand. Once a second, and at once when variants or workers change, it decides the desired
//! state ([`sextant_scaling`]; [`sextant_scaling::warm`] decides what is kept warm before anyone asks). It writes the
//! result with its reasons into the store as [`DesiredState`]. The leading dispatcher loads and unloads variants
//! accordingly. [`Provider`]s start and end workers accordingly. If several autoscalers use the same store, only the
//! one that holds the [`Token`] acts. That one also removes workers whose lease has lapsed from the store.
//!
//! **Invariant:** the autoscaler sees variants, workers and counts of queries, never a query. It never takes the
//! desired state for the actual state: the workers report that themselves.

mod demand;
mod explain;
mod machines;
mod scaler;

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};
use sextant_fleet::{Follower, GRACE, Leases, News, Token};
use sextant_metadata::{DesiredState, Error, MetadataStore, View};
use sextant_provider::Provider;
use sextant_scaling::Policy;
use sextant_types::{DeviceType, DeviceTypeName, time::unix_ms};
use tokio::time::timeout;

use crate::{machines::Machines, scaler::Scaler};

/// Period, times, budget and pools.
#[derive(Clone)]
pub struct Config {
    /// Time between two looks, ms. Changes of the published variants or of the workers are seen at once.
    pub period_ms: u64,
    /// Time without a query after which a loaded variant that is not desired may be unloaded, s.
    pub idle_unload_s: u64,
    /// Share of each worker's memory that is filled with variants before anyone asks for them, 0 to 1.
    pub warm_memory_share: f64,
    /// Which policy plans.
    pub policy: Policy,
    /// Time for which workers that are not planned for any more are kept, ms.
    pub hold_ms: u64,
    /// Time without a query after which a need requires no worker, ms.
    pub idle_ms: u64,
    /// Longest time that an application's first query after a pause may wait for the start of a worker and a load, s;
    /// `None` sets no limit.
    pub cold_start_s: Option<f64>,
    /// Highest cost of all workers, US dollars an hour.
    pub budget_per_hour_usd: Option<f64>,
    /// Factor by which a variant is assumed to run longer on types of device on which it was not measured.
    pub estimate_factor: f64,
    /// Time that messages take for a query's way to a worker and back, ns.
    pub round_trip_ns: u64,
    /// Pools of workers that a provider starts and ends, by type of device. The number of workers of other types is not
    /// changed.
    pub pools: BTreeMap<DeviceTypeName, PoolConfig>,
}

/// A pool of workers that a provider starts and ends.
#[derive(Clone)]
pub struct PoolConfig {
    /// Least number of workers.
    pub least: u32,
    /// Largest number of workers.
    pub most: u32,
    /// Longest time from telling a worker to end until its end, ms.
    pub end_ms: u64,
    /// What is known of the device before a worker of the type was seen.
    pub facts: Option<Arc<DeviceType>>,
    /// The provider that starts and ends the workers.
    pub provider: Arc<dyn Provider>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            period_ms: 1000,
            idle_unload_s: 600,
            warm_memory_share: 0.5,
            policy: Policy::default(),
            hold_ms: 600_000,
            idle_ms: 600_000,
            cold_start_s: None,
            budget_per_hour_usd: None,
            estimate_factor: 2.0,
            round_trip_ns: 0,
            pools: BTreeMap::new(),
        }
    }
}

// === impl Config ===

impl Config {
    /// The options on which the picture of the fleet depends.
    fn picture(&self) -> sextant_picture::Options {
        let pools = self.pools.iter();
        let pools = pools.map(|(name, pool)| (name.clone(), (pool.least, pool.most)));
        sextant_picture::Options {
            policy: self.policy,
            serves_silent: self.cold_start_s.is_some(),
            budget_per_hour_usd: self.budget_per_hour_usd,
            estimate_factor: self.estimate_factor,
            counts_surroundings: true,
            round_trip: self.round_trip_ns,
            pools: pools.collect(),
        }
    }
}

/// Milliseconds since the Unix epoch.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The autoscaler's loop.
pub struct Service {
    config: Config,
    metadata: Arc<dyn MetadataStore>,
    leases: Leases,
    token: Token,
    clock: Clock,
    metrics: Metrics,
    scaler: Scaler,
    machines: Machines,
}

/// The autoscaler's metrics.
#[derive(Default)]
struct Metrics {
    desired_variants: Gauge,
    writes: Counter,
    write_failures: Counter,
}

/// A token, and the life of the store in which the state was written with that token. A new leadership writes again to
/// fence earlier ones. A store that restarted empty is written again, even if the view still has the old state.
type WriteStamp = (u64, u64);

impl Service {
    /// An autoscaler over the workers in the store. It acts alone, without leadership.
    pub fn new(config: Config, metadata: Arc<dyn MetadataStore>) -> Self {
        let period = Duration::from_millis(config.period_ms);
        Self {
            scaler: Scaler::new(config.clone()),
            machines: Machines::default(),
            config,
            leases: Leases::new(Arc::clone(&metadata), period, GRACE),
            metadata,
            token: sextant_fleet::always(),
            clock: Arc::new(unix_ms),
            metrics: Metrics::default(),
        }
    }

    /// Makes it act only while it holds a token, as [`sextant_fleet::Leadership`] provides it.
    pub fn led_by(self, token: Token) -> Self {
        Self { token, ..self }
    }

    /// Takes the time from this clock instead of the machine's.
    pub fn timed_by(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Adds the autoscaler's metrics under `autoscaler_`.
    pub fn register_metrics(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("autoscaler");
        let Metrics {
            desired_variants,
            writes,
            write_failures,
        } = &self.metrics;
        let help = "Variants that should be loaded by this autoscaler's last decision";
        registry.register("desired_variants", help, desired_variants.clone());
        let help = "Former name of autoscaler_desired_variants, until the next release";
        registry.register("wanted_variants", help, desired_variants.clone());
        let help = "Times that the desired variants were written to the metadata store";
        registry.register("writes", help, writes.clone());
        let help = "Times that the metadata store did not accept the desired variants";
        registry.register("write_failures", help, write_failures.clone());
    }

    /// Runs until `shutdown`.
    pub async fn run(mut self, shutdown: impl Future<Output = ()> + Send) {
        tokio::select! {
            () = shutdown => {}
            () = self.stand() => {}
        }
    }

    /// Acts whenever this process leads.
    async fn stand(&mut self) {
        let mut follower = Follower::new(Arc::clone(&self.metadata));
        follower.changed().await;
        loop {
            let lead = self.token.wait_for(Option::is_some).await.is_ok();
            if !lead {
                // The sender is gone: this process will not lead again.
                return std::future::pending().await;
            }
            self.leases.wait();
            let mut token = self.token.clone();
            let lost = async {
                if token.wait_for(Option::is_none).await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = lost => {}
                () = self.act(&mut follower) => {}
            }
        }
    }

    /// Acts until it is dropped.
    async fn act(&mut self, follower: &mut Follower) {
        let mut written = None;
        self.scaler.begin();
        self.machines.begin((self.clock)());
        loop {
            self.leases.look().await;
            let token = *self.token.borrow();
            if let Some(token) = token {
                let view = follower.view();
                let desired = self.scaler.decide(view, (self.clock)(), token);
                self.write(view, &desired, &mut written).await;
                self.have_carried_out(view, &desired).await;
            }
            self.await_news(follower).await;
        }
    }

    /// Writes the desired state if the store does not have it, or if this leadership has not written it.
    async fn write(&self, view: &View, desired: &DesiredState, written: &mut Option<WriteStamp>) {
        let now = (desired.token, view.life);
        let known = view.desired.as_ref();
        let same = known.is_some_and(|known| known.says_the_same(desired));
        if same && *written == Some(now) {
            return;
        }
        let variants = desired.variants.len();
        let metrics = &self.metrics;
        metrics
            .desired_variants
            .set(i64::try_from(variants).unwrap_or(i64::MAX));
        let taken = self.metadata.set_desired(desired.clone()).await;
        match &taken {
            Ok(()) => metrics.writes.inc(),
            Err(_) => metrics.write_failures.inc(),
        };
        match taken {
            Ok(()) => {
                *written = Some(now);
                if !same {
                    tracing::info!(variants, "said what should be loaded");
                }
            }
            Err(error @ Error::Fenced { .. }) => {
                tracing::warn!(%error, "what should be loaded was not taken");
            }
            // The follower has logged that the store is away. The write is tried again at the next look.
            Err(error) => tracing::debug!(%error, "what should be loaded was not taken"),
        }
    }

    /// Orders from the providers the workers that are desired.
    async fn have_carried_out(&mut self, view: &View, desired: &DesiredState) {
        let pools = &self.config.pools;
        if pools.is_empty() {
            return;
        }
        let picture = (view, desired, self.scaler.interner());
        let looked = self.machines.look(pools, picture, (self.clock)());
        for (pool, trouble) in looked.await {
            self.scaler.report(&pool, trouble);
        }
    }

    /// Waits for a period or for a change. After a change it waits briefly, so that a burst of changes causes one look.
    async fn await_news(&self, follower: &mut Follower) {
        let period = Duration::from_millis(self.config.period_ms.max(10));
        drop(timeout(period, structure(follower)).await);
        let burst = async {
            loop {
                follower.changed().await;
            }
        };
        drop(timeout(period / 10, burst).await);
    }
}

async fn structure(follower: &mut Follower) {
    while follower.changed().await != News::Structure {}
}
