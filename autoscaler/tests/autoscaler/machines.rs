//! Machines that exist while their workers are absent.

use sextant_autoscaler::Config;

use super::{
    scaling::{Shelf, pool, run_led, run_timed, serve, until_true},
    world::*,
    *,
};

/// Longer than a worker of these pools may be absent.
const LONG_MS: u64 = 64_000;

fn trouble(desired: &DesiredState) -> Option<String> {
    let pool = desired.pools.first();
    pool.and_then(|pool| pool.trouble.as_deref().map(str::to_owned))
}

#[tokio::test]
async fn a_machine_whose_worker_never_comes_is_given_up() {
    let store = Arc::new(UnsteadyStore::new(256));
    let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
    run_timed((&store, &shelf), pool(&shelf, &of, 1, 8));
    until_true("a machine", || shelf.count() == 1).await;
    // Three starts of a second each, and a minute.
    shelf.pass(50_000);
    shelf.looked_at().await;
    assert_eq!(shelf.ended(), Vec::<String>::new());
    shelf.pass(LONG_MS);
    until_true("it was ended", || !shelf.ended().is_empty()).await;
    let told = until(&store, "the trouble told", |it| trouble(it).is_some()).await;
    let text = trouble(&told).unwrap();
    assert!(text.contains("did not announce itself"), "{text}");
}

#[tokio::test]
async fn a_worker_that_is_gone_from_the_store_for_a_while_keeps_its_machine() {
    let store = Arc::new(UnsteadyStore::new(256));
    let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
    publish(&store, variant("m-a")).await;
    run_timed((&store, &shelf), pool(&shelf, &of, 1, 1));
    until_true("a machine", || shelf.count() == 1).await;
    beat_of(&store, "m0", &of, false).await;
    until(&store, "the variant warm", |it| !it.variants.is_empty()).await;
    shelf.pass(300_000);
    shelf.looked_at().await;
    let worker = WorkerId::new("m0").unwrap();
    store.remove_worker(&worker).await.unwrap();
    shelf.pass(50_000);
    shelf.looked_at().await;
    assert_eq!(shelf.ended(), Vec::<String>::new(), "it may come back");
    shelf.pass(LONG_MS);
    until_true("it was ended", || shelf.ended() == ["m0"]).await;
}

#[tokio::test]
async fn who_begins_to_lead_gives_workers_that_it_does_not_see_the_time_of_a_start() {
    let store = Arc::new(UnsteadyStore::new(256));
    let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
    let first = run_timed((&store, &shelf), pool(&shelf, &of, 1, 1));
    until_true("a machine", || shelf.count() == 1).await;
    first.abort();
    drop(first.await);
    // This is as if the store and the autoscaler had restarted empty.
    shelf.pass(3_600_000);
    run_timed((&store, &shelf), pool(&shelf, &of, 1, 1));
    shelf.looked_at().await;
    assert_eq!(shelf.ended(), Vec::<String>::new());
    shelf.pass(LONG_MS);
    until_true("it was ended", || shelf.ended() == ["m0"]).await;
}

#[tokio::test]
async fn a_machine_that_was_made_and_not_started_is_started() {
    let store = Arc::new(UnsteadyStore::new(256));
    let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
    shelf.stall();
    run_timed((&store, &shelf), pool(&shelf, &of, 1, 1));
    until_true("it runs", || shelf.running() == 1).await;
    assert_eq!(shelf.count(), 1, "no other one in its place");
}

#[tokio::test]
async fn a_machine_that_does_not_end_is_replaced_and_said_to_be_there() {
    let store = Arc::new(UnsteadyStore::new(256));
    let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
    shelf.keep();
    run_timed((&store, &shelf), pool(&shelf, &of, 1, 1));
    until_true("a machine", || shelf.count() == 1).await;
    shelf.pass(LONG_MS);
    until_true("another one", || shelf.count() == 2).await;
    let stays = |it: &DesiredState| trouble(it).is_some_and(|text| text.contains("still runs"));
    until(&store, "the trouble told", stays).await;
    beat_of(&store, "m1", &of, false).await;
    shelf.looked_at().await;
    assert_eq!(shelf.count(), 2, "and no more");
}

#[tokio::test]
async fn a_machine_that_cannot_be_ended_is_replaced_and_the_refusal_told() {
    let store = Arc::new(UnsteadyStore::new(256));
    let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
    shelf.jam();
    run_timed((&store, &shelf), pool(&shelf, &of, 1, 1));
    until_true("a machine", || shelf.count() == 1).await;
    shelf.pass(LONG_MS);
    until_true("another one", || shelf.count() == 2).await;
    let told = |it: &DesiredState| trouble(it).is_some_and(|text| text.contains("it is stuck"));
    until(&store, "the trouble told", told).await;
    assert_eq!(shelf.count(), 2, "and no more");
}

/// Like the machines of a script that names no workers.
#[tokio::test]
async fn machines_whose_workers_are_not_known_are_no_surplus() {
    let store = Arc::new(UnsteadyStore::new(256));
    let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
    shelf.hide();
    publish(&store, variant("m-a")).await;
    run_timed((&store, &shelf), pool(&shelf, &of, 2, 2));
    until_true("two machines", || shelf.count() == 2).await;
    for worker in ["m0", "m1"] {
        beat_of(&store, worker, &of, false).await;
    }
    until(&store, "the variant warm", |it| !it.variants.is_empty()).await;
    shelf.looked_at().await;
    assert_eq!(shelf.ended(), Vec::<String>::new());
    assert_eq!(shelf.count(), 2, "and no more than there should be");
}

#[tokio::test]
async fn a_surplus_is_counted_from_when_a_leadership_began() {
    let store = Arc::new(UnsteadyStore::new(256));
    let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
    let config = |count| Config {
        hold_ms: 0,
        ..pool(&shelf, &of, count, count)
    };
    let first = run_timed((&store, &shelf), config(2));
    until_true("two machines", || shelf.count() == 2).await;
    for (name, worker) in [("m-a", "m0"), ("m-b", "m1")] {
        publish(&store, variant(name)).await;
        beat_of(&store, worker, &of, false).await;
        serve(&store, name, worker).await;
    }
    until(&store, "both variants warm", |it| it.variants.len() == 2).await;
    first.abort();
    drop(first.await);
    let token = watch::Sender::new(Some(1));
    run_led((&store, &shelf), config(1), token.subscribe());
    until(&store, "to be emptied", |it| it.emptying.len() == 1).await;
    shelf.looked_at().await;
    token.send_replace(None);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    shelf.pass(LONG_MS * 2);
    token.send_replace(Some(2));
    shelf.looked_at().await;
    assert_eq!(
        shelf.ended(),
        Vec::<String>::new(),
        "it has something alone"
    );
    shelf.pass(LONG_MS * 2);
    until_true("one machine", || shelf.count() == 1).await;
}
