//! Sweeps without a grace concurrent with uploads of a few contents, at random moments.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_objects::{
    BlobPage, ByteStream, Error, ListRequest, ObjectInfo, ObjectPath, ObjectStore, Page, PutBlob,
    digest_of,
};
use sextant_registry::{Error as RegistryError, Registry};
use sextant_storage::Storage;
use sextant_types::{Digest, ModelId, StoreId};
use tokio::task::JoinSet;

use crate::support::{Bench, CONFIG, new_model, register_job};

/// Few enough that uploads and sweeps often meet.
const CONTENTS: u64 = 3;

/// Long enough for an upload to be stored, registered and checked meanwhile.
const HESITATION: Duration = Duration::from_millis(40);

/// The result of an upload.
#[derive(Debug, PartialEq, Eq)]
enum UploadOutcome {
    Registered,
    /// Its files were removed before it was registered.
    ToBeSentAgain,
}

fn content(number: u64) -> Bytes {
    Bytes::from(format!("content {number}"))
}

async fn pause(random: &mut ChaCha8Rng) {
    for _ in 0..random.random_range(0..4) {
        tokio::task::yield_now().await;
    }
    if random.random_bool(0.1) {
        tokio::time::sleep(Duration::from_micros(random.random_range(0..500))).await;
    }
}

/// The same steps as those of the front end: files, rows, a second look.
async fn send(bench: &Bench, name: &str, random: &mut ChaCha8Rng) -> UploadOutcome {
    let mut files = Vec::new();
    for _ in 0..2 {
        files.push(bench.put(content(random.random_range(0..CONTENTS))).await);
        pause(random).await;
    }
    let new = new_model(name, (files[0], files[1]));
    let job = register_job(name);
    let job = loop {
        match bench.registry.register_model(&new, &job, 1).await {
            Ok(registration) => break registration.job,
            Err(RegistryError::Condemned { .. }) => pause(random).await,
            Err(error) => panic!("{error}"),
        }
    };
    for digest in &files {
        if !bench.has(digest).await {
            let cancelled = bench.registry.cancel(&job.id, 2).await;
            cancelled.expect("cancelled");
            delete(&bench.registry, name).await;
            return UploadOutcome::ToBeSentAgain;
        }
    }
    // From now on they must stay.
    for _ in 0..3 {
        pause(random).await;
        for digest in &files {
            assert!(bench.has(digest).await, "`{digest}` of `{name}` is gone");
        }
    }
    bench.registry.cancel(&job.id, 2).await.expect("cancelled");
    UploadOutcome::Registered
}

async fn delete(registry: &Registry, name: &str) {
    let model = ModelId::new(name).expect("a name");
    let deleted = registry.delete_model(&model, 3).await;
    deleted.expect("deleted");
}

async fn upload_again_and_again(bench: Arc<Bench>, sender: u64, rounds: u64, seed: u64) -> u64 {
    let mut random = ChaCha8Rng::seed_from_u64(seed * 1000 + sender);
    let mut again = 0;
    for round in 0..rounds {
        let name = format!("model-{sender}-{round}");
        match send(&bench, &name, &mut random).await {
            UploadOutcome::ToBeSentAgain => again += 1,
            UploadOutcome::Registered if random.random_bool(0.9) => {
                delete(&bench.registry, &name).await;
            }
            UploadOutcome::Registered => {}
        }
    }
    again
}

