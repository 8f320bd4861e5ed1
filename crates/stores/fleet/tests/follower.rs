//! Following a store that goes away and loses its content.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{sync::Arc, time::Duration};

use sextant_fleet::{Follower, News, unsteady::UnsteadyStore};
use sextant_metadata::{
    Command, Demand, DesiredState, InstanceKey, MetadataStore, Transition, WorkerRecord,
};
use sextant_types::{ApplicationId, VariantId, WorkerId};

/// Longest wait for a state.
const PATIENCE: Duration = Duration::from_secs(20);

async fn beat(store: &UnsteadyStore, worker: &str, draining: bool, now_ms: u64) {
    let record = WorkerRecord {
        endpoint: None,
        device: "cpu".into(),
        engines: Vec::new(),
        draining,
        cores: 1,
        memory_bytes: 10,
        memory_used_bytes: 0,
        utilization: now_ms as f64 / 1e6,
        ..WorkerRecord::default()
    };
    let worker = WorkerId::new(worker).unwrap();
    store
        .heartbeat(&worker, record, 60_000, now_ms)
        .await
        .unwrap();
}

async fn tell(store: &UnsteadyStore, worker: &str, command: Command) {
    let (variant, worker) = (
        VariantId::new("m-a").unwrap(),
        WorkerId::new(worker).unwrap(),
    );
    let transition = Transition {
        key: InstanceKey::new(variant, worker),
        application: ApplicationId::new("app").unwrap(),
        expected_version: None,
        command,
    };
    store.transition(&transition, 1).await.unwrap();
}

async fn load(store: &UnsteadyStore, worker: &str) {
    tell(store, worker, Command::Load).await;
    tell(store, worker, Command::Loaded).await;
}

async fn changed(follower: &mut Follower) -> News {
    let changed = tokio::time::timeout(PATIENCE, follower.changed());
    changed.await.expect("news")
}

/// Follows until the view is as it should be.
async fn until(follower: &mut Follower, is: impl Fn(&Follower) -> bool) {
    while !is(follower) {
        changed(follower).await;
    }
}

/// Writes the records of leaders. Another `number` gives other content.
async fn say(store: &UnsteadyStore, number: u64) {
    let desired = DesiredState::new(0, Vec::new(), number);
    store.set_desired(desired).await.unwrap();
    let demand = Demand {
        window_ms: number,
        ..Demand::default()
    };
    store.set_demand(demand).await.unwrap();
}

fn workers(follower: &Follower) -> Vec<&str> {
    follower
        .view()
        .workers
        .keys()
        .map(WorkerId::as_str)
        .collect()
}

#[tokio::test]
async fn figures_are_told_apart_from_what_may_be_used() {
    let store = Arc::new(UnsteadyStore::new(64));
    beat(&store, "a", false, 1).await;
    let mut follower = Follower::new(Arc::clone(&store) as _);
    assert_eq!(changed(&mut follower).await, News::Structure);
    assert_eq!(workers(&follower), ["a"]);
    beat(&store, "a", false, 2).await;
    assert_eq!(changed(&mut follower).await, News::Figures);
    load(&store, "a").await;
    assert_eq!(changed(&mut follower).await, News::Structure);
    tell(&store, "a", Command::Report { load: 0.5 }).await;
    assert_eq!(changed(&mut follower).await, News::Figures);
    beat(&store, "a", true, 3).await;
    assert_eq!(changed(&mut follower).await, News::Structure);
    say(&store, 1).await;
    assert_eq!(changed(&mut follower).await, News::Structure);
    let demand = Demand {
        window_ms: 2,
        ..Demand::default()
    };
    store.set_demand(demand).await.unwrap();
    assert_eq!(changed(&mut follower).await, News::Figures);
    assert_eq!(follower.view().snapshot(), store.snapshot().await.unwrap());
}

