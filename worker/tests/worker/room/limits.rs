//! How long a model waits for room, on a clock that advances only when all tasks wait.

use sextant_engine::LoadedModel;
use tokio::{
    sync::oneshot,
    time::{Instant, pause, sleep},
};

use super::{super::*, FullWorker, request};

type MeasureResult = Result<Arc<dyn LoadedModel>, sextant_engine::Error>;

/// A full device with a paused clock.
async fn full() -> FullWorker {
    let full = FullWorker::new(Kind::Dedicated).await;
    pause();
    full
}

/// Loads a model on a thread of its own. Waiting for it does not stop the clock.
fn measure(full: &FullWorker, file: &'static str) -> oneshot::Receiver<MeasureResult> {
    let (sender, loaded) = oneshot::channel();
    let host = Arc::clone(&full.host);
    std::thread::spawn(move || sender.send(host.load(&request(file))).is_ok());
    loaded
}

/// The same, and returns when the load waits for room.
async fn waits(full: &FullWorker, file: &'static str) -> oneshot::Receiver<MeasureResult> {
    let (tries, loading) = (full.tries(), measure(full, file));
    tries.await;
    loading
}

/// Asserts that a wait took this long. The clock runs ahead while another thread does real work, so a second or two more
/// are no error.
fn assert_waited(begun: Instant, seconds: u64) {
    let waited = begun.elapsed().as_secs();
    assert!((seconds..=seconds + 2).contains(&waited), "{waited} s");
}

fn refused(measured: MeasureResult) -> String {
    match measured {
        Err(error @ sextant_engine::Error::Unavailable { .. }) => error.to_string(),
        other => panic!("{:?}", other.map(drop)),
    }
}

/// Gives every variant a batch that runs or waits.
async fn keep_busy(full: &FullWorker) -> Vec<Outcome> {
    full.world.record.hold(Step::Exec, None);
    let sent = (1..=5).map(|key| full.world.infer(&format!("m-{key}"), key, now()));
    let sent = sent.collect();
    full.world.record.begun(Step::Exec, 1).await;
    sent
}

async fn empty(full: &FullWorker) {
    for variant in &full.variants {
        full.world.worker.unload(&variant.id).await.unwrap();
    }
}

#[tokio::test]
async fn busy_instances_are_waited_for_thirty_seconds() {
    let full = full().await;
    let sent = keep_busy(&full).await;
    let begun = Instant::now();
    let text = refused(measure(&full, "m-6").await.unwrap());
    assert!(text.contains("`200` of them could not be freed"), "{text}");
    assert_waited(begun, 30);
    assert_eq!(full.loaded(), [1, 2, 3, 4, 5]);
    // An instance that becomes idle in time makes room.
    let loading = waits(&full, "m-6").await;
    sleep(Duration::from_secs(29)).await;
    full.world.record.release(Step::Exec);
    loading.await.unwrap().unwrap();
    assert_eq!(full.loaded().len(), 4);
    for outcome in sent {
        outcome.ok();
    }
}

#[tokio::test]
async fn models_that_are_measured_are_waited_for_five_minutes() {
    let full = full().await;
    empty(&full).await;
    let first = measure(&full, "half 1").await.unwrap().unwrap();
    let begun = Instant::now();
    // One of them waits for pages, the other one for its turn.
    let second = waits(&full, "half 2").await;
    let third = measure(&full, "half 3");
    refused(second.await.unwrap());
    assert_waited(begun, 300);
    refused(third.await.unwrap());
    let loading = waits(&full, "half 2").await;
    sleep(Duration::from_secs(299)).await;
    drop(first);
    loading.await.unwrap().unwrap();
}

#[tokio::test]
async fn who_has_waited_for_a_model_still_waits_for_instances() {
    let full = full().await;
    for variant in &full.variants[2..] {
        full.world.worker.unload(&variant.id).await.unwrap();
    }
    let first = measure(&full, "half 1").await.unwrap().unwrap();
    full.world.record.hold(Step::Exec, None);
    let sent = ["m-1", "m-2"].map(|name| full.world.infer(name, 1, now()));
    full.world.record.begun(Step::Exec, 1).await;
    let second = waits(&full, "half 2").await;
    let whole = waits(&full, "whole 1").await;
    sleep(Duration::from_secs(100)).await;
    drop(first);
    let second = second.await.unwrap().unwrap();
    sleep(Duration::from_secs(10)).await;
    full.world.record.release(Step::Exec);
    for outcome in sent {
        outcome.ok();
    }
    drop(second);
    whole.await.unwrap().unwrap();
    assert!(full.loaded().is_empty());
}

#[tokio::test]
async fn who_has_waited_for_pages_still_waits_for_the_engine_to_have_them() {
    let full = full().await;
    empty(&full).await;
    let first = measure(&full, "half 1").await.unwrap().unwrap();
    // The worker does not know of these models.
    let guest = || full.engine.load(&request("m-6")).unwrap();
    let guests = [guest(), guest()];
    let loading = waits(&full, "half 2").await;
    sleep(Duration::from_secs(100)).await;
    drop(first);
    let last = guest();
    let tries = full.tries();
    sleep(Duration::from_secs(1)).await;
    tries.await;
    sleep(Duration::from_secs(28)).await;
    drop(last);
    drop(loading.await.unwrap().unwrap());
    // If pages are never given back, the wait ends nevertheless.
    let _last = guest();
    let begun = Instant::now();
    let text = refused(measure(&full, "half 3").await.unwrap());
    assert!(text.contains("could not be freed"), "{text}");
    assert_waited(begun, 30);
    drop(guests);
}
