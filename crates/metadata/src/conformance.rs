//! The properties that every metadata store has; one function each, over a store that is empty.
//!
//! A backend binds them all with [`bind_metadata_conformance!`](crate::bind_metadata_conformance).
//! Time is an argument, so no property waits for a clock.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    Command, Cursor, Error, Event, Instance, InstanceKey, InstanceState, MetadataStore, Transition,
    View, apply,
};

mod feed;
mod fixtures;

pub use feed::{
    changed_returns_at_once_when_there_is_something, changed_wakes_on_a_change,
    feed_resumes_without_gap_or_duplicate, foreign_cursor_is_trimmed,
    publish_and_retire_are_idempotent, snapshot_is_consistent_under_writes,
    trimmed_feed_leads_to_a_consistent_snapshot,
};
pub use fixtures::sample_variant;
use fixtures::{Choices, application, beat, key, record, step, worker};

/// A store under test.
pub type Store = Arc<dyn MetadataStore>;

const SECOND: u64 = 1000;

/// Makes one `#[tokio::test]` of each property. The argument is an async expression that gives an
/// empty store: `bind_metadata_conformance!(async { Arc::new(MyStore::new()) as Store })`.
#[macro_export]
macro_rules! bind_metadata_conformance {
    ($fresh:expr) => {
        $crate::bind_metadata_conformance!(@each $fresh;
            transition_expecting_another_version_conflicts
            one_of_two_writers_wins
            transitions_are_those_of_the_state_machine
            instance_of_another_application_is_refused
            worker_needs_a_lease
            heartbeat_renews_the_lease_of_all_instances
            lapsed_lease_removes_instances
            late_heartbeat_renews_what_nobody_expired
            dead_workers_late_transition_is_refused
            leaving_worker_takes_its_instances_along
            publish_and_retire_are_idempotent
            feed_resumes_without_gap_or_duplicate
            foreign_cursor_is_trimmed
            trimmed_feed_leads_to_a_consistent_snapshot
            snapshot_is_consistent_under_writes
            changed_wakes_on_a_change
            changed_returns_at_once_when_there_is_something
        );
    };
    (@each $fresh:expr; $($property:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $property() {
                $crate::conformance::$property($fresh.await).await;
            }
        )*
    };
}

/// A transition that expects another version changes nothing and is told what is there.
pub async fn transition_expecting_another_version_conflicts(store: Store) {
    beat(&store, "w", 0).await;
    let loading = step(&store, "v", "w", Some(0), Command::Load).await;
    let loading = loading.expect("a first load expects nothing there");
    for wrong in [0, loading.version + 1, u64::MAX] {
        let refused = step(&store, "v", "w", Some(wrong), Command::Loaded).await;
        let Err(Error::Conflict {
            expected, current, ..
        }) = refused
        else {
            panic!("expected a conflict, got {refused:?}");
        };
        assert_eq!(expected, wrong);
        assert_eq!(current.as_deref(), Some(&loading));
    }
    let stored = store.instance(&key("v", "w")).await.expect("instance");
    assert_eq!(stored, Some(loading.clone()));
    let active = step(&store, "v", "w", Some(loading.version), Command::Loaded).await;
    assert_eq!(
        active.expect("the right version").state,
        InstanceState::Active
    );
    let absent = step(&store, "other", "w", Some(7), Command::Load).await;
    assert!(
        matches!(absent, Err(Error::Conflict { current: None, .. })),
        "{absent:?}"
    );
}

/// Of many transitions that expect the same version exactly one succeeds.
pub async fn one_of_two_writers_wins(store: Store) {
    const WRITERS: usize = 8;
    beat(&store, "w", 0).await;
    for round in 0..16 {
        let variant = format!("v{round}");
        let writers: Vec<_> = (0..WRITERS)
            .map(|_| {
                let (store, variant) = (store.clone(), variant.clone());
                tokio::spawn(
                    async move { step(&store, &variant, "w", Some(0), Command::Load).await },
                )
            })
            .collect();
        let mut won = 0;
        for writer in writers {
            match writer.await.expect("the writer ran") {
                Ok(_) => won += 1,
                Err(Error::Conflict { .. }) => {}
                Err(other) => panic!("a loser must see a conflict, not: {other}"),
            }
        }
        assert_eq!(won, 1, "round {round}");
    }
}

