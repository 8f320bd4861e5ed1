//! How many of which variant where.
//!
//! Entry point: [`Service`]. It looks at the published variants and at what each worker holds, asks
//! [`sextant_policies::warm`] what should be loaded, and tells the workers.
//!
//! **Invariant:** sees variants and workers, never a query; decides nothing itself.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sextant_metadata::{Instance, InstanceKey, InstanceState, MetadataStore, Snapshot};
use sextant_policies::warm::{self, Action, Budget, Item, Presence};
use sextant_rpc::{Load, WorkerClient};
use sextant_types::{Variant, VariantId, WorkerId};

/// Period, patience and budget.
#[derive(Debug, Clone)]
pub struct Config {
    /// Time between two looks, ms; a change of the published variants is seen at once.
    pub period_ms: u64,
    /// Variants off the frontier are unloaded after this long without a query, s.
    pub idle_unload_s: u64,
    /// Share of a worker's memory that warm variants may occupy, 0 to 1.
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
    workers: Vec<WorkerClient>,
}

impl Service {
    /// An autoscaler over `workers`.
    pub fn new(
        config: Config,
        metadata: Arc<dyn MetadataStore>,
        workers: Vec<WorkerClient>,
    ) -> Self {
        Self {
            config,
            metadata,
            workers,
        }
    }

    /// Runs until `shutdown`.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) {
        tokio::select! {
            () = shutdown => {}
            () = self.keep_warm() => {}
        }
    }

    async fn keep_warm(&self) {
        let period = Duration::from_millis(self.config.period_ms.max(10));
        loop {
            self.expire_workers().await;
            match self.metadata.snapshot().await {
                Ok(snapshot) => {
                    for worker in &self.workers {
                        self.look_after(worker, &snapshot).await;
                    }
                    let changed = self.metadata.changed(snapshot.cursor);
                    // A change is looked at soon, yet a burst of changes only once.
                    drop(tokio::time::timeout(period, changed).await);
                    tokio::time::sleep(period / 10).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "the metadata store did not answer");
                    tokio::time::sleep(period).await;
                }
            }
        }
    }

    /// Takes workers whose lease has ended out of everyone's sight.
    async fn expire_workers(&self) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ms = since.map_or(0, |since| since.as_millis() as u64);
        match self.metadata.expire(now_ms).await {
            Ok(gone) => gone
                .iter()
                .for_each(|worker| tracing::warn!(%worker, "lease expired")),
            Err(error) => tracing::warn!(%error, "leases could not be looked at"),
        }
    }

    async fn look_after(&self, worker: &WorkerClient, snapshot: &Snapshot) {
        let info = worker.info();
        let budget = Budget {
            warm_bytes: (info.memory_bytes as f64 * self.config.warm_memory_share) as u64,
            idle_unload_ms: self.config.idle_unload_s.saturating_mul(1000),
        };
        let items = items(snapshot, worker, &info.worker);
        for action in warm::plan(&items, &budget) {
            self.carry_out(worker, snapshot, action).await;
        }
    }

    async fn carry_out(&self, worker: &WorkerClient, snapshot: &Snapshot, action: Action) {
        let result = match action {
            Action::Load(at) => match snapshot.variants.get(at as usize) {
                Some(variant) => {
                    worker
                        .load(Load {
                            variant: Arc::clone(variant),
                        })
                        .await
                }
                None => Ok(()),
            },
            Action::Unload(at) => match snapshot.variants.get(at as usize) {
                Some(variant) => worker.unload(&variant.id).await,
                None => Ok(()),
            },
        };
        if let Err(error) = result {
            tracing::warn!(?action, %error, "a worker refused");
        }
    }
}

/// The published variants as the policy sees them on one worker; ordinals are positions in the
/// snapshot.
fn items(snapshot: &Snapshot, worker: &WorkerClient, id: &WorkerId) -> Vec<Item> {
    let idle: BTreeMap<VariantId, u64> = worker
        .usage()
        .into_iter()
        .map(|usage| (usage.variant, usage.idle_ms))
        .collect();
    let instances: BTreeMap<&InstanceKey, &Instance> = snapshot
        .instances
        .iter()
        .map(|instance| (&instance.key, instance))
        .collect();
    let item = |(at, variant): (usize, &Arc<Variant>)| {
        let key = InstanceKey::new(variant.id.clone(), id.clone());
        Item {
            ordinal: at as u32,
            dominated: variant.dominated_by.is_some(),
            memory_bytes: variant.profile.peak_memory_bytes,
            presence: presence(instances.get(&key).map(|instance| instance.state)),
            idle_ms: idle.get(&variant.id).copied().unwrap_or(0),
        }
    };
    snapshot.variants.iter().enumerate().map(item).collect()
}

fn presence(state: Option<InstanceState>) -> Presence {
    match state {
        None | Some(InstanceState::Inactive) => Presence::Absent,
        Some(InstanceState::Loading | InstanceState::Draining) => Presence::Moving,
        Some(InstanceState::Failed) => Presence::Failed,
        Some(_) => Presence::Loaded,
    }
}
