//! A server, a store on it, and its content.

use std::{sync::Arc, time::Duration};

use sextant_metadata::{
    Candidate, Command, Error, Instance, InstanceKey, MetadataStore, Transition, WorkerRecord,
};
use sextant_metadata_redis::{Clock, RedisConfig, RedisStore};
use sextant_test_servers::redis::Redis;
use sextant_types::{ApplicationId, VariantId, WorkerId};

/// Long enough for anything on a busy machine; only a failing test waits for it.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Longest time of a call in tests that wait for its end.
pub const SHORT: Duration = Duration::from_millis(400);

/// A configuration for callers' time.
pub fn config(server: &Redis) -> RedisConfig {
    RedisConfig {
        clock: Clock::Caller,
        history: 2000,
        timeout: PATIENCE,
        ..RedisConfig::new(server.url())
    }
}

/// A store with callers' time.
pub async fn connect(server: &Redis) -> Arc<RedisStore> {
    let store = RedisStore::connect(config(server)).await;
    store.expect("the server is there")
}

/// A store whose calls end after a short time. On a busy machine that may be too short for any call: those that must
/// succeed are repeated by [`eventually`].
pub async fn connect_short(server: &Redis) -> Arc<RedisStore> {
    let config = RedisConfig {
        timeout: SHORT,
        ..config(server)
    };
    eventually(async || RedisStore::connect(config.clone()).await).await
}

pub fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).expect("a valid name")
}

pub fn application() -> ApplicationId {
    ApplicationId::new("app").expect("a valid name")
}

pub fn key(variant: &str, on: &str) -> InstanceKey {
    InstanceKey::new(VariantId::new(variant).expect("a valid name"), worker(on))
}

pub fn record() -> WorkerRecord {
    WorkerRecord {
        endpoint: Some("127.0.0.1:7070".into()),
        device: "cpu".into(),
        engines: Vec::new(),
        draining: false,
        cores: 2,
        memory_bytes: 1 << 30,
        memory_used_bytes: 0,
        utilization: 0.5,
        ..WorkerRecord::default()
    }
}

/// Sends a heartbeat for ten seconds. Returns whether the worker was new.
pub async fn beat(store: &RedisStore, name: &str) -> Result<bool, Error> {
    let lease = store.heartbeat(&worker(name), record(), 10_000, 0).await;
    lease.map(|lease| lease.fresh)
}

pub fn step(variant: &str, on: &str, command: Command) -> Transition {
    Transition {
        key: key(variant, on),
        application: application(),
        expected_version: None,
        command,
    }
}

/// Loads a variant on a worker.
pub async fn load(store: &RedisStore, variant: &str, on: &str) -> Instance {
    for command in [Command::Load, Command::Loaded] {
        let step = store.transition(&step(variant, on, command), 0).await;
        step.expect("transition");
    }
    let instance = store.instance(&key(variant, on)).await;
    instance.expect("instance").expect("it is there")
}

pub fn candidate(holder: &str) -> Candidate {
    Candidate {
        role: "dispatcher".into(),
        holder: holder.into(),
        endpoint: "127.0.0.1:7070".into(),
    }
}

/// Asks until the server answers. Returns its first answer.
pub async fn eventually<T>(mut ask: impl AsyncFnMut() -> Result<T, Error>) -> T {
    let asking = async {
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(Error::Unavailable { .. }) => tokio::task::yield_now().await,
                Err(other) => panic!("{other}"),
            }
        }
    };
    let answer = tokio::time::timeout(PATIENCE, asking).await;
    answer.expect("the server came back")
}