/// Whatever commands come, the store's answer is that of [`crate::apply`].
pub async fn transitions_are_those_of_the_state_machine(store: Store) {
    beat(&store, "w", 0).await;
    let mut choices = Choices::new(0x5e_47a2);
    let mut model: Option<Instance> = None;
    for round in 0..300 {
        let command = choices.command();
        let before = model
            .clone()
            .unwrap_or_else(|| Instance::absent(key("v", "w"), application("app"), 0));
        let now_ms = round;
        let transition = Transition {
            key: key("v", "w"),
            application: application("app"),
            expected_version: choices.maybe().then_some(before.version),
            command: command.clone(),
        };
        let lease_until_ms = 10 * SECOND;
        let held = Instance {
            lease_until_ms,
            ..before
        };
        let wanted = apply(&held, &command, now_ms);
        let got = store.transition(&transition, now_ms).await;
        let seed = choices.seed;
        match (wanted, got) {
            (Ok(wanted), Ok(got)) => {
                assert_eq!(got, wanted, "seed {seed} round {round}");
                model = Some(got);
            }
            (Err(wanted), Err(Error::Rejected(got))) => {
                assert_eq!(got, wanted, "seed {seed} round {round}");
            }
            (wanted, got) => {
                panic!("seed {seed} round {round} {command:?}: {got:?} instead of {wanted:?}")
            }
        }
        let stored = store.instance(&key("v", "w")).await.expect("instance");
        assert_eq!(stored, model, "seed {seed} round {round}");
    }
}

/// An instance keeps the application it was created for.
pub async fn instance_of_another_application_is_refused(store: Store) {
    beat(&store, "w", 0).await;
    step(&store, "v", "w", None, Command::Load)
        .await
        .expect("load");
    let transition = Transition {
        key: key("v", "w"),
        application: application("other"),
        expected_version: None,
        command: Command::Loaded,
    };
    let refused = store.transition(&transition, 0).await;
    assert!(
        matches!(refused, Err(Error::OtherApplication { .. })),
        "{refused:?}"
    );
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

/// A heartbeat moves the end of the lease of every instance of its worker, and of no other, and
/// leaves versions alone.
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
        let wanted = if mine { 15 } else { 10 } * SECOND;
        assert_eq!(new.lease_until_ms, wanted, "{}", new.key);
    }
    let workers = store.workers(12 * SECOND).await.expect("workers");
    let alive: Vec<_> = workers.into_iter().map(|worker| worker.id).collect();
    assert_eq!(alive, [worker("w")]);
}

/// Expiry removes a dead worker and its instances, tells the feed, and touches nobody else.
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

/// A heartbeat that comes late, yet before anyone expired the worker, keeps its instances.
pub async fn late_heartbeat_renews_what_nobody_expired(store: Store) {
    beat(&store, "w", 0).await;
    step(&store, "v", "w", None, Command::Load)
        .await
        .expect("load");
    assert!(!beat(&store, "w", 60 * SECOND).await.fresh);
    assert_eq!(store.expire(60 * SECOND).await.expect("expire"), []);
    assert_eq!(store.instances().await.expect("instances").len(), 1);
}

/// After its expiry a worker's transitions are refused; when it comes back it starts afresh, and
/// versions from before never match again.
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

/// A worker that leaves on its own is gone at once, with its instances.
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

/// Follows the feed from `view`'s cursor and checks that it arrives at the store's content.
async fn follow(store: &Store, view: &mut View) {
    let changes = store.changes(view.cursor).await.expect("changes");
    view.follow(&changes);
    assert_eq!(view.snapshot(), store.snapshot().await.expect("snapshot"));
}

/// Random writes of every kind, the same for the same seed.
async fn disturb(store: &Store, choices: &mut Choices, now_ms: u64) {
    let worker_name = choices.pick(&["w1", "w2", "w3"]);
    let variant_name = choices.pick(&["a", "b", "c", "d"]);
    match choices.below(10) {
        0 => {
            store
                .publish_variant(choices.variant(variant_name))
                .await
                .expect("publish");
        }
        1 => {
            let variant = key(variant_name, "w").variant;
            store.retire_variant(&variant).await.expect("retire");
        }
        2 => {
            let ttl_ms = 1 + choices.below(30);
            let record = record(choices.below(100) as f64 / 100.0);
            let worker = worker(worker_name);
            store
                .heartbeat(&worker, record, ttl_ms, now_ms)
                .await
                .expect("heartbeat");
        }
        3 => {
            store.expire(now_ms).await.expect("expire");
        }
        _ => {
            let transition = Transition {
                key: InstanceKey::new(key(variant_name, "w").variant, worker(worker_name)),
                application: application("app"),
                expected_version: None,
                command: choices.command(),
            };
            match store.transition(&transition, now_ms).await {
                Ok(_) | Err(Error::Rejected(_) | Error::UnknownWorker(_)) => {}
                Err(other) => panic!("{other}"),
            }
        }
    }
}

/// The position after which an empty store has said nothing.
async fn head(store: &Store) -> Cursor {
    store.snapshot().await.expect("snapshot").cursor
}
