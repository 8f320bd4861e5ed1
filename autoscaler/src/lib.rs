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

use sextant_metadata::{InstanceState, MetadataStore, Snapshot};
use sextant_policies::warm::{self, Action, Budget, Item, Presence};
use sextant_rpc::{Load, WorkError, WorkerClient, WorkerInfo};
use sextant_types::{Variant, VariantId};

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
            warm_bytes: (info.pages.bytes() as f64 * self.config.warm_memory_share) as u64,
            idle_unload_ms: self.config.idle_unload_s.saturating_mul(1000),
        };
        let candidates = candidates(snapshot, worker, &info);
        let items: Vec<Item> = candidates
            .iter()
            .map(|candidate| candidate.item.clone())
            .collect();
        for action in warm::plan(&items, &budget) {
            if let Err(error) = carry_out(worker, &candidates, action).await {
                tracing::warn!(?action, %error, "a worker refused");
            }
        }
    }
}

/// What the policy sees of a variant, and what it stands for.
struct Candidate {
    item: Item,
    id: VariantId,
    /// `None` for an instance whose variant was retired.
    variant: Option<Arc<Variant>>,
}

async fn carry_out(
    worker: &WorkerClient,
    candidates: &[Candidate],
    action: Action,
) -> Result<(), WorkError> {
    let (Action::Load(at) | Action::Unload(at)) = action;
    let Some(candidate) = candidates.get(at as usize) else {
        return Ok(());
    };
    match (action, &candidate.variant) {
        (Action::Load(_), Some(variant)) => worker
            .load(Load::at_once(Arc::clone(variant)))
            .await
            .map(drop),
        (Action::Load(_), None) => Ok(()),
        (Action::Unload(_), _) => worker.unload(&candidate.id).await,
    }
}

/// The published variants that the worker can run, and what it still holds of retired ones.
fn candidates(snapshot: &Snapshot, worker: &WorkerClient, info: &WorkerInfo) -> Vec<Candidate> {
    let idle: BTreeMap<VariantId, u64> = worker
        .usage()
        .into_iter()
        .map(|usage| (usage.variant, usage.idle_ms))
        .collect();
    let mut states: BTreeMap<&VariantId, InstanceState> = snapshot
        .instances
        .iter()
        .filter(|instance| instance.key.worker == info.worker)
        .map(|instance| (&instance.key.variant, instance.state))
        .collect();
    let mut candidates: Vec<Candidate> = Vec::with_capacity(snapshot.variants.len());
    let runs = |variant: &&Arc<Variant>| info.engines.contains(&variant.spec.engine);
    for variant in snapshot.variants.iter().filter(runs) {
        let item = Item {
            ordinal: candidates.len() as u32,
            published: true,
            dominated: variant.dominated_by.is_some(),
            memory_bytes: variant.profile.peak_memory_bytes,
            presence: presence(states.remove(&variant.id)),
            idle_ms: idle.get(&variant.id).copied().unwrap_or(0),
        };
        let (id, variant) = (variant.id.clone(), Some(Arc::clone(variant)));
        candidates.push(Candidate { item, id, variant });
    }
    for (retired, state) in states {
        let item = Item {
            ordinal: candidates.len() as u32,
            published: false,
            dominated: false,
            memory_bytes: 0,
            presence: presence(Some(state)),
            idle_ms: 0,
        };
        candidates.push(Candidate {
            item,
            id: retired.clone(),
            variant: None,
        });
    }
    candidates
}

fn presence(state: Option<InstanceState>) -> Presence {
    match state {
        None | Some(InstanceState::Inactive) => Presence::Absent,
        Some(InstanceState::Loading | InstanceState::Draining) => Presence::Moving,
        Some(InstanceState::Failed) => Presence::Failed,
        Some(_) => Presence::Loaded,
    }
}
