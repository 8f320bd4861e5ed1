//! A slow store does not keep instances from being unloaded.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use sextant_metadata::{
    Candidate, Changes, Cursor, Demand, DesiredState, Error, Instance, Leader, Lease, Snapshot,
    Transition, Worker as KnownWorker, WorkerRecord,
};
use tokio::sync::watch;

use super::{
    room::{FullWorker, loaded},
    *,
};

/// Calls that the store can hold.
#[derive(Debug, Clone, PartialEq)]
enum Point {
    Heartbeat,
    /// A transition of a variant.
    Transition(VariantId),
}

/// A store whose calls can be held.
struct HeldStore {
    inner: InProcessStore,
    held: watch::Sender<Option<Point>>,
    waiting: AtomicUsize,
    /// Whether the store claims that it does not know the worker.
    is_fresh: AtomicBool,
}

impl HeldStore {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: InProcessStore::new(),
            held: watch::Sender::default(),
            waiting: AtomicUsize::default(),
            is_fresh: AtomicBool::default(),
        })
    }

    fn hold(&self, point: Point) {
        self.held.send_replace(Some(point));
    }

    fn release(&self) {
        self.held.send_replace(None);
    }

    /// Waits until a call is held.
    async fn holds(&self) {
        until(|| self.waiting.load(Ordering::SeqCst) > 0).await;
    }

    async fn pass(&self, point: Point) {
        let mut held = self.held.subscribe();
        self.waiting.fetch_add(
            usize::from(held.borrow().as_ref() == Some(&point)),
            Ordering::SeqCst,
        );
        let is_open = held.wait_for(|held| held.as_ref() != Some(&point));
        is_open.await.unwrap();
    }
}

#[async_trait]
impl MetadataStore for HeldStore {
    async fn publish_variant(&self, variant: Arc<Variant>) -> Result<bool, Error> {
        self.inner.publish_variant(variant).await
    }

    async fn retire_variant(&self, variant: &VariantId) -> Result<bool, Error> {
        self.inner.retire_variant(variant).await
    }

    async fn variants(&self) -> Result<Vec<Arc<Variant>>, Error> {
        self.inner.variants().await
    }

    async fn transition(&self, transition: &Transition, now_ms: u64) -> Result<Instance, Error> {
        self.pass(Point::Transition(transition.key.variant.clone()))
            .await;
        self.inner.transition(transition, now_ms).await
    }

    async fn instances(&self) -> Result<Vec<Instance>, Error> {
        self.inner.instances().await
    }

    async fn instance(&self, key: &InstanceKey) -> Result<Option<Instance>, Error> {
        self.inner.instance(key).await
    }

    async fn heartbeat(
        &self,
        worker: &WorkerId,
        record: WorkerRecord,
        ttl_ms: u64,
        now_ms: u64,
    ) -> Result<Lease, Error> {
        self.pass(Point::Heartbeat).await;
        let lease = self.inner.heartbeat(worker, record, ttl_ms, now_ms).await?;
        let fresh = lease.fresh || self.is_fresh.load(Ordering::SeqCst);
        Ok(Lease { fresh, ..lease })
    }

    async fn workers(&self, now_ms: u64) -> Result<Vec<KnownWorker>, Error> {
        self.inner.workers(now_ms).await
    }

    async fn mark_leaving(&self, worker: &WorkerId) -> Result<Option<KnownWorker>, Error> {
        self.inner.mark_leaving(worker).await
    }

    async fn remove_worker(&self, worker: &WorkerId) -> Result<bool, Error> {
        self.inner.remove_worker(worker).await
    }

    async fn expire(&self, now_ms: u64) -> Result<Vec<WorkerId>, Error> {
        self.inner.expire(now_ms).await
    }

    async fn campaign(
        &self,
        candidate: &Candidate,
        ttl_ms: u64,
        now_ms: u64,
    ) -> Result<Leader, Error> {
        self.inner.campaign(candidate, ttl_ms, now_ms).await
    }

    async fn leader(&self, role: &str) -> Result<Option<Leader>, Error> {
        self.inner.leader(role).await
    }

    async fn resign(&self, candidate: &Candidate) -> Result<bool, Error> {
        self.inner.resign(candidate).await
    }

    async fn set_desired(&self, desired: DesiredState) -> Result<(), Error> {
        self.inner.set_desired(desired).await
    }

    async fn set_demand(&self, demand: Demand) -> Result<(), Error> {
        self.inner.set_demand(demand).await
    }

    async fn snapshot(&self) -> Result<Snapshot, Error> {
        self.inner.snapshot().await
    }

    async fn changes(&self, cursor: Cursor) -> Result<Changes, Error> {
        self.inner.changes(cursor).await
    }

    async fn changed(&self, cursor: Cursor) -> Result<(), Error> {
        self.inner.changed(cursor).await
    }
}

/// The second variant is unloaded although a call of the store is held.
async fn second_goes(full: &FullWorker) {
    let unloading = full.world.unloading(&full.variants[1]);
    let unloaded = tokio::time::timeout(PATIENCE, unloading).await;
    unloaded.expect("nothing keeps it").unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_instances_make_room_while_a_heartbeat_is_under_way() {
    let store = HeldStore::new();
    let mut full = FullWorker::over(Kind::Dedicated, store.clone()).await;
    store.hold(Point::Heartbeat);
    let (_stop, _running) = full.world.serve();
    store.holds().await;
    let model = loaded(full.measure("m-6")).await.unwrap();
    assert_eq!(full.loaded().len(), 4);
    second_goes(&full).await;
    store.release();
    drop(model);
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_go_while_another_one_makes_room() {
    let store = HeldStore::new();
    let full = FullWorker::over(Kind::Dedicated, store.clone()).await;
    store.hold(Point::Transition(full.variants[0].id.clone()));
    let loading = full.measure("m-6");
    store.holds().await;
    second_goes(&full).await;
    store.release();
    loaded(loading).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_go_while_they_are_announced_again() {
    let store = HeldStore::new();
    let mut full = FullWorker::over(Kind::Dedicated, store.clone()).await;
    store.hold(Point::Transition(full.variants[0].id.clone()));
    store.is_fresh.store(true, Ordering::SeqCst);
    let (_stop, _running) = full.world.serve();
    store.holds().await;
    second_goes(&full).await;
    store.release();
}
