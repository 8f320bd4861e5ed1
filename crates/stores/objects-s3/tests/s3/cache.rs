//! A worker's cache in front of the bucket.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use sextant_objects::{CachedStore, Error, ObjectStore};
use sextant_objects_s3::{Credentials, S3Config, S3Store};
use sextant_test_servers::s3::{Fault, Request, S3};

use super::support::{content, path, start, stream};

/// The size of one request of the cache.
const PIECE_BYTES: u64 = 8 << 20;

fn open(store: S3Store, folder: &Path) -> CachedStore {
    CachedStore::open(Arc::new(store), folder, 64 << 20).expect("a cache")
}

/// Lets the first piece of a download through and applies `fault` to the others.
fn after_the_first(fault: Fault) -> impl FnMut(&Request) -> Option<Fault> {
    move |request| {
        let later = request.first_byte.is_some_and(|first| first > 0);
        later.then_some(fault)
    }
}

#[tokio::test]
async fn a_download_that_failed_goes_on_where_it_ended() {
    let (store, server) = start().await;
    let folder = tempfile::tempdir().unwrap();
    let whole = content(30, 2 * PIECE_BYTES as usize + 1_000);
    let digest = store.put_blob_stream(stream(&whole)).await.unwrap().digest;
    let cache = open(store, folder.path());
    server.faults().set(after_the_first(Fault::SlowDown));
    let read = cache.get_blob(&digest).await;
    assert!(matches!(read, Err(Error::Unavailable { .. })), "{read:?}");
    let first = cache.stats();
    server.faults().clear();
    assert_eq!(cache.get_blob(&digest).await.unwrap(), whole);
    let stats = cache.stats();
    assert_eq!(stats.resumed, 1);
    assert_eq!(first.fetched_bytes, PIECE_BYTES);
    assert_eq!(stats.fetched_bytes, whole.len() as u64);
    assert_eq!(cache.get_blob(&digest).await.unwrap(), whole);
    assert_eq!(cache.stats().hits, 1);
}

const CHILD: [&str; 3] = [
    "SEXTANT_OBJECTS_S3_TEST_ENDPOINT",
    "SEXTANT_OBJECTS_S3_TEST_FOLDER",
    "SEXTANT_OBJECTS_S3_TEST_DIGEST",
];

