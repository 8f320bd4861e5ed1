//! The time to fetch an artefact is a part of its load.

use std::{
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use sextant_objects::{
    BlobPage, ByteStream, Error, ListRequest, ObjectInfo, ObjectPath, Page, PutBlob,
};
use sextant_rpc::ActionKind;
use sextant_types::StoreId;
use tokio::sync::watch;

use super::*;

/// A store that gives no blob while it is held.
struct SlowStore {
    inner: LocalStore,
    held: watch::Sender<bool>,
    /// Number of blobs that were requested.
    asked: AtomicUsize,
}

#[async_trait]
impl ObjectStore for SlowStore {
    async fn identity(&self) -> Result<Option<StoreId>, Error> {
        self.inner.identity().await
    }

    async fn set_identity(&self, identity: StoreId) -> Result<(), Error> {
        self.inner.set_identity(identity).await
    }

    async fn put_blob(&self, bytes: Bytes) -> Result<Digest, Error> {
        self.inner.put_blob(bytes).await
    }

    async fn put_blob_stream(&self, bytes: ByteStream<'_>) -> Result<PutBlob, Error> {
        self.inner.put_blob_stream(bytes).await
    }

    async fn get_blob(&self, digest: &Digest) -> Result<Bytes, Error> {
        let mut held = self.held.subscribe();
        self.asked.fetch_add(1, Ordering::SeqCst);
        held.wait_for(|held| !held).await.unwrap();
        self.inner.get_blob(digest).await
    }

    async fn get_blob_range(&self, digest: &Digest, range: Range<u64>) -> Result<Bytes, Error> {
        self.inner.get_blob_range(digest, range).await
    }

    async fn stat_blob(&self, digest: &Digest) -> Result<Option<u64>, Error> {
        self.inner.stat_blob(digest).await
    }

    async fn list_blobs(&self, after: Option<&Digest>, limit: usize) -> Result<BlobPage, Error> {
        self.inner.list_blobs(after, limit).await
    }

    async fn delete_blob_stored_by(&self, digest: &Digest, by_ms: u64) -> Result<bool, Error> {
        self.inner.delete_blob_stored_by(digest, by_ms).await
    }

    async fn put(&self, path: &ObjectPath, bytes: Bytes) -> Result<(), Error> {
        self.inner.put(path, bytes).await
    }

    async fn put_stream(&self, path: &ObjectPath, bytes: ByteStream<'_>) -> Result<u64, Error> {
        self.inner.put_stream(path, bytes).await
    }

    async fn get(&self, path: &ObjectPath) -> Result<Bytes, Error> {
        self.inner.get(path).await
    }

    async fn get_range(&self, path: &ObjectPath, range: Range<u64>) -> Result<Bytes, Error> {
        self.inner.get_range(path, range).await
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Option<ObjectInfo>, Error> {
        self.inner.stat(path).await
    }

    async fn list(&self, request: &ListRequest) -> Result<Page, Error> {
        self.inner.list(request).await
    }

    async fn delete(&self, path: &ObjectPath) -> Result<bool, Error> {
        self.inner.delete(path).await
    }
}

/// A worker over a store that is held.
async fn held_world() -> (World, Arc<SlowStore>) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SlowStore {
        inner: LocalStore::open(folder.path(), None).unwrap(),
        held: watch::Sender::new(true),
        asked: AtomicUsize::new(0),
    });
    let objects = Arc::clone(&store) as Arc<dyn ObjectStore>;
    let metadata: Arc<dyn MetadataStore> = Arc::new(InProcessStore::new());
    let record = Arc::<Record>::default();
    let engine: Arc<dyn Engine> = Arc::new(Double {
        device: Device::Cpu,
        staged: false,
        is_isolated: false,
        record: Arc::clone(&record),
    });
    let stores = (Arc::clone(&objects), Arc::clone(&metadata));
    let (worker, mut service) = Worker::start(config(), vec![engine], stores.0, stores.1).unwrap();
    service.announce().await;
    let world = World {
        worker,
        service: Some(service),
        metadata,
        objects,
        record,
        folder,
    };
    (world, store)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_fetches_past_its_window_has_started_inside_it() {
    let (world, store) = held_world().await;
    let variant = world.variant("m-1", "m-1", 100).await;
    let latest = Instant::now() + Duration::from_secs(3);
    let loading = world.loading(Load {
        latest: Some(latest),
        expected: Duration::from_millis(100),
        ..Load::at_once(Arc::clone(&variant))
    });
    until(|| store.asked.load(Ordering::SeqCst) == 1).await;
    while Instant::now() <= latest {
        tokio::task::yield_now().await;
    }
    store.held.send_replace(false);
    loading.await.unwrap().unwrap();
    assert_eq!(world.state(&variant).await, Some(InstanceState::Active));
    let stats = world.worker.stats().await.unwrap();
    let loads = &stats.actions[&ActionKind::Load];
    let errors = (loads.under_predicted.count, loads.over_predicted.count);
    assert_eq!(errors, (1, 0), "it took longer than was expected");
}
