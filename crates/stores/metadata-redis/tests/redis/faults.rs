//! Servers that restart, lose their content, stop or are away.

use std::time::Duration;

use sextant_metadata::{
    Command, Cursor, Demand, DesiredState, Error, MetadataStore, conformance::sample_variant,
};
use sextant_metadata_redis::{RedisConfig, RedisStore};
use sextant_test_servers::redis::Redis;

use crate::fixtures::{
    PATIENCE, SHORT, beat, candidate, config, connect, connect_short, eventually, key, load, step,
    worker,
};

#[tokio::test]
async fn restart_with_data_goes_on_where_it_was() {
    let mut server = Redis::start();
    let store = connect(&server).await;
    beat(&store, "w").await.unwrap();
    let instance = load(&store, "v", "w").await;
    let leader = store.campaign(&candidate("a"), 1000, 0).await.unwrap();
    say(&store, 7).await.unwrap();
    let before = store.snapshot().await.unwrap();
    server.restart();
    let after = eventually(async || store.snapshot().await).await;
    assert_eq!(after, before);
    assert!(!beat(&store, "w").await.unwrap(), "it is not fresh");
    let changes = store.changes(before.cursor).await.unwrap();
    assert_eq!(changes.events.len(), 1);
    let found = store.instance(&instance.key).await.unwrap();
    assert_eq!(found, Some(instance));
    let again = store.campaign(&candidate("a"), 1000, 0).await.unwrap();
    assert_eq!(again.token, leader.token);
    let late = say(&store, 6).await;
    assert!(
        matches!(late, Err(Error::Fenced { seen: 7, .. })),
        "{late:?}"
    );
}

#[tokio::test]
async fn empty_restart_begins_another_life() {
    let mut server = Redis::start();
    let store = connect(&server).await;
    beat(&store, "w").await.unwrap();
    load(&store, "v", "w").await;
    let leader = store.campaign(&candidate("a"), 1000, 0).await.unwrap();
    say(&store, leader.token).await.unwrap();
    let before = store.snapshot().await.unwrap();
    server.restart_empty();
    let after = eventually(async || store.snapshot().await).await;
    assert_ne!(after.life, before.life);
    assert!(after.instances.is_empty() && after.workers.is_empty() && after.leaders.is_empty());
    assert_eq!((after.desired, after.demand), (None, None));
    for old in [before.cursor, Cursor(before.life), Cursor(0)] {
        let trimmed = store.changes(old).await;
        assert!(matches!(trimmed, Err(Error::Trimmed { .. })), "{trimmed:?}");
    }
    let late = store.transition(&step("v", "w", Command::Drain), 0).await;
    assert!(matches!(late, Err(Error::UnknownWorker(_))), "{late:?}");
    assert!(beat(&store, "w").await.unwrap(), "it is fresh");
    let next = store.campaign(&candidate("b"), 1000, 0).await.unwrap();
    assert!(next.token > leader.token, "tokens grow over the loss");
    say(&store, next.token).await.unwrap();
}

#[tokio::test]
async fn flushed_server_wakes_who_waits_and_begins_another_life() {
    let server = Redis::start();
    let store = connect_short(&server).await;
    eventually(async || beat(&store, "w").await).await;
    let before = eventually(async || store.snapshot().await).await;
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.changed(before.cursor).await }
    });
    server.flush();
    let woken = tokio::time::timeout(PATIENCE, waiting).await;
    woken.expect("in time").unwrap().expect("woken");
    let after = eventually(async || store.snapshot().await).await;
    assert_ne!(after.life, before.life);
}

#[tokio::test]
async fn calls_end_while_the_server_is_stopped_and_work_when_it_goes_on() {
    let server = Redis::start();
    let store = connect_short(&server).await;
    eventually(async || beat(&store, "w").await).await;
    let cursor = eventually(async || store.snapshot().await).await.cursor;
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.changed(cursor).await }
    });
    server.stop();
    let calls = async {
        unavailable(&beat(&store, "w").await);
        unavailable(&store.snapshot().await);
        unavailable(&store.changes(cursor).await);
        unavailable(&store.changed(cursor).await);
        unavailable(&store.campaign(&candidate("a"), 1, 0).await);
        let steps = vec![step("v", "w", Command::Load); 300];
        let answers = store.transitions(&steps, 0).await;
        assert_eq!(answers.len(), steps.len());
        answers.iter().for_each(unavailable);
        unavailable(&waiting.await.unwrap());
    };
    let ended = tokio::time::timeout(PATIENCE, calls).await;
    ended.expect("no call hangs");
    server.cont();
    eventually(async || beat(&store, "w").await).await;
    let head = eventually(async || store.snapshot().await).await.cursor;
    let wait = eventually(async || store.changed(Cursor(head.0 - 1)).await);
    tokio::time::timeout(PATIENCE, wait).await.expect("woken");
}