/// Not a test: this runs in the process that the next test kills.
#[tokio::test]
async fn child_reads_until_killed() {
    let [Some(endpoint), Some(folder), Some(digest)] = CHILD.map(|name| std::env::var(name).ok())
    else {
        return;
    };
    let config = S3Config {
        prefix: "some/fleet/".into(),
        endpoint: Some(endpoint),
        path_style: true,
        credentials: Credentials::Environment,
        timeout: Duration::from_secs(600),
        ..S3Config::new("artefacts")
    };
    let cache = open(S3Store::open(config).await.unwrap(), Path::new(&folder));
    cache.get_blob(&digest.parse().unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_download_whose_process_was_killed_goes_on_in_the_next() {
    let (store, server) = start().await;
    let folder = tempfile::tempdir().unwrap();
    let whole = content(31, 2 * PIECE_BYTES as usize + 1_000);
    let digest = store.put_blob_stream(stream(&whole)).await.unwrap().digest;
    let part = folder.path().join(format!("{digest}.part"));
    let after_bytes = 500;
    let stalled = after_the_first(Fault::Stall { after_bytes });
    server.faults().set(stalled);
    let mut child = child(&server, folder.path(), &digest.to_string());
    while fs::metadata(&part).map_or(0, |part| part.len()) < PIECE_BYTES {
        assert!(child.try_wait().unwrap().is_none(), "the child ended");
        tokio::task::yield_now().await;
    }
    child.kill().unwrap();
    child.wait().unwrap();
    server.faults().clear();
    let cache = open(store, folder.path());
    assert_eq!(cache.get_blob(&digest).await.unwrap(), whole);
    let stats = cache.stats();
    assert_eq!((stats.resumed, stats.damaged), (1, 0));
    assert_eq!(stats.fetched_bytes, whole.len() as u64 - PIECE_BYTES);
    assert!(!part.exists());
}

fn child(server: &S3, folder: &Path, digest: &str) -> std::process::Child {
    let test = "s3::cache::child_reads_until_killed";
    Command::new(std::env::current_exe().expect("it has a path"))
        .args(["--exact", test, "--nocapture"])
        .env(CHILD[0], server.endpoint())
        .env(CHILD[1], folder)
        .env(CHILD[2], digest)
        .env("AWS_ACCESS_KEY_ID", server.access_key())
        .env("AWS_SECRET_ACCESS_KEY", server.secret_key())
        .stdout(Stdio::null())
        .spawn()
        .expect("the child starts")
}

#[tokio::test]
async fn a_read_given_up_is_taken_over_by_the_next() {
    let (store, server) = start().await;
    let folder = tempfile::tempdir().unwrap();
    let whole = content(35, 2 * PIECE_BYTES as usize + 1_000);
    let digest = store.put_blob_stream(stream(&whole)).await.unwrap().digest;
    let part = folder.path().join(format!("{digest}.part"));
    let cache = open(store, folder.path());
    let after_bytes = 500;
    server
        .faults()
        .set(after_the_first(Fault::Stall { after_bytes }));
    let [first, second] = [0, 1].map(|_| {
        let cache = cache.clone();
        tokio::spawn(async move { cache.get_blob(&digest).await })
    });
    while fs::metadata(&part).map_or(0, |part| part.len()) < PIECE_BYTES {
        tokio::task::yield_now().await;
    }
    server.faults().clear();
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    assert_eq!(second.await.unwrap().unwrap(), whole);
    let stats = cache.stats();
    assert_eq!((stats.resumed, stats.bypassed), (1, 0));
    assert_eq!(stats.fetched_bytes, whole.len() as u64);
}

#[tokio::test]
async fn many_who_ask_for_one_blob_cost_one_download() {
    let (store, server) = start().await;
    let folder = tempfile::tempdir().unwrap();
    let whole = content(32, 300_000);
    let digest = store.put_blob(whole.clone()).await.unwrap();
    let cache = open(store, folder.path());
    let before = server.faults().requests();
    let reads = (0..20).map(|_| cache.get_blob(&digest));
    for read in futures::future::join_all(reads).await {
        assert_eq!(read.unwrap(), whole);
    }
    // One for the size, one for the bytes.
    assert_eq!(server.faults().requests() - before, 2);
    assert_eq!(cache.stats().shared, 19);
}

#[tokio::test]
async fn when_the_store_is_away_all_who_wait_hear_of_it_together() {
    let (store, server) = start().await;
    let folder = tempfile::tempdir().unwrap();
    let known = store.put_blob(content(33, 1_000)).await.unwrap();
    let unknown = store.put_blob(content(34, 1_000)).await.unwrap();
    let cache = open(store, folder.path());
    cache.get_blob(&known).await.unwrap();
    server.faults().set(|_| Some(Fault::SlowDown));
    let before = server.faults().requests();
    let reads = (0..20).map(|_| cache.get_blob(&unknown));
    for read in futures::future::join_all(reads).await {
        assert!(matches!(read, Err(Error::Unavailable { .. })), "{read:?}");
    }
    // The attempts of one request, not of twenty.
    assert_eq!(server.faults().requests() - before, 10);
    assert_eq!(cache.get_blob(&known).await.unwrap(), content(33, 1_000));
    let missing = cache.get(&path("no/file")).await;
    assert!(
        matches!(missing, Err(Error::Unavailable { .. })),
        "{missing:?}"
    );
    server.faults().clear();
    assert_eq!(cache.get_blob(&unknown).await.unwrap(), content(34, 1_000));
}
