//! How many of which variant where.
//!
//! Entry point: [`Service`]. It looks at the published variants and at what each worker holds, asks
//! [`sextant_policies::warm`] what should be loaded, and tells the workers, which come and go by
//! [`Workers`]. Of several autoscalers over the same store one acts: whoever has the [`Token`].
//!
//! **Invariant:** sees variants and workers, never a query; decides nothing itself. A worker that is
//! draining is left alone.

mod workers;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::Arc,
    time::Duration,
};

use sextant_fleet::{Follower, GRACE, Leases, News, Token};
use sextant_metadata::{InstanceState, MetadataStore, View};
use sextant_policies::warm::{self, Action, Budget, Item, Presence};
use sextant_rpc::{Load, WorkError, WorkerClient, WorkerInfo};
use sextant_types::{Variant, VariantId, WorkerId};
use tokio::{task::JoinSet, time::timeout};

pub use workers::Workers;

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
    workers: Workers,
    leases: Leases,
    token: Token,
}

/// The workers that are being told what to do, each by one task.
#[derive(Default)]
struct Looks {
    tasks: JoinSet<WorkerId>,
    busy: BTreeSet<WorkerId>,
}

impl Service {
    /// An autoscaler over `workers`, to which others may come, that acts alone.
    pub fn new(
        config: Config,
        metadata: Arc<dyn MetadataStore>,
        workers: Vec<WorkerClient>,
    ) -> Self {
        let known = Workers::default();
        workers.into_iter().for_each(|worker| known.add(worker));
        Self {
            config,
            leases: Leases::new(Arc::clone(&metadata), GRACE),
            metadata,
            workers: known,
            token: sextant_fleet::always(),
        }
    }

    /// Acts only while there is a token, as [`sextant_fleet::Leadership`] gives it.
    pub fn led_by(self, token: Token) -> Self {
        Self { token, ..self }
    }

    /// The workers that it looks after.
    pub fn workers(&self) -> Workers {
        self.workers.clone()
    }

    /// Runs until `shutdown`.
    pub async fn run(mut self, shutdown: impl Future<Output = ()> + Send) {
        tokio::select! {
            () = shutdown => {}
            () = self.keep_warm() => {}
        }
    }

    async fn keep_warm(&mut self) {
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

    /// Acts until it is dropped; what was begun is given up then.
    async fn act(&mut self, follower: &mut Follower) {
        let mut looks = Looks::default();
        loop {
            self.leases.look().await;
            self.look_after_all(follower.view(), &mut looks);
            self.await_news(follower).await;
        }
    }

    /// Waits for a period, or until something changes: that is looked at soon, yet a burst of changes
    /// only once.
    async fn await_news(&self, follower: &mut Follower) {
        let period = Duration::from_millis(self.config.period_ms.max(10));
        let news = async {
            tokio::select! {
                () = structure(follower) => {}
                () = self.workers.changed() => {}
            }
        };
        drop(timeout(period, news).await);
        let burst = async {
            loop {
                follower.changed().await;
            }
        };
        drop(timeout(period / 10, burst).await);
    }

    /// Has every worker told what it lacks, side by side: a LOAD may take long.
    fn look_after_all(&self, view: &View, looks: &mut Looks) {
        looks.end_finished();
        for worker in self.workers.list() {
            let info = worker.info();
            let known = view.workers.get(&info.worker);
            if known.is_some_and(|known| known.record.draining) || looks.busy.contains(&info.worker)
            {
                continue;
            }
            let steps = self.steps(&worker, &info, view);
            if steps.is_empty() {
                continue;
            }
            looks.busy.insert(info.worker.clone());
            looks.tasks.spawn(async move {
                for step in steps {
                    if let Err(error) = step.carry_out(&worker).await {
                        tracing::warn!(worker = %info.worker, %error, "a worker refused");
                    }
                }
                info.worker
            });
        }
    }

    fn steps(&self, worker: &WorkerClient, info: &WorkerInfo, view: &View) -> Vec<Step> {
        let budget = Budget {
            warm_bytes: (info.pages.bytes() as f64 * self.config.warm_memory_share) as u64,
            idle_unload_ms: self.config.idle_unload_s.saturating_mul(1000),
        };
        let candidates = candidates(view, worker, info);
        let items: Vec<Item> = candidates
            .iter()
            .map(|candidate| candidate.item.clone())
            .collect();
        warm::plan(&items, &budget)
            .into_iter()
            .filter_map(|action| Step::of(action, &candidates))
            .collect()
    }
}

async fn structure(follower: &mut Follower) {
    while follower.changed().await != News::Structure {}
}

/// What a worker is told.
enum Step {
    Load(Arc<Variant>),
    Unload(VariantId),
}

impl Step {
    fn of(action: Action, candidates: &[Candidate]) -> Option<Self> {
        let (Action::Load(at) | Action::Unload(at)) = action;
        let candidate = candidates.get(at as usize)?;
        match action {
            Action::Load(_) => candidate.variant.clone().map(Self::Load),
            Action::Unload(_) => Some(Self::Unload(candidate.id.clone())),
        }
    }

    async fn carry_out(self, worker: &WorkerClient) -> Result<(), WorkError> {
        match self {
            Self::Load(variant) => worker.load(Load::at_once(variant)).await.map(drop),
            Self::Unload(variant) => worker.unload(&variant).await,
        }
    }
}

impl Looks {
    fn end_finished(&mut self) {
        while let Some(ended) = self.tasks.try_join_next() {
            match ended {
                Ok(worker) => drop(self.busy.remove(&worker)),
                // Whose task it was is not said: all are looked at again.
                Err(_) => self.busy.clear(),
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

/// The published variants that the worker can run, and what it still holds of retired ones.
fn candidates(view: &View, worker: &WorkerClient, info: &WorkerInfo) -> Vec<Candidate> {
    let idle: BTreeMap<VariantId, u64> = worker
        .usage()
        .into_iter()
        .map(|usage| (usage.variant, usage.idle_ms))
        .collect();
    let mut states: BTreeMap<&VariantId, InstanceState> = view
        .instances
        .values()
        .filter(|instance| instance.key.worker == info.worker)
        .map(|instance| (&instance.key.variant, instance.state))
        .collect();
    let mut candidates: Vec<Candidate> = Vec::with_capacity(view.variants.len());
    let runs = |variant: &&Arc<Variant>| info.engines.contains(&variant.spec.engine);
    for variant in view.variants.values().filter(runs) {
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