#[tokio::test]
async fn dead_server_is_told_soon_and_the_next_one_is_found() {
    let mut server = Redis::start();
    let store = connect_short(&server).await;
    eventually(async || beat(&store, "w").await).await;
    let cursor = eventually(async || store.snapshot().await).await.cursor;
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.changed(cursor).await }
    });
    // The reader runs.
    eventually(async || store.changed(Cursor(0)).await).await;
    server.kill();
    unavailable(&beat(&store, "w").await);
    let ended = tokio::time::timeout(PATIENCE, waiting).await;
    unavailable(&ended.expect("in time").unwrap());
    server.restart();
    let fresh = eventually(async || beat(&store, "w").await).await;
    assert!(!fresh, "what was answered is there");
    let wait = eventually(async || store.changed(cursor).await);
    tokio::time::timeout(PATIENCE, wait).await.expect("woken");
    let events = eventually(async || store.changes(cursor).await)
        .await
        .events;
    assert!(!events.is_empty());
}

/// A server that loses its last seconds of writes takes nothing away from followers that have seen
/// them: the positions are not given again.
#[tokio::test]
async fn position_of_a_lost_write_is_never_given_again() {
    let mut server = Redis::start();
    let store = connect(&server).await;
    beat(&store, "w").await.unwrap();
    let early = server.copy();
    beat(&store, "w").await.unwrap();
    store
        .publish_variant(sample_variant("v", 1.0))
        .await
        .unwrap();
    let seen = store.snapshot().await.unwrap();
    server.restart_as(early);
    let back = eventually(async || store.snapshot().await).await;
    assert!(back.cursor < seen.cursor && back.variants.is_empty());
    assert_eq!(back.life, seen.life);
    for _ in 0..50 {
        beat(&store, "w").await.unwrap();
    }
    let head = store.snapshot().await.unwrap().cursor;
    assert!(head > seen.cursor);
    let lost = store.changes(seen.cursor).await;
    assert!(matches!(lost, Err(Error::Trimmed { .. })), "{lost:?}");
    let events = store.changes(back.cursor).await.unwrap().events;
    assert_eq!(events.len(), 50);
}

#[tokio::test]
async fn no_error_has_the_password() {
    let server = Redis::start();
    let refused = |url: String| async {
        let config = RedisConfig {
            timeout: SHORT,
            ..RedisConfig::new(url)
        };
        let shown = format!("{config:?}");
        let error = RedisStore::connect(config).await.expect_err("refused");
        format!("{shown} {error} {error:?}")
    };
    let port = server.port();
    for url in [
        format!("redis://user:hunter2@127.0.0.1:{port}"),
        format!("redis://:hunter2@127.0.0.1:{port}/no-number"),
        "redis://:hunter2@127.0.0.1:1".to_owned(),
        "rediss://:hunter2@127.0.0.1:1".to_owned(),
        "http://:hunter2@127.0.0.1:1".to_owned(),
        "hunter2".to_owned(),
    ] {
        let text = refused(url.clone()).await;
        assert!(!text.contains("hunter2"), "{text}");
    }
    let bad_prefix = RedisConfig {
        prefix: "a{b}".to_owned(),
        ..config(&server)
    };
    unavailable(&RedisStore::connect(bad_prefix).await);
}

#[tokio::test]
async fn dropped_calls_are_done_or_not_done() {
    let server = Redis::start();
    let store = connect(&server).await;
    for round in 0..100_u64 {
        // The call is dropped after a time that differs from round to round.
        let limit = Duration::from_micros(round * 7 % 500);
        tokio::time::timeout(limit, beat(&store, "w")).await.ok();
        let one = step("v", "w", Command::Load);
        tokio::time::timeout(limit, store.transition(&one, 0))
            .await
            .ok();
        let gone = worker("w");
        tokio::time::timeout(limit, store.remove_worker(&gone))
            .await
            .ok();
    }
    let content = store.snapshot().await.unwrap();
    let instance = store.instance(&key("v", "w")).await.unwrap();
    assert_eq!(content.instances, Vec::from_iter(instance));
    assert!(content.instances.is_empty() || !content.workers.is_empty());
}

/// Writes both records of leaders.
async fn say(store: &RedisStore, token: u64) -> Result<(), Error> {
    store
        .set_desired(DesiredState::new(token, Vec::new(), 1))
        .await?;
    let demand = Demand {
        token,
        ..Demand::default()
    };
    store.set_demand(demand).await
}

fn unavailable<T: std::fmt::Debug>(answer: &Result<T, Error>) {
    assert!(
        matches!(answer, Err(Error::Unavailable { .. })),
        "{answer:?}"
    );
}
