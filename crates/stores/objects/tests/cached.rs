//! The cache in front of another store, here in a local folder.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_objects::{
    CachedStore, Error, LocalStore, ObjectStore, bind_object_conformance, conformance::Store,
};
use sextant_types::Digest;
use tempfile::TempDir;

struct Bench {
    store: Arc<LocalStore>,
    folder: TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = LocalStore::open(folder.path().join("store"), None).expect("a store");
        let store = Arc::new(store);
        Self { store, folder }
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn open(&self, max_bytes: u64) -> CachedStore {
        CachedStore::open(self.store.clone(), self.cache(), max_bytes).expect("a cache")
    }

    async fn blob(&self, fill: u8, bytes: usize) -> Digest {
        let put = self.store.put_blob(content(fill, bytes)).await;
        put.expect("stored")
    }

    fn is_cached(&self, digest: &Digest) -> bool {
        self.cache().join(digest.to_string()).exists()
    }
}

fn content(fill: u8, bytes: usize) -> Bytes {
    (0..bytes).map(|index| fill ^ index as u8).collect()
}

fn folder_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).expect("the folder can be read");
    let sizes = entries.map(|entry| Ok::<_, std::io::Error>(entry?.metadata()?.len()));
    sizes
        .sum::<Result<u64, _>>()
        .expect("the files can be seen")
}

async fn fresh() -> (Store, TempDir) {
    let bench = Bench::new();
    (Arc::new(bench.open(8 << 20)), bench.folder)
}

bind_object_conformance!(fresh());

#[tokio::test]
async fn a_blob_is_fetched_once_and_then_read_from_the_folder() {
    let bench = Bench::new();
    let digest = bench.blob(1, 100_000).await;
    let cache = bench.open(1 << 20);
    for _ in 0..3 {
        assert_eq!(cache.get_blob(&digest).await.unwrap(), content(1, 100_000));
    }
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses), (2, 1));
    assert_eq!((stats.fetched_bytes, stats.used_bytes), (100_000, 100_000));
    // This works also without the store.
    bench.store.delete_blob(&digest).await.unwrap();
    assert_eq!(cache.get_blob(&digest).await.unwrap(), content(1, 100_000));
    cache.delete_blob(&digest).await.unwrap();
    assert!(!bench.is_cached(&digest));
    let gone = cache.get_blob(&digest).await;
    assert!(matches!(gone, Err(Error::NotFound { .. })), "{gone:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_many_ask_one_fetches() {
    let bench = Bench::new();
    let whole = content(2, 3_000_000);
    let digest = bench.store.put_blob(whole.clone()).await.unwrap();
    let cache = bench.open(8 << 20);
    let reads: Vec<_> = (0..32)
        .map(|_| {
            let cache = cache.clone();
            tokio::spawn(async move { cache.get_blob(&digest).await })
        })
        .collect();
    for read in reads {
        assert_eq!(read.await.unwrap().unwrap(), whole);
    }
    let stats = cache.stats();
    assert_eq!((stats.misses, stats.fetched_bytes), (1, 3_000_000));
    assert_eq!(stats.hits + stats.shared, 31);
}

#[tokio::test]
async fn a_damaged_file_is_fetched_again() {
    let bench = Bench::new();
    let digest = bench.blob(3, 50_000).await;
    let cache = bench.open(1 << 20);
    cache.get_blob(&digest).await.unwrap();
    let file = bench.cache().join(digest.to_string());
    for damage in [
        content(4, 50_000).to_vec(),
        vec![],
        content(3, 50_001).to_vec(),
    ] {
        fs::write(&file, damage).unwrap();
        assert_eq!(cache.get_blob(&digest).await.unwrap(), content(3, 50_000));
        assert_eq!(fs::read(&file).unwrap(), content(3, 50_000));
    }
    fs::remove_file(&file).unwrap();
    assert_eq!(cache.get_blob(&digest).await.unwrap(), content(3, 50_000));
    assert_eq!(cache.stats().damaged, 4);
}

