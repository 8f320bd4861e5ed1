//! Blobs to which nothing refers.

use std::time::Duration;

use serde_json::json;
use sextant_registry::{Error, JobKind};
use sextant_storage::Amount;

use crate::support::{Bench, CONFIG, new_model, register_job};

async fn only_what_nothing_refers_to_goes(bench: Bench) {
    let used = (bench.put("model").await, bench.put("validation").await);
    let made = bench.put("made of it").await;
    let refused = bench.put("a refused upload").await;
    bench.register("m", used).await;
    let claimed = bench.registry.claim(JobKind::Register, "me", 60_000, 1);
    let job = claimed.await.expect("an answer").expect("a job");
    let step = json!({"outcome": "made", "artefact": made, "nodes": ["a"]});
    let stored = bench
        .registry
        .put_step_held(&job.id, "me", "generate:int8", &step);
    stored.await.expect("stored");
    let storage = bench.storage(CONFIG);
    let freed = storage.sweep(None).await.expect("swept");
    let wanted = Amount {
        objects: 1,
        bytes: 16,
    };
    assert_eq!(freed.blobs, wanted);
    assert!(!bench.has(&refused).await);
    for digest in [&used.0, &used.1, &made] {
        assert!(bench.has(digest).await, "{digest}");
    }
    // All files of the model are removed with it.
    bench.registry.cancel(&job.id, 2).await.expect("cancelled");
    let model = job.model.expect("a model");
    let deleted = bench.registry.delete_model(&model, 3).await;
    deleted.expect("deleted");
    let freed = storage.sweep(None).await.expect("swept");
    assert_eq!(freed.blobs.objects, 3);
    assert_eq!(storage.usage().await.expect("an answer").total.bytes, 0);
}

#[tokio::test]
async fn only_what_nothing_refers_to_goes_from_a_folder() {
    only_what_nothing_refers_to_goes(Bench::folder().await).await;
}

#[tokio::test]
async fn only_what_nothing_refers_to_goes_from_a_bucket() {
    only_what_nothing_refers_to_goes(Bench::fleet("storage_blobs").await).await;
}

#[tokio::test]
async fn what_is_young_stays() {
    let bench = Bench::folder().await;
    let digest = bench.put("on its way").await;
    let storage = bench.storage(CONFIG);
    let swept = storage.sweep(Some(Duration::from_secs(3600))).await;
    assert_eq!(swept.expect("swept").blobs, Amount::default());
    assert!(bench.has(&digest).await);
    let swept = storage.sweep(Some(Duration::ZERO)).await;
    assert_eq!(swept.expect("swept").blobs.objects, 1);
}

async fn the_condemned_are_referred_to_by_nobody(bench: Bench) {
    let digest = bench.put("model").await;
    let registry = &bench.registry;
    let condemned = registry.condemn(&[digest], 1).await.expect("an answer");
    assert_eq!(condemned, [digest]);
    let again = registry.condemn(&[digest], 2).await.expect("an answer");
    assert_eq!(again, [], "one at a time");
    let new = new_model("m", (digest, digest));
    let refused = registry.register_model(&new, &register_job("m"), 3).await;
    assert!(matches!(refused, Err(Error::Condemned { digest: it }) if it == digest));
    assert_eq!(registry.models(None).await.expect("an answer"), []);
    let other = bench.put("other").await;
    bench.register("m", (other, other)).await;
    let claimed = registry.claim(JobKind::Register, "me", 60_000, 4).await;
    let job = claimed.expect("an answer").expect("a job");
    let step = json!({"artefact": digest});
    let refused = registry.put_step_held(&job.id, "me", "s", &step).await;
    assert!(
        matches!(refused, Err(Error::Condemned { .. })),
        "{refused:?}"
    );
    registry.acquit(&[digest]).await.expect("acquitted");
    let stored = registry.put_step_held(&job.id, "me", "s", &step).await;
    stored.expect("it may be referred to again");
    let none = registry.condemn(&[digest, other], 5).await;
    assert_eq!(none.expect("an answer"), []);
}

#[tokio::test]
async fn the_condemned_are_referred_to_by_nobody_in_a_file() {
    the_condemned_are_referred_to_by_nobody(Bench::folder().await).await;
}

#[tokio::test]
async fn the_condemned_are_referred_to_by_nobody_in_a_database() {
    the_condemned_are_referred_to_by_nobody(Bench::fleet("storage_condemned").await).await;
}

#[tokio::test]
async fn what_a_dead_process_condemned_is_acquitted_and_goes_with_the_next_sweep() {
    let bench = Bench::folder().await;
    let digest = bench.put("left").await;
    let condemned = bench.registry.condemn(&[digest], 1).await;
    assert_eq!(condemned.expect("an answer"), [digest]);
    let freed = bench.storage(CONFIG).sweep(None).await.expect("swept");
    assert_eq!(freed.blobs.objects, 1);
    assert_eq!(bench.registry.condemned().await.expect("an answer"), []);
}
