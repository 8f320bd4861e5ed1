//! Properties of workers and their leases.

use std::collections::BTreeSet;

use sextant_types::EngineName;

use super::{
    SECOND, Store,
    fixtures::{beat, key, record, step, worker},
    follow,
};
use crate::{Command, Error, Event, View, Worker, WorkerRecord};

/// The record that a worker announces comes back unchanged, each time.
pub async fn worker_is_recorded_as_it_said(store: Store) {
    let mut said = record(0.1);
    said.endpoint = Some("10.0.0.7:7070".into());
    said.device = "cuda:0".into();
    said.engines = ["cuda", "of \"two\" words"]
        .map(|it| EngineName(it.to_owned()))
        .into();
    said.memory_bytes = (1 << 53) - 1;
    for (draining, utilization) in [(false, 0.1), (true, 1.0 / 3.0)] {
        said = WorkerRecord {
            draining,
            utilization,
            ..said
        };
        let name = worker("w");
        let beat = store.heartbeat(&name, said.clone(), SECOND, 0);
        beat.await.expect("heartbeat");
        let workers = store.workers(0).await.expect("workers");
        let desired = Worker {
            id: name,
            record: said.clone(),
            lease_until_ms: SECOND,
            leaving: false,
        };
        assert_eq!(workers, [desired]);
    }
}

/// Nothing is recorded of a worker that never sent a heartbeat.
pub async fn worker_needs_a_lease(store: Store) {
    let refused = step(&store, "v", "w", None, Command::Load).await;
    assert!(
        matches!(refused, Err(Error::UnknownWorker(_))),
        "{refused:?}"
    );
    assert_eq!(store.instances().await.expect("instances"), []);
    assert!(beat(&store, "w", 0).await.fresh);
    step(&store, "v", "w", None, Command::Load)
        .await
        .expect("load");
}

/// A heartbeat renews the lease of every instance of its worker, and of no other, and does not change versions.
pub async fn heartbeat_renews_the_lease_of_all_instances(store: Store) {
    beat(&store, "w", 0).await;
    beat(&store, "x", 0).await;
    for (variant, worker) in [("a", "w"), ("b", "w"), ("a", "x")] {
        step(&store, variant, worker, None, Command::Load)
            .await
            .expect("load");
    }
    let before = store.instances().await.expect("instances");
    assert!(before.iter().all(|it| it.lease_until_ms == 10 * SECOND));
    let lease = beat(&store, "w", 5 * SECOND).await;
    assert_eq!((lease.until_ms, lease.fresh), (15 * SECOND, false));
    for (old, new) in before
        .iter()
        .zip(store.instances().await.expect("instances"))
    {
        assert_eq!(old.version, new.version);
        let mine = new.key.worker == worker("w");
        let desired = if mine { 15 } else { 10 } * SECOND;
        assert_eq!(new.lease_until_ms, desired, "{}", new.key);
    }
    let workers = store.workers(12 * SECOND).await.expect("workers");
    let alive: Vec<_> = workers.into_iter().map(|worker| worker.id).collect();
    assert_eq!(alive, [worker("w")]);
}

