//! How long a model waits for room, on a clock that only the tests advance.

use std::{sync::mpsc as blocking, thread};

use sextant_engine::LoadedModel;
use tokio::{
    sync::oneshot,
    task::{spawn_blocking, yield_now},
    time::{Instant, advance, pause},
};

use super::{super::*, FullWorker, request};

type MeasureResult = Result<Arc<dyn LoadedModel>, sextant_engine::Error>;

/// Seconds in which a model must be refused after its limit. The clock advances while other threads work, so a wait may
/// begin later on the clock than its load.
const LATE: u64 = 30;

/// A full device, and a clock that stands still. Left to itself, a paused clock advances whenever all tasks wait, however
/// long the device's threads take for what they do.
struct Stopped {
    full: FullWorker,
    /// A blocking task keeps the clock from advancing until this is dropped.
    _clock: blocking::Sender<()>,
}

impl std::ops::Deref for Stopped {
    type Target = FullWorker;

    fn deref(&self) -> &FullWorker {
        &self.full
    }
}

async fn full() -> Stopped {
    let full = FullWorker::new(Kind::Dedicated).await;
    pause();
    let (clock, dropped) = blocking::channel::<()>();
    spawn_blocking(move || dropped.recv().is_err());
    Stopped {
        full,
        _clock: clock,
    }
}

/// Advances the clock in small steps, each of which takes other threads a millisecond, until the future is ready.
async fn advance_until<T>(step: Duration, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    loop {
        tokio::select! {
            biased;
            ready = &mut future => return ready,
            () = yield_now() => {}
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "other threads get time, and nothing is waited for"
        )]
        thread::sleep(Duration::from_millis(1));
        advance(step).await;
    }
}

/// The model, if it was loaded within a second of the clock.
async fn loaded_at_once(loading: oneshot::Receiver<MeasureResult>) -> Arc<dyn LoadedModel> {
    let begun = Instant::now();
    let loaded = advance_until(Duration::from_millis(1), loading).await;
    assert!(begun.elapsed() < Duration::from_secs(1));
    loaded.unwrap().unwrap()
}

/// Loads a model on a thread of its own.
fn measure(full: &FullWorker, file: &'static str) -> oneshot::Receiver<MeasureResult> {
    let (sender, loaded) = oneshot::channel();
    let host = Arc::clone(&full.host);
    thread::spawn(move || sender.send(host.load(&request(file))).is_ok());
    loaded
}

/// The same, and returns when the load waits for room.
async fn waits(full: &FullWorker, file: &'static str) -> oneshot::Receiver<MeasureResult> {
    let (tries, loading) = (full.tries(), measure(full, file));
    tries.await;
    loading
}

/// Waits until a load is refused, and returns the reason. Asserts that it has waited this long.
async fn refused_after(seconds: u64, loading: oneshot::Receiver<MeasureResult>) -> String {
    let begun = Instant::now();
    let measured = advance_until(Duration::from_millis(100), loading).await;
    let waited = begun.elapsed().as_secs();
    assert!((seconds..=seconds + LATE).contains(&waited), "{waited} s");
    refused(measured.unwrap())
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
    let text = refused_after(30, measure(&full, "m-6")).await;
    assert!(text.contains("`200` of them could not be freed"), "{text}");
    assert_eq!(full.loaded(), [1, 2, 3, 4, 5]);
    // An instance that becomes idle in time makes room.
    let loading = waits(&full, "m-6").await;
    advance(Duration::from_secs(29)).await;
    full.world.record.release(Step::Exec);
    for outcome in sent {
        outcome.ok();
    }
    loaded_at_once(loading).await;
    assert_eq!(full.loaded().len(), 4);
}

#[tokio::test]
async fn models_that_are_measured_are_waited_for_five_minutes() {
    let full = full().await;
    empty(&full).await;
    let first = measure(&full, "half 1").await.unwrap().unwrap();
    // One of them waits for pages, the other one for its turn.
    let second = waits(&full, "half 2").await;
    let third = waits(&full, "half 3").await;
    refused_after(300, second).await;
    refused_after(0, third).await;
    let loading = waits(&full, "half 2").await;
    advance(Duration::from_secs(299)).await;
    drop(first);
    loaded_at_once(loading).await;
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
    advance(Duration::from_secs(100)).await;
    drop(first);
    let second = loaded_at_once(second).await;
    advance(Duration::from_secs(10)).await;
    full.world.record.release(Step::Exec);
    for outcome in sent {
        outcome.ok();
    }
    drop(second);
    loaded_at_once(whole).await;
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
    advance(Duration::from_secs(100)).await;
    drop(first);
    let last = guest();
    advance_until(Duration::from_millis(1), full.tries()).await;
    advance(Duration::from_secs(28)).await;
    drop(last);
    drop(loaded_at_once(loading).await);
    // If pages are never given back, the wait ends nevertheless.
    let _last = guest();
    let text = refused_after(30, measure(&full, "half 3")).await;
    assert!(text.contains("could not be freed"), "{text}");
    drop(guests);
}
