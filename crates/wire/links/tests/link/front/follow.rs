//! A view that outlives the loss of the store's content: a real server that restarts empty.

use std::{sync::Arc, time::Duration};

use sextant_fleet::Follower;
use sextant_metadata::{Candidate, MetadataStore, View, WorkerRecord};
use sextant_metadata_redis::{RedisConfig, RedisStore};
use sextant_test_servers::redis::Redis;
use tokio::time::timeout;

use super::fleet::worker;
use crate::double::{id, variant};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(20);

async fn beat(store: &RedisStore, name: &str) {
    let record = WorkerRecord {
        endpoint: Some("there.example:7070".into()),
        device: "cpu".into(),
        engines: Vec::new(),
        draining: false,
        cores: 1,
        memory_bytes: 1,
        memory_used_bytes: 0,
        utilization: 0.0,
        ..WorkerRecord::default()
    };
    let beat = store.heartbeat(&worker(name), record, 1_000_000, 0).await;
    beat.expect("stored");
}

async fn until(follower: &mut Follower, is_there: impl Fn(&View) -> bool) {
    while !is_there(follower.view()) {
        let step = timeout(LONG, follower.changed()).await;
        step.expect("the view changes in time");
    }
}

#[tokio::test]
async fn what_an_emptied_store_lacks_is_kept_for_a_while() {
    let mut server = Redis::start();
    let store = RedisStore::connect(RedisConfig::new(server.url())).await;
    let store = store.expect("connected");
    for name in ["m-a", "m-b"] {
        store.publish_variant(variant(name)).await.expect("stored");
    }
    beat(&store, "w-1").await;
    beat(&store, "w-2").await;
    let candidate = Candidate {
        role: "dispatcher".into(),
        holder: "d-1".into(),
        endpoint: "d-1.example:7070".into(),
    };
    let leader = store.campaign(&candidate, 1_000_000, 0).await;
    let leader = leader.expect("stored");
    let grace = Duration::from_secs(1);
    let mut follower = Follower::with_grace(Arc::clone(&store) as _, grace);
    let is_whole = |view: &View| view.workers.len() == 2 && view.variants.len() == 2;
    until(&mut follower, is_whole).await;
    let life = follower.view().life;

    server.restart_empty();
    let emptied = tokio::time::Instant::now();
    until(&mut follower, |view| view.life != life).await;
    assert!(is_whole(follower.view()), "what was known is kept");
    assert_eq!(follower.view().leaders["dispatcher"], leader);

    // One variant and one worker are announced again.
    store.publish_variant(variant("m-a")).await.expect("stored");
    beat(&store, "w-2").await;
    until(&mut follower, |view| view.workers.len() == 1).await;
    assert!(emptied.elapsed() >= grace);
    let view = follower.view();
    assert!(view.workers.contains_key(&worker("w-2")));
    assert!(
        view.variants.keys().eq([&id("m-a")]),
        "{:?}",
        view.variants.keys()
    );
    assert!(view.leaders.is_empty());
}

#[tokio::test]
async fn a_store_that_was_away_is_followed_from_where_it_was() {
    let mut server = Redis::start();
    let store = RedisStore::connect(RedisConfig::new(server.url())).await;
    let store = store.expect("connected");
    beat(&store, "w-1").await;
    let mut follower = Follower::with_grace(Arc::clone(&store) as _, LONG);
    until(&mut follower, |view| view.workers.len() == 1).await;
    let life = follower.view().life;
    server.restart();
    while store.publish_variant(variant("m-a")).await.is_err() {}
    until(&mut follower, |view| view.variants.len() == 1).await;
    assert_eq!(follower.view().life, life);
    assert_eq!(follower.view().workers.len(), 1);
}