#[tokio::test]
async fn a_file_is_fetched_once_and_again_where_it_is_damaged() {
    let bench = Bench::new();
    let whole = content(4, 300_000);
    let digest = bench.store.put_blob(whole.clone()).await.unwrap();
    let cache = bench.open(1 << 20);
    let begun = bench.cache().join(format!("{digest}.part"));
    fs::write(begun, content(9, 1000)).unwrap();
    let cache = {
        drop(cache);
        bench.open(1 << 20)
    };
    let file = || async { cache.blob_file(&digest).await.unwrap().unwrap() };
    for damage in [None, Some(content(5, 300_000)), Some(content(4, 299_999))] {
        if let Some(damage) = damage {
            fs::write(file().await, damage).unwrap();
        }
        assert_eq!(fs::read(file().await).unwrap(), whole);
        assert_eq!(fs::read(file().await).unwrap(), whole);
    }
    assert_eq!(cache.get_blob(&digest).await.unwrap(), whole);
    // A blob larger than the cache has no file.
    let larger = bench.blob(7, 2 << 20).await;
    assert_eq!(cache.blob_file(&larger).await.unwrap(), None);
    let gone = cache.blob_file(&bench.blob(8, 10).await).await;
    assert!(gone.unwrap().is_some());
    // A blob that is damaged in the store has no file either; reading it reports the damage.
    let shard = bench.folder.path().join("store/blobs");
    let other = bench.blob(6, 1000).await;
    let name = other.to_string();
    fs::write(shard.join(&name[..2]).join(&name), b"nonsense").unwrap();
    assert_eq!(cache.blob_file(&other).await.unwrap(), None);
    let damaged = bench.store.blob_file(&other).await;
    assert!(matches!(damaged, Err(Error::Corrupt { .. })), "{damaged:?}");
}

#[tokio::test]
async fn a_download_goes_on_where_it_ended() {
    let whole = content(3, 50_000);
    for as_file in [false, true] {
        let bench = Bench::new();
        let digest = bench.blob(3, 50_000).await;
        fs::create_dir(bench.cache()).unwrap();
        let part = bench.cache().join(format!("{digest}.part"));
        fs::write(part, &whole[..20_000]).unwrap();
        let cache = bench.open(1 << 20);
        if as_file {
            let file = cache.blob_file(&digest).await.unwrap().unwrap();
            assert_eq!(fs::read(file).unwrap(), whole);
        } else {
            assert_eq!(cache.get_blob(&digest).await.unwrap(), whole);
        }
        let stats = cache.stats();
        assert_eq!((stats.resumed, stats.fetched_bytes), (1, 30_000));
    }
}

#[tokio::test]
async fn a_damaged_beginning_is_not_gone_on_with() {
    let bench = Bench::new();
    let digest = bench.blob(5, 50_000).await;
    fs::create_dir(bench.cache()).unwrap();
    let part = bench.cache().join(format!("{digest}.part"));
    for damage in [content(6, 20_000), content(5, 60_000)] {
        fs::write(&part, damage).unwrap();
        let cache = bench.open(1 << 20);
        assert_eq!(cache.get_blob(&digest).await.unwrap(), content(5, 50_000));
        assert!(!part.exists());
        assert_eq!(cache.get_blob(&digest).await.unwrap(), content(5, 50_000));
        assert_eq!(cache.stats().hits, 1);
        drop(cache);
        fs::remove_file(bench.cache().join(digest.to_string())).unwrap();
    }
}

#[tokio::test]
async fn damage_in_the_store_is_said_and_not_kept() {
    let bench = Bench::new();
    let digest = bench.blob(7, 50_000).await;
    let hex = digest.to_string();
    let stored = bench
        .folder
        .path()
        .join(format!("store/blobs/{}/{hex}", &hex[..2]));
    fs::write(stored, content(8, 50_000)).unwrap();
    let cache = bench.open(1 << 20);
    let read = cache.get_blob(&digest).await;
    assert!(matches!(read, Err(Error::Corrupt { .. })), "{read:?}");
    assert_eq!(cache.stats().used_bytes, 0);
    assert_eq!(folder_bytes(&bench.cache()), 0);
}

