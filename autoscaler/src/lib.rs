//! What should be loaded.
//!
//! Entry point: [`Service`]. It follows the metadata store, asks [`sextant_policies::wanted`] which of
//! the published variants should be loaded on the workers that are there, and writes the answer into
//! the store as [`Wanted`]. The leading dispatcher loads and unloads by it. Of several autoscalers over
//! the same store one acts: whoever has the [`Token`]. It also takes workers whose lease has ended out
//! of everyone's sight.
//!
//! **Invariant:** sees variants and workers, never a query; decides nothing itself, and gives no
//! orders. A worker that is draining counts for nothing.

mod look;

use std::{future::Future, sync::Arc, time::Duration};

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};
use sextant_fleet::{Follower, GRACE, Leases, News, Token};
use sextant_metadata::{Error, MetadataStore, View, Wanted};
use tokio::time::timeout;

/// Period, patience and budget.
#[derive(Debug, Clone)]
pub struct Config {
    /// Time between two looks, ms; a change of the published variants or of the workers is seen at
    /// once.
    pub period_ms: u64,
    /// What is loaded, not wanted and has answered nothing for so long may be unloaded, s.
    pub idle_unload_s: u64,
    /// Share of each worker's memory that wanted variants may occupy, 0 to 1.
    pub warm_memory_share: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            period_ms: 1000,
            idle_unload_s: 600,
            warm_memory_share: 0.5,
        }
    }
}

/// The autoscaler's loop.
pub struct Service {
    config: Config,
    metadata: Arc<dyn MetadataStore>,
    leases: Leases,
    token: Token,
    metrics: Metrics,
}

/// What the autoscaler shows of itself.
#[derive(Default)]
struct Metrics {
    wanted_variants: Gauge,
    writes: Counter,
    write_failures: Counter,
}

/// A token, and the life of the store that was written into under it: who leads anew shuts those
/// before it out, and a store that came back empty is told again, be it that the view still has what
/// was there.
type Written = (u64, u64);

impl Service {
    /// An autoscaler over the workers that the store names, that acts alone.
    pub fn new(config: Config, metadata: Arc<dyn MetadataStore>) -> Self {
        Self {
            config,
            leases: Leases::new(Arc::clone(&metadata), GRACE),
            metadata,
            token: sextant_fleet::always(),
            metrics: Metrics::default(),
        }
    }

    /// Acts only while there is a token, as [`sextant_fleet::Leadership`] gives it.
    pub fn led_by(self, token: Token) -> Self {
        Self { token, ..self }
    }

    /// Adds the autoscaler's metrics under `autoscaler_`.
    pub fn register_metrics(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("autoscaler");
        let Metrics {
            wanted_variants,
            writes,
            write_failures,
        } = &self.metrics;
        let help = "Variants that this autoscaler last wanted loaded";
        registry.register("wanted_variants", help, wanted_variants.clone());
        let help = "Times that what should be loaded was written";
        registry.register("writes", help, writes.clone());
        let help = "Times that the store did not take what should be loaded";
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
                // Nobody will give this process a token any more.
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
        loop {
            self.leases.look().await;
            let token = *self.token.borrow();
            if let Some(token) = token {
                self.write(follower.view(), token, &mut written).await;
            }
            self.await_news(follower).await;
        }
    }

    /// Says what is wanted where the store does not have it, or not from this leadership.
    async fn write(&self, view: &View, token: u64, written: &mut Option<Written>) {
        let now = (token, view.life);
        let wanted = self.wanted(view, token);
        let known = view.wanted.as_ref();
        let same = known.is_some_and(|known| known.says_the_same(&wanted));
        if same && *written == Some(now) {
            return;
        }
        let variants = wanted.variants.len();
        let metrics = &self.metrics;
        metrics
            .wanted_variants
            .set(i64::try_from(variants).unwrap_or(i64::MAX));
        let taken = self.metadata.set_wanted(wanted).await;
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
            // The follower has said that the store is away; it is tried again at the next look.
            Err(error) => tracing::debug!(%error, "what should be loaded was not taken"),
        }
    }

    fn wanted(&self, view: &View, token: u64) -> Wanted {
        let variants = look::wanted(view, self.config.warm_memory_share);
        let idle_unload_ms = self.config.idle_unload_s.saturating_mul(1000);
        Wanted::new(token, variants, idle_unload_ms)
    }

    /// Waits for a period, or until something changes: that is looked at soon, yet a burst of changes
    /// only once.
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