async fn race(bench: Bench, (senders, rounds): (u64, u64), seed: u64) {
    let bench = Arc::new(bench);
    let mut uploads = JoinSet::new();
    for sender in 0..senders {
        uploads.spawn(upload_again_and_again(
            Arc::clone(&bench),
            sender,
            rounds,
            seed,
        ));
    }
    // Like those of two processes that both believe to lead.
    let sweepers = [bench.storage(CONFIG), bench.storage(CONFIG)];
    let mut again = 0;
    let over = Arc::new(AtomicBool::new(false));
    let sweeping = sweepers.map(|storage| tokio::spawn(sweep_on(storage, Arc::clone(&over))));
    while let Some(ended) = uploads.join_next().await {
        again += ended.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    over.store(true, Ordering::Release);
    for sweeper in sweeping {
        let ended = sweeper.await;
        ended.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    let swept = bench.storage(CONFIG).sweep(None).await;
    swept.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let models = bench.registry.models(None).await.expect("an answer");
    let used = |digest: &Digest| {
        let mut models = models.iter();
        models.any(|model| model.digest == *digest || model.validation == *digest)
    };
    for number in 0..CONTENTS {
        let digest = digest_of(&content(number));
        assert_eq!(
            bench.has(&digest).await,
            used(&digest),
            "seed {seed}: `{digest}`"
        );
    }
    let condemned = bench.registry.condemned().await.expect("an answer");
    assert_eq!(condemned, [], "seed {seed}");
    assert!(again < senders * rounds, "seed {seed}: nobody came through");
}

async fn sweep_on(storage: Storage, over: Arc<AtomicBool>) {
    while !over.load(Ordering::Acquire) {
        storage.sweep(None).await.expect("swept");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_blob_that_is_referred_to_is_lost_from_a_folder() {
    for seed in 0..4 {
        race(Bench::folder().await, (4, 15), seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_blob_that_is_referred_to_is_lost_from_a_store_that_looks_before_it_removes() {
    for seed in 10..14 {
        let mut bench = Bench::folder().await;
        bench.objects = Arc::new(HesitantStore(bench.objects));
        race(bench, (4, 15), seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_blob_that_is_referred_to_is_lost_from_a_bucket() {
    race(Bench::fleet("storage_race").await, (3, 5), 20).await;
}

/// A store that looks at the age of a blob, waits, and then removes it, like one behind a network.
struct HesitantStore(Arc<dyn ObjectStore>);

#[async_trait]
impl ObjectStore for HesitantStore {
    async fn identity(&self) -> Result<Option<StoreId>, Error> {
        self.0.identity().await
    }

    async fn set_identity(&self, identity: StoreId) -> Result<(), Error> {
        self.0.set_identity(identity).await
    }

    async fn put_blob(&self, bytes: Bytes) -> Result<Digest, Error> {
        self.0.put_blob(bytes).await
    }

    async fn put_blob_stream(&self, bytes: ByteStream<'_>) -> Result<PutBlob, Error> {
        self.0.put_blob_stream(bytes).await
    }

    async fn get_blob(&self, digest: &Digest) -> Result<Bytes, Error> {
        self.0.get_blob(digest).await
    }

    async fn get_blob_range(&self, digest: &Digest, range: Range<u64>) -> Result<Bytes, Error> {
        self.0.get_blob_range(digest, range).await
    }

    async fn stat_blob(&self, digest: &Digest) -> Result<Option<u64>, Error> {
        self.0.stat_blob(digest).await
    }

    async fn list_blobs(&self, after: Option<&Digest>, limit: usize) -> Result<BlobPage, Error> {
        self.0.list_blobs(after, limit).await
    }

    async fn delete_blob_stored_by(
        &self,
        digest: &Digest,
        stored_by_ms: u64,
    ) -> Result<bool, Error> {
        let page = self.0.list_blobs(None, 1000).await?;
        let mut blobs = page.blobs.iter();
        if blobs.any(|blob| blob.digest == *digest && blob.stored_ms > stored_by_ms) {
            return Ok(false);
        }
        tokio::time::sleep(HESITATION).await;
        self.0.delete_blob(digest).await
    }

    async fn put(&self, path: &ObjectPath, bytes: Bytes) -> Result<(), Error> {
        self.0.put(path, bytes).await
    }

    async fn put_stream(&self, path: &ObjectPath, bytes: ByteStream<'_>) -> Result<u64, Error> {
        self.0.put_stream(path, bytes).await
    }

    async fn get(&self, path: &ObjectPath) -> Result<Bytes, Error> {
        self.0.get(path).await
    }

    async fn get_range(&self, path: &ObjectPath, range: Range<u64>) -> Result<Bytes, Error> {
        self.0.get_range(path, range).await
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Option<ObjectInfo>, Error> {
        self.0.stat(path).await
    }

    async fn list(&self, request: &ListRequest) -> Result<Page, Error> {
        self.0.list(request).await
    }

    async fn delete(&self, path: &ObjectPath) -> Result<bool, Error> {
        self.0.delete(path).await
    }
}