#[tokio::test]
async fn what_was_not_used_for_longest_goes_also_after_a_restart() {
    let bench = Bench::new();
    let mut digests = Vec::new();
    for fill in 10..13 {
        digests.push(bench.blob(fill, 100_000).await);
    }
    let cache = bench.open(300_000);
    for digest in &digests {
        cache.get_blob(digest).await.unwrap();
    }
    cache.get_blob(&digests[0]).await.unwrap();
    drop(cache);
    let cache = bench.open(300_000);
    let next = bench.blob(13, 150_000).await;
    cache.get_blob(&next).await.unwrap();
    assert!(bench.is_cached(&digests[0]), "it was used last");
    assert!(!bench.is_cached(&digests[1]) && !bench.is_cached(&digests[2]));
    assert_eq!(cache.stats().evicted, 2);
    assert_eq!(folder_bytes(&bench.cache()), 250_000);
    drop(cache);
    // A smaller bound holds from the start.
    let cache = bench.open(200_000);
    assert_eq!(cache.stats().used_bytes, 150_000);
    assert_eq!(folder_bytes(&bench.cache()), 150_000);
}

#[tokio::test]
async fn what_does_not_fit_goes_past_the_cache() {
    let bench = Bench::new();
    let (small, large) = (bench.blob(20, 1_000).await, bench.blob(21, 100_000).await);
    let cache = bench.open(50_000);
    cache.get_blob(&small).await.unwrap();
    assert_eq!(cache.get_blob(&large).await.unwrap(), content(21, 100_000));
    assert!(bench.is_cached(&small) && !bench.is_cached(&large));
    let stats = cache.stats();
    assert_eq!(
        (stats.bypassed, stats.evicted, stats.used_bytes),
        (1, 0, 1_000)
    );
}

#[tokio::test]
async fn a_cache_without_its_disk_still_reads() {
    let bench = Bench::new();
    let digest = bench.blob(22, 10_000).await;
    let cache = bench.open(50_000);
    cache.get_blob(&digest).await.unwrap();
    fs::remove_dir_all(bench.cache()).unwrap();
    for _ in 0..2 {
        assert_eq!(cache.get_blob(&digest).await.unwrap(), content(22, 10_000));
    }
    assert_eq!(cache.stats().used_bytes, 0);
}

#[test]
fn a_folder_serves_one_cache_and_keeps_what_is_not_ours() {
    let bench = Bench::new();
    fs::create_dir(bench.cache()).unwrap();
    fs::write(bench.cache().join("notes.txt"), "mine").unwrap();
    let cache = bench.open(10);
    let second = CachedStore::open(bench.store.clone(), bench.cache(), 10);
    let text = match second {
        Err(Error::Io { source, .. }) => source.to_string(),
        _ => panic!("two caches in one folder"),
    };
    assert!(text.contains("a folder of its own"), "{text}");
    drop(cache);
    bench.open(10);
    assert!(bench.cache().join("notes.txt").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bound_is_kept_under_random_reads() {
    const SEED: u64 = 7;
    const BOUND: u64 = 300_000;
    println!("seed {SEED}");
    let bench = Bench::new();
    let mut blobs = Vec::new();
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    for fill in 0..40 {
        let bytes = rng.random_range(0..60_000);
        blobs.push((bench.blob(fill, bytes).await, fill, bytes));
    }
    let cache = bench.open(BOUND);
    for round in 0..125 {
        let reads: Vec<_> = (0..8)
            .map(|_| {
                let (digest, fill, bytes) = blobs[rng.random_range(0..blobs.len())];
                let cache = cache.clone();
                tokio::spawn(async move {
                    let read = cache.get_blob(&digest).await.unwrap();
                    assert_eq!(read, content(fill, bytes));
                    assert!(cache.stats().used_bytes <= BOUND);
                })
            })
            .collect();
        for read in reads {
            read.await.unwrap();
        }
        let (counted, there) = (cache.stats().used_bytes, folder_bytes(&bench.cache()));
        assert_eq!(counted, there, "round {round}");
        assert!(there <= BOUND, "round {round}: {there} bytes");
    }
    let stats = cache.stats();
    assert_eq!(stats.hits + stats.misses + stats.shared, 1_000);
    assert!(stats.hits > 100 && stats.evicted > 100, "{stats:?}");
}
