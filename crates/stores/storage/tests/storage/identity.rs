//! A registry and a store that do, and do not, belong together.

use std::{sync::Arc, time::Duration};

use sextant_objects::{LocalStore, ObjectStore};
use sextant_registry::Registry;
use sextant_storage::{Error, Storage};
use sextant_test_servers::postgres::Postgres;
use sextant_types::{Code, Digest, StoreId};

use crate::support::{Bench, CONFIG};

/// A model, and an unreferenced blob that is old enough to be swept at once.
async fn fill(bench: &Bench) -> [Digest; 3] {
    let model = bench.put("model").await;
    let validation = bench.put("validation").await;
    bench.register("m", (model, validation)).await;
    bench.put_file("in.jsonl", "a record").await;
    [model, validation, bench.put("nobody's").await]
}

async fn all_there(bench: &Bench, blobs: &[Digest]) -> bool {
    for blob in blobs {
        if !bench.has(blob).await {
            return false;
        }
    }
    bench.has_file("in.jsonl").await
}

fn refused(done: Result<impl std::fmt::Debug, Error>) -> String {
    let error = done.expect_err("they do not belong together");
    assert_eq!(error.code(), Code::StoreMismatch, "{error}");
    error.to_string()
}

/// A new registry replaces the one that belongs to the store.
async fn a_store_keeps_all_from_a_registry_that_is_not_its_own(bench: Bench, other: Registry) {
    let blobs = fill(&bench).await;
    let own = bench.storage(CONFIG);
    let stranger = Storage::new(other, Arc::clone(&bench.objects), CONFIG);
    for _ in 0..2 {
        refused(stranger.sweep(Some(Duration::ZERO)).await);
        let told = refused(stranger.check().await);
        assert!(
            told.contains("sextant restore") && told.contains("adopt"),
            "{told}"
        );
        stranger.give_back(&blobs).await;
        assert!(all_there(&bench, &blobs).await);
    }
    assert!(stranger.mismatch().is_some());
    // The first registry returns.
    own.check().await.expect("they know each other");
    let freed = own.sweep(Some(Duration::ZERO)).await.expect("swept");
    assert_eq!(freed.blobs.objects, 1);
    // The other registry adopts the store, and the first one no longer belongs to it.
    stranger.adopt().await.expect("adopted");
    assert_eq!(stranger.mismatch(), None);
    refused(own.sweep(Some(Duration::ZERO)).await);
    assert!(all_there(&bench, &blobs[..2]).await);
    let freed = stranger.sweep(Some(Duration::ZERO)).await.expect("swept");
    assert_eq!(freed.blobs.objects, 2);
}

#[tokio::test]
async fn a_folder_keeps_all_from_a_registry_that_is_not_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let other = Registry::open(folder.path().join("registry.sqlite")).await;
    let bench = Bench::folder().await;
    a_store_keeps_all_from_a_registry_that_is_not_its_own(bench, other.expect("a registry")).await;
}

#[tokio::test]
async fn a_bucket_keeps_all_from_a_database_that_is_not_its_own() {
    let url = Postgres::shared().database("storage_identity_other");
    let other = Registry::connect(&url).await.expect("a registry");
    let bench = Bench::fleet("storage_identity").await;
    a_store_keeps_all_from_a_registry_that_is_not_its_own(bench, other).await;
}

#[tokio::test]
async fn what_was_there_before_there_were_names_joins_where_it_agrees() {
    let bench = Bench::unnamed_folder().await;
    fill(&bench).await;
    let storage = bench.storage(CONFIG);
    storage.meet().await.expect("the registry names a file");
    let named = bench.registry.identity().await.expect("an answer");
    assert!(named.is_some());
    assert_eq!(bench.objects.identity().await.expect("an answer"), named);
    let bench = Bench::unnamed_folder().await;
    bench.put("of another registry").await;
    refused(bench.storage(CONFIG).sweep(Some(Duration::ZERO)).await);
    assert_eq!(bench.registry.identity().await.expect("an answer"), None);
}

#[tokio::test]
async fn a_store_that_lost_its_name_gets_it_back_where_the_two_agree() {
    let bench = Bench::folder().await;
    let blobs = fill(&bench).await;
    let named = bench.registry.identity().await.expect("an answer");
    // The same files without the name, and the store of another registry.
    let folder = tempfile::tempdir().expect("a folder");
    let open = |name: &str| LocalStore::open(folder.path().join(name), None).expect("a store");
    for (objects, content, agrees) in [
        (open("same"), &b"model"[..], true),
        (open("other"), b"another's", false),
        (open("empty"), b"", true),
    ] {
        if !content.is_empty() {
            objects.put_blob(content.into()).await.expect("stored");
        }
        let objects: Arc<dyn ObjectStore> = Arc::new(objects);
        let storage = Storage::new(bench.registry.clone(), Arc::clone(&objects), CONFIG);
        match agrees {
            true => {
                storage.meet().await.expect("they agree");
                assert_eq!(objects.identity().await.expect("an answer"), named);
            }
            false => {
                refused(storage.meet().await);
                assert_eq!(objects.identity().await.expect("an answer"), None);
            }
        }
    }
    assert!(all_there(&bench, &blobs).await);
}

#[tokio::test]
async fn whoever_waits_goes_on_once_it_is_mended() {
    let bench = Bench::folder().await;
    fill(&bench).await;
    let own = bench.registry.identity().await.expect("an answer");
    let other = StoreId::from_bits(1);
    bench.objects.set_identity(other).await.expect("named");
    let storage = bench.storage(CONFIG);
    refused(storage.meet().await);
    let waits = tokio::spawn({
        let storage = storage.clone();
        async move { storage.until_together().await }
    });
    let own = own.expect("it has a name");
    bench.objects.set_identity(own).await.expect("named");
    // A registration that comes meanwhile calls this.
    storage.check().await.expect("they belong together");
    let waited = tokio::time::timeout(Duration::from_secs(60), waits).await;
    waited.expect("in time").expect("it waited");
}
