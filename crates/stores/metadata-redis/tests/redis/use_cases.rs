//! Features that only this store has: the server's clock, and several fleets on one server.

use sextant_metadata::{Command, MetadataStore, Rate, RateStore, conformance::sample_variant};
use sextant_metadata_redis::{Clock, RedisConfig, RedisStore};
use sextant_test_servers::redis::Redis;

use crate::fixtures::{beat, candidate, config, connect, record, step, worker};

/// One caller's clock is far ahead and the other's far behind. With the server's clock this does
/// not matter.
#[tokio::test]
async fn servers_clock_hides_that_callers_disagree() {
    const HOUR: u64 = 3_600_000;
    let server = Redis::start();
    let store = RedisStore::connect(RedisConfig {
        clock: Clock::Server,
        ..config(&server)
    });
    let store = store.await.unwrap();
    let slow = store.heartbeat(&worker("slow"), record(), HOUR, 0).await;
    let fast = store
        .heartbeat(&worker("fast"), record(), HOUR, u64::MAX)
        .await;
    let (slow, fast) = (slow.unwrap(), fast.unwrap());
    assert!(fast.until_ms.abs_diff(slow.until_ms) < HOUR);
    assert_eq!(store.expire(u64::MAX).await.unwrap(), []);
    assert_eq!(store.workers(u64::MAX).await.unwrap().len(), 2);
    let loading = store.transition(&step("v", "slow", Command::Load), 0).await;
    let loading = loading.unwrap();
    let begun_ms = slow.until_ms - HOUR;
    assert!((begun_ms..begun_ms + HOUR).contains(&loading.since_ms));
    assert_eq!(loading.lease_until_ms, slow.until_ms);
    let leader = store.campaign(&candidate("a"), HOUR, 0).await.unwrap();
    let other = store.campaign(&candidate("b"), HOUR, u64::MAX).await;
    assert_eq!(other.unwrap(), leader, "nobody waits for a lease in vain");
    let rate = Rate {
        per_s: 1e-6,
        burst: 5.0,
    };
    let rates = store.rates();
    assert_eq!(rates.take("a", 9, rate, 0).await.unwrap(), 5);
    assert_eq!(rates.take("a", 9, rate, u64::MAX).await.unwrap(), 0);
    let day = (7, 24 * HOUR);
    assert_eq!(rates.spend("a", 3, day, 0).await.unwrap(), 3);
}

#[tokio::test]
async fn fleets_on_one_server_do_not_know_each_other() {
    let server = Redis::start();
    let store = connect(&server).await;
    let other = RedisStore::connect(RedisConfig {
        prefix: "other".to_owned(),
        ..config(&server)
    });
    let other = other.await.unwrap();
    beat(&store, "w").await.unwrap();
    store
        .publish_variant(sample_variant("v", 1.0))
        .await
        .unwrap();
    let content = other.snapshot().await.unwrap();
    assert!(content.workers.is_empty() && content.variants.is_empty());
    assert!(beat(&other, "w").await.unwrap());
}