#[tokio::test]
async fn the_feed_is_resumed_where_it_was_left_or_read_again_when_it_was_trimmed() {
    let store = Arc::new(UnsteadyStore::new(4));
    beat(&store, "a", false, 1).await;
    let mut follower = Follower::new(Arc::clone(&store) as _);
    changed(&mut follower).await;
    for lost in [2, 10] {
        store.set_away(true);
        let away = tokio::time::timeout(Duration::from_millis(1), follower.changed());
        assert!(away.await.is_err(), "there is nothing to tell");
        store.set_away(false);
        for number in 0..lost {
            beat(&store, &format!("w{lost}-{number}"), false, 1).await;
        }
        store
            .remove_worker(&WorkerId::new("a").unwrap())
            .await
            .unwrap();
        until(&mut follower, |follower| !workers(follower).contains(&"a")).await;
        assert_eq!(follower.view().snapshot(), store.snapshot().await.unwrap());
        beat(&store, "a", false, 1).await;
        until(&mut follower, |follower| workers(follower).contains(&"a")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_new_life_lacks_is_kept_until_it_is_told_again_or_nobody_tells_it() {
    let store = Arc::new(UnsteadyStore::new(64));
    for worker in ["a", "b", "c"] {
        beat(&store, worker, false, 1).await;
        load(&store, worker).await;
    }
    let grace = Duration::from_millis(300);
    let mut follower = Follower::with_grace(Arc::clone(&store) as _, grace);
    changed(&mut follower).await;
    store.lose_everything();
    until(&mut follower, |follower| follower.view().life == 1).await;
    assert_eq!(workers(&follower), ["a", "b", "c"]);
    assert_eq!(follower.view().instances.len(), 3);
    // One worker returns and stays, one returns and leaves, and one does not return.
    beat(&store, "a", false, 2).await;
    load(&store, "a").await;
    beat(&store, "b", false, 2).await;
    store
        .remove_worker(&WorkerId::new("b").unwrap())
        .await
        .unwrap();
    until(&mut follower, |follower| !workers(follower).contains(&"b")).await;
    until(&mut follower, |follower| workers(follower) == ["a"]).await;
    assert_eq!(follower.view().snapshot(), store.snapshot().await.unwrap());
}

#[tokio::test]
async fn two_losses_in_a_row_keep_what_was_known_before_both() {
    let store = Arc::new(UnsteadyStore::new(64));
    for worker in ["a", "b"] {
        beat(&store, worker, false, 1).await;
    }
    let mut follower = Follower::new(Arc::clone(&store) as _);
    changed(&mut follower).await;
    for life in 1..3 {
        store.lose_everything();
        beat(&store, "a", false, 1).await;
        until(&mut follower, |follower| follower.view().life == life).await;
        assert_eq!(workers(&follower), ["a", "b"]);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_forgotten_while_nobody_can_tell_the_store_again() {
    let store = Arc::new(UnsteadyStore::new(64));
    for worker in ["a", "b"] {
        beat(&store, worker, false, 1).await;
    }
    let grace = Duration::from_secs(1);
    let mut follower = Follower::with_grace(Arc::clone(&store) as _, grace);
    changed(&mut follower).await;
    store.lose_everything();
    until(&mut follower, |follower| follower.view().life == 1).await;
    store.set_away(true);
    let away = tokio::time::timeout(10 * grace, follower.changed());
    assert!(away.await.is_err(), "there is nothing to tell");
    assert_eq!(workers(&follower), ["a", "b"]);
    store.set_away(false);
    // The store is back and announces nothing: the time of grace starts again.
    let back = tokio::time::timeout(grace, follower.changed());
    assert!(back.await.is_err(), "there is nothing to tell");
    beat(&store, "a", false, 2).await;
    until(&mut follower, |follower| workers(follower) == ["a"]).await;
    assert_eq!(follower.view().snapshot(), store.snapshot().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn what_leaders_said_is_kept_until_they_say_it_again_or_nobody_does() {
    let store = Arc::new(UnsteadyStore::new(64));
    say(&store, 1).await;
    let grace = Duration::from_millis(300);
    let mut follower = Follower::with_grace(Arc::clone(&store) as _, grace);
    changed(&mut follower).await;
    let said = follower.view().clone();
    assert!(said.desired.is_some() && said.demand.is_some());
    store.lose_everything();
    until(&mut follower, |follower| follower.view().life == 1).await;
    assert_eq!(follower.view().desired, said.desired);
    assert_eq!(follower.view().demand, said.demand);
    let desired = DesiredState::new(0, Vec::new(), 2);
    store.set_desired(desired.clone()).await.unwrap();
    until(&mut follower, |follower| follower.view().demand.is_none()).await;
    assert_eq!(follower.view().desired.as_deref(), Some(&desired));
    assert_eq!(follower.view().snapshot(), store.snapshot().await.unwrap());
}
