//! The in-process store with the failures of a remote store: it can be away, slow, or lose its
//! content.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use parking_lot::RwLock;
use sextant_metadata::{
    Candidate, Changes, Cursor, Demand, DesiredState, Error, InProcessStore, Instance, Leader,
    Lease, MetadataStore, Snapshot, Transition, Worker, WorkerRecord,
};
use sextant_types::{Variant, VariantId, WorkerId};
use tokio::sync::watch;

/// Cursors of one life of the store differ by less than this.
const LIFE: u64 = 1 << 32;

/// See the module.
pub struct UnsteadyStore {
    content: RwLock<(u64, Arc<InProcessStore>)>,
    history: usize,
    state: watch::Sender<State>,
    demands: RwLock<Vec<(Demand, bool)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct State {
    away: bool,
    life: u64,
    /// Time to read the content or the feed.
    delay: Duration,
}

impl UnsteadyStore {
    /// An empty store that answers and keeps `history` events.
    pub fn new(history: usize) -> Self {
        Self {
            content: RwLock::new((0, Arc::new(InProcessStore::with_history(history)))),
            history,
            state: watch::Sender::default(),
            demands: RwLock::default(),
        }
    }

    /// Whether calls fail from now on. The content stays.
    pub fn set_away(&self, away: bool) {
        self.state.send_modify(|state| state.away = away);
    }

    /// Sets the time to read the content or the feed.
    pub fn set_slow(&self, delay: Duration) {
        self.state.send_modify(|state| state.delay = delay);
    }

    /// Every demand that was written while the store answered, in order, and whether it was
    /// accepted.
    pub fn demands(&self) -> Vec<(Demand, bool)> {
        self.demands.read().clone()
    }

    async fn delay(&self) {
        let delay = self.state.borrow().delay;
        tokio::time::sleep(delay).await;
    }

    /// Drops all content and begins another life.
    pub fn lose_everything(&self) {
        let store = Arc::new(InProcessStore::with_history(self.history));
        let mut content = self.content.write();
        let life = content.0 + 1;
        *content = (life, store);
        self.state.send_modify(|state| state.life = life);
    }

    fn life(&self) -> Result<(u64, Arc<InProcessStore>), Error> {
        if self.state.borrow().away {
            return Err(Error::Unavailable {
                reason: "away on purpose".to_owned(),
            });
        }
        let content = self.content.read();
        Ok((content.0, Arc::clone(&content.1)))
    }

    fn store(&self) -> Result<Arc<InProcessStore>, Error> {
        self.life().map(|(_, store)| store)
    }
}

#[async_trait]
impl MetadataStore for UnsteadyStore {
    async fn publish_variant(&self, variant: Arc<Variant>) -> Result<bool, Error> {
        self.store()?.publish_variant(variant).await
    }

    async fn retire_variant(&self, variant: &VariantId) -> Result<bool, Error> {
        self.store()?.retire_variant(variant).await
    }

    async fn variants(&self) -> Result<Vec<Arc<Variant>>, Error> {
        self.store()?.variants().await
    }

    async fn transition(&self, transition: &Transition, now_ms: u64) -> Result<Instance, Error> {
        self.store()?.transition(transition, now_ms).await
    }

    async fn instances(&self) -> Result<Vec<Instance>, Error> {
        self.store()?.instances().await
    }

    async fn instance(
        &self,
        key: &sextant_metadata::InstanceKey,
    ) -> Result<Option<Instance>, Error> {
        self.store()?.instance(key).await
    }

    async fn heartbeat(
        &self,
        worker: &WorkerId,
        record: WorkerRecord,
        ttl_ms: u64,
        now_ms: u64,
    ) -> Result<Lease, Error> {
        self.store()?
            .heartbeat(worker, record, ttl_ms, now_ms)
            .await
    }

    async fn workers(&self, now_ms: u64) -> Result<Vec<Worker>, Error> {
        self.store()?.workers(now_ms).await
    }

    async fn mark_leaving(&self, worker: &WorkerId) -> Result<Option<Worker>, Error> {
        self.store()?.mark_leaving(worker).await
    }

    async fn remove_worker(&self, worker: &WorkerId) -> Result<bool, Error> {
        self.store()?.remove_worker(worker).await
    }

    async fn expire(&self, now_ms: u64) -> Result<Vec<WorkerId>, Error> {
        self.store()?.expire(now_ms).await
    }

    async fn campaign(
        &self,
        candidate: &Candidate,
        ttl_ms: u64,
        now_ms: u64,
    ) -> Result<Leader, Error> {
        let (life, store) = self.life()?;
        let mut leader = store.campaign(candidate, ttl_ms, now_ms).await?;
        leader.token += life * LIFE;
        Ok(leader)
    }

    async fn leader(&self, role: &str) -> Result<Option<Leader>, Error> {
        let (life, store) = self.life()?;
        let mut leader = store.leader(role).await?;
        if let Some(leader) = &mut leader {
            leader.token += life * LIFE;
        }
        Ok(leader)
    }

    async fn resign(&self, candidate: &Candidate) -> Result<bool, Error> {
        self.store()?.resign(candidate).await
    }

    async fn set_desired(&self, desired: DesiredState) -> Result<(), Error> {
        self.store()?.set_desired(desired).await
    }

    async fn set_demand(&self, demand: Demand) -> Result<(), Error> {
        let written = self.store()?.set_demand(demand.clone()).await;
        self.demands.write().push((demand, written.is_ok()));
        written
    }

    async fn snapshot(&self) -> Result<Snapshot, Error> {
        self.delay().await;
        let (life, store) = self.life()?;
        let mut snapshot = store.snapshot().await?;
        snapshot.life = life;
        snapshot.cursor.0 += life * LIFE;
        Ok(snapshot)
    }

    async fn changes(&self, cursor: Cursor) -> Result<Changes, Error> {
        self.delay().await;
        let (life, store) = self.life()?;
        let oldest = Cursor(life * LIFE);
        if cursor.0 / LIFE != life {
            return Err(Error::Trimmed { cursor, oldest });
        }
        let mut changes = store.changes(Cursor(cursor.0 - oldest.0)).await?;
        changes.cursor.0 += oldest.0;
        Ok(changes)
    }

    async fn changed(&self, cursor: Cursor) -> Result<(), Error> {
        let mut states = self.state.subscribe();
        let seen = *states.borrow_and_update();
        let (life, store) = self.life()?;
        if cursor.0 / LIFE != life {
            return Ok(());
        }
        let other = states.wait_for(|state| *state != seen);
        tokio::select! {
            changed = store.changed(Cursor(cursor.0 - life * LIFE)) => changed,
            _ = other => self.life().map(drop),
        }
    }
}