/// Expiry removes a dead worker and its instances, emits events, and changes nothing else.
pub async fn lapsed_lease_removes_instances(store: Store) {
    beat(&store, "dead", 0).await;
    beat(&store, "live", 5 * SECOND).await;
    for (variant, worker) in [("a", "dead"), ("b", "dead"), ("a", "live")] {
        step(&store, variant, worker, None, Command::Load)
            .await
            .expect("load");
    }
    let start = store.snapshot().await.expect("snapshot").cursor;
    let none = store.expire(10 * SECOND - 1).await.expect("expire");
    assert_eq!(none, [], "one millisecond early");
    assert_eq!(
        store.expire(10 * SECOND).await.expect("expire"),
        [worker("dead")]
    );
    let left = store.instances().await.expect("instances");
    let left: Vec<_> = left.into_iter().map(|instance| instance.key).collect();
    assert_eq!(left, [key("a", "live")]);
    let changes = store.changes(start).await.expect("changes");
    let gone: BTreeSet<_> = changes
        .events
        .iter()
        .filter_map(|event| match event {
            Event::InstanceRemoved(key) => Some(key.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(gone, BTreeSet::from([key("a", "dead"), key("b", "dead")]));
    assert_eq!(
        changes.events.last(),
        Some(&Event::WorkerRemoved(worker("dead")))
    );
    assert_eq!(changes.events.len(), 3);
    assert_eq!(store.expire(10 * SECOND).await.expect("expire"), []);
}

/// A late heartbeat that comes before the expiry keeps the worker's instances.
pub async fn late_heartbeat_renews_what_nobody_expired(store: Store) {
    beat(&store, "w", 0).await;
    step(&store, "v", "w", None, Command::Load)
        .await
        .expect("load");
    assert!(!beat(&store, "w", 60 * SECOND).await.fresh);
    assert_eq!(store.expire(60 * SECOND).await.expect("expire"), []);
    assert_eq!(store.instances().await.expect("instances").len(), 1);
}

/// After its expiry a worker's transitions are refused. When the worker comes back it starts afresh, and earlier
/// versions never match again.
pub async fn dead_workers_late_transition_is_refused(store: Store) {
    beat(&store, "w", 0).await;
    step(&store, "v", "w", None, Command::Load)
        .await
        .expect("load");
    let old = step(&store, "v", "w", None, Command::Loaded)
        .await
        .expect("loaded");
    store.expire(10 * SECOND).await.expect("expire");
    let late = step(&store, "v", "w", Some(old.version), Command::Drain).await;
    assert!(matches!(late, Err(Error::UnknownWorker(_))), "{late:?}");
    assert!(beat(&store, "w", 20 * SECOND).await.fresh);
    let late = step(&store, "v", "w", Some(old.version), Command::Drain).await;
    assert!(
        matches!(late, Err(Error::Conflict { current: None, .. })),
        "{late:?}"
    );
    let again = step(&store, "v", "w", Some(0), Command::Load)
        .await
        .expect("load");
    assert!(
        again.version > old.version,
        "{} after {}",
        again.version,
        old.version
    );
}

/// A worker that leaves by itself is removed at once, with its instances.
pub async fn leaving_worker_takes_its_instances_along(store: Store) {
    beat(&store, "w", 0).await;
    step(&store, "v", "w", None, Command::Load)
        .await
        .expect("load");
    assert!(store.remove_worker(&worker("w")).await.expect("remove"));
    let after = store.snapshot().await.expect("snapshot");
    assert!(after.instances.is_empty() && after.workers.is_empty());
    assert!(!store.remove_worker(&worker("w")).await.expect("remove"));
    let unchanged = store.changes(after.cursor).await.expect("changes");
    assert_eq!(unchanged.events, []);
}

/// A worker that is to leave is marked in the content and, once, in the feed. Heartbeats keep the mark, and other
/// workers do not have it.
pub async fn worker_that_is_to_leave_is_marked(store: Store) {
    let nobody = store.mark_leaving(&worker("w")).await.expect("an answer");
    assert_eq!(nobody, None);
    assert_eq!(store.workers(0).await.expect("workers"), []);
    beat(&store, "w", 0).await;
    beat(&store, "x", 0).await;
    let mut view = View::from(store.snapshot().await.expect("snapshot"));
    let known = view.workers[&worker("w")].clone();
    let marked = store.mark_leaving(&worker("w")).await.expect("marked");
    let desired = Worker {
        leaving: true,
        ..known
    };
    assert_eq!(marked.as_ref(), Some(&desired));
    follow(&store, &mut view).await;
    assert_eq!(view.workers[&worker("w")], desired);
    assert!(!view.workers[&worker("x")].leaving);
    let again = store.mark_leaving(&worker("w")).await.expect("marked");
    assert_eq!(again, Some(desired));
    let changes = store.changes(view.cursor).await.expect("changes");
    assert_eq!(changes.events, []);
    assert!(!beat(&store, "w", SECOND).await.fresh);
    follow(&store, &mut view).await;
    let leaving = store.workers(SECOND).await.expect("workers");
    let leaving: Vec<bool> = leaving.iter().map(|worker| worker.leaving).collect();
    assert_eq!(leaving, [true, false]);
}

/// The mark of a worker that is to leave ends with the worker: when it was removed, when its lease has lapsed, and when
/// another life of it announces itself.
pub async fn mark_of_a_leaving_worker_ends_with_its_life(store: Store) {
    let is_marked = async || {
        let workers = store.workers(0).await.expect("workers");
        workers[0].leaving
    };
    let mark = async || store.mark_leaving(&worker("w")).await.expect("marked");
    beat(&store, "w", 0).await;
    assert!(!beat(&store, "w", 0).await.leaving);
    mark().await.expect("it is there");
    assert!(beat(&store, "w", 0).await.leaving, "it is told");
    store.remove_worker(&worker("w")).await.expect("remove");
    beat(&store, "w", 0).await;
    assert!(!is_marked().await, "it was removed");
    mark().await.expect("it is there");
    store.expire(10 * SECOND).await.expect("expire");
    beat(&store, "w", 10 * SECOND).await;
    assert!(!is_marked().await, "its lease had ended");
    mark().await.expect("it is there");
    let later = WorkerRecord {
        since_ms: 1,
        ..record(0.5)
    };
    let mut view = View::from(store.snapshot().await.expect("snapshot"));
    let name = worker("w");
    let beat = store.heartbeat(&name, later, 10 * SECOND, 10 * SECOND);
    assert!(!beat.await.expect("heartbeat").fresh);
    assert!(!is_marked().await, "it has started again");
    follow(&store, &mut view).await;
}
