//! Followers of a feed with many writers.

use sextant_metadata::{Command, Error, Event, MetadataStore, View};
use sextant_metadata_redis::{RedisConfig, RedisStore};
use sextant_test_servers::redis::Redis;

use crate::fixtures::{PATIENCE, beat, config, connect, key, load, step};

/// Reads until `expected` events have come, and waits if there are none.
async fn follow(store: &RedisStore, view: &mut View, expected: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < expected {
        let wait = tokio::time::timeout(PATIENCE, store.changed(view.cursor)).await;
        wait.expect("woken in time").expect("changed");
        let changes = store.changes(view.cursor).await.expect("changes");
        view.follow(&changes);
        events.extend(changes.events);
    }
    events
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn follower_reads_thousands_of_events_of_many_writers_in_order() {
    const WRITERS: usize = 4;
    const ROUNDS: usize = 300;
    let server = Redis::start();
    let store = RedisStore::connect(RedisConfig {
        history: 100_000,
        ..config(&server)
    });
    let store = store.await.unwrap();
    for writer in 0..WRITERS {
        beat(&store, &format!("w{writer}")).await.unwrap();
        load(&store, "v", &format!("w{writer}")).await;
    }
    let mut view = View::from(store.snapshot().await.unwrap());
    let writers = (0..WRITERS).map(|writer| {
        let server = config(&server);
        tokio::spawn(async move {
            let store = RedisStore::connect(server).await.unwrap();
            for round in 0..ROUNDS {
                let load = round as f64 / ROUNDS as f64;
                let report = step("v", &format!("w{writer}"), Command::Report { load });
                store.transition(&report, 0).await.unwrap();
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let events = follow(&store, &mut view, WRITERS * ROUNDS).await;
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(events.len(), WRITERS * ROUNDS);
    for writer in 0..WRITERS {
        let key = key("v", &format!("w{writer}"));
        let versions = events.iter().filter_map(|event| match event {
            Event::InstanceChanged(instance) if instance.key == key => Some(instance.version),
            _ => None,
        });
        // Two transitions loaded it.
        let expected: Vec<u64> = (3..).take(ROUNDS).collect();
        assert_eq!(versions.collect::<Vec<_>>(), expected);
    }
    assert_eq!(view.snapshot(), store.snapshot().await.unwrap());
}

#[tokio::test]
async fn trimmed_feed_can_be_read_from_its_oldest_position() {
    let server = Redis::start();
    let short = RedisConfig {
        history: 10,
        ..config(&server)
    };
    let store = RedisStore::connect(short).await.unwrap();
    beat(&store, "w").await.unwrap();
    load(&store, "v", "w").await;
    let start = store.snapshot().await.unwrap().cursor;
    for round in 0..1000 {
        let load = f64::from(round) / 1000.0;
        let report = step("v", "w", Command::Report { load });
        store.transition(&report, 0).await.unwrap();
    }
    let trimmed = store.changes(start).await;
    let Err(Error::Trimmed { oldest, .. }) = trimmed else {
        panic!("{trimmed:?}");
    };
    let left = store.changes(oldest).await.unwrap();
    let versions = left.events.iter().map(|event| match event {
        Event::InstanceChanged(instance) => instance.version,
        other => panic!("{other:?}"),
    });
    let versions: Vec<u64> = versions.collect();
    let kept = versions.len() as u64;
    assert!((10..500).contains(&kept), "{kept} are kept");
    assert_eq!(versions, Vec::from_iter(1003 - kept..1003));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_that_race_on_a_version_have_one_winner() {
    let server = Redis::start();
    let stores = [connect(&server).await, connect(&server).await];
    beat(&stores[0], "w").await.unwrap();
    let mut version = load(&stores[0], "v", "w").await.version;
    for round in 0..100 {
        let report = |load| {
            let mut report = step("v", "w", Command::Report { load });
            report.expected_version = Some(version);
            report
        };
        let (mine, theirs) = (report(0.25), report(0.75));
        let (mine, theirs) = tokio::join!(
            stores[0].transition(&mine, 0),
            stores[1].transition(&theirs, 0)
        );
        version = match (mine, theirs) {
            (Ok(won), Err(Error::Conflict { current, .. }))
            | (Err(Error::Conflict { current, .. }), Ok(won)) => {
                assert_eq!(current.as_deref(), Some(&won), "round {round}");
                won.version
            }
            other => panic!("round {round}: {other:?}"),
        };
    }
}

/// If no version is expected, both writers succeed, one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_that_expect_nothing_all_get_through() {
    const WRITERS: u64 = 6;
    const ROUNDS: u64 = 40;
    let server = Redis::start();
    let store = connect(&server).await;
    beat(&store, "w").await.unwrap();
    let version = load(&store, "v", "w").await.version;
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let report = step("v", "w", Command::Report { load: 0.5 });
                    let twice = [report.clone(), report];
                    let answers = store.transitions(&twice, 0).await;
                    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
                    // A heartbeat in between also makes decisions stale.
                    beat(&store, "w").await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let instance = store.instance(&key("v", "w")).await.unwrap().unwrap();
    assert_eq!(instance.version, version + 2 * WRITERS * ROUNDS);
}
