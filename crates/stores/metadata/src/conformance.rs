//! The properties that every metadata store has: one function each, over an empty store.
//!
//! A backend binds them all with [`bind_metadata_conformance!`](crate::bind_metadata_conformance).
//! Time is an argument, so no property waits for a clock.

use std::sync::Arc;

use crate::{
    Command, Cursor, Error, Event, Instance, InstanceKey, InstanceState, MetadataStore, Snapshot,
    Transition, View, apply,
};

mod feed;
mod fixtures;
mod leader;
pub mod rate;
mod record;
mod worker;

pub use feed::{
    changed_returns_at_once_when_there_is_something, changed_wakes_on_a_change,
    feed_resumes_without_gap_or_duplicate, foreign_cursor_is_trimmed,
    publish_and_retire_are_idempotent, snapshot_is_consistent_under_writes,
    trimmed_feed_leads_to_a_consistent_snapshot,
};
pub use fixtures::sample_variant;
use fixtures::{Choices, application, beat, candidate, key, record, step, worker};
pub use leader::{
    lapsed_role_goes_to_another_with_a_greater_token, lapsed_role_is_renewed_by_who_held_it_last,
    one_of_many_candidates_leads, renewal_keeps_the_token_and_is_no_event,
    resigned_role_is_free_at_once, roles_do_not_know_each_other,
};
pub use record::{
    demand_beyond_its_bounds_is_refused, records_are_absent_until_they_are_written,
    records_are_fenced_by_their_tokens, records_are_replaced_as_a_whole,
    records_that_say_the_same_are_no_event,
};
pub use worker::{
    dead_workers_late_transition_is_refused, heartbeat_renews_the_lease_of_all_instances,
    lapsed_lease_removes_instances, late_heartbeat_renews_what_nobody_expired,
    leaving_worker_takes_its_instances_along, mark_of_a_leaving_worker_ends_with_its_life,
    worker_is_recorded_as_it_said, worker_needs_a_lease, worker_that_is_to_leave_is_marked,
};

/// A store under test.
pub type Store = Arc<dyn MetadataStore>;

const SECOND: u64 = 1000;

/// Makes one `#[tokio::test]` of each property. The argument is an async expression that gives an
/// empty store and a value that must live as long as the store, such as its server:
/// `bind_metadata_conformance!(async { (Arc::new(MyStore::new()) as Store, ()) })`.
#[macro_export]
macro_rules! bind_metadata_conformance {
    ($fresh:expr) => {
        $crate::bind_metadata_conformance!(@each $fresh;
            transition_expecting_another_version_conflicts
            one_of_two_writers_wins
            transitions_are_those_of_the_state_machine
            instance_of_another_application_is_refused
            instance_that_holds_nothing_goes_to_who_loads_it
            many_transitions_are_each_on_its_own
            worker_needs_a_lease
            worker_is_recorded_as_it_said
            heartbeat_renews_the_lease_of_all_instances
            lapsed_lease_removes_instances
            late_heartbeat_renews_what_nobody_expired
            dead_workers_late_transition_is_refused
            leaving_worker_takes_its_instances_along
            worker_that_is_to_leave_is_marked
            mark_of_a_leaving_worker_ends_with_its_life
            one_of_many_candidates_leads
            renewal_keeps_the_token_and_is_no_event
            lapsed_role_goes_to_another_with_a_greater_token
            lapsed_role_is_renewed_by_who_held_it_last
            resigned_role_is_free_at_once
            roles_do_not_know_each_other
            records_are_replaced_as_a_whole
            records_are_absent_until_they_are_written
            records_are_fenced_by_their_tokens
            records_that_say_the_same_are_no_event
            demand_beyond_its_bounds_is_refused
            publish_and_retire_are_idempotent
            life_stays_while_the_content_stays
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
                let (store, _guard) = $fresh.await;
                $crate::conformance::$property(store).await;
            }
        )*
    };
}

/// A transition that expects another version changes nothing and returns the present record.
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

/// For any commands, the store's answer is that of [`crate::apply`].
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
        let desired = apply(&held, &command, now_ms);
        let got = store.transition(&transition, now_ms).await;
        let seed = choices.seed;
        match (desired, got) {
            (Ok(desired), Ok(got)) => {
                assert_eq!(got, desired, "seed {seed} round {round}");
                model = Some(got);
            }
            (Err(desired), Err(Error::Rejected(got))) => {
                assert_eq!(got, desired, "seed {seed} round {round}");
            }
            (desired, got) => {
                panic!("seed {seed} round {round} {command:?}: {got:?} instead of {desired:?}")
            }
        }
        let stored = store.instance(&key("v", "w")).await.expect("instance");
        assert_eq!(stored, model, "seed {seed} round {round}");
    }
}

/// An instance keeps the application for which it was loaded while it holds something.
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

/// A model that was deleted may be registered for another application under its name.
pub async fn instance_that_holds_nothing_goes_to_who_loads_it(store: Store) {
    beat(&store, "w", 0).await;
    let by = async |name: &str, command: Command| {
        let transition = Transition {
            key: key("v", "w"),
            application: application(name),
            expected_version: None,
            command,
        };
        store.transition(&transition, 0).await
    };
    by("app", Command::Load).await.expect("load");
    by("app", Command::Loaded).await.expect("loaded");
    by("app", Command::Drain).await.expect("drain");
    let held = by("other", Command::Load).await;
    assert!(
        matches!(held, Err(Error::OtherApplication { .. })),
        "{held:?}"
    );
    let unloaded = by("app", Command::Unloaded).await.expect("unloaded");
    // Only a load takes it over.
    let early = by("other", Command::Loaded).await;
    assert!(
        matches!(early, Err(Error::OtherApplication { .. })),
        "{early:?}"
    );
    let taken = by("other", Command::Load).await.expect("load");
    assert_eq!(taken.application, application("other"));
    assert_eq!(taken.version, unloaded.version + 1);
    let reason = "it broke".to_owned();
    let failed = by("other", Command::LoadFailed { reason }).await;
    failed.expect("a load that failed");
    by("app", Command::Load).await.expect("load");
    let active = by("app", Command::Loaded).await.expect("loaded");
    let stored = store.instance(&key("v", "w")).await.expect("instance");
    assert_eq!(stored, Some(active.clone()));
    let all = store.snapshot().await.expect("snapshot").instances;
    assert_eq!(all, [active]);
}

/// Many transitions in one call have the same results as one after the other.
pub async fn many_transitions_are_each_on_its_own(store: Store) {
    const INSTANCES: usize = 200;
    beat(&store, "w", 0).await;
    let make = |index: usize, on: &str, expected_version, command| Transition {
        key: key(&format!("v{index:03}"), on),
        application: application("app"),
        expected_version,
        command,
    };
    let all = |command: Command| {
        let one = move |index| make(index, "w", None, command.clone());
        (0..INSTANCES).map(one).collect::<Vec<_>>()
    };
    let start = head(&store).await;
    let loading = store.transitions(&all(Command::Load), 1).await;
    let mut loading = loading.into_iter().map(|answer| answer.expect("load"));
    let first = loading.next().expect("as many answers as transitions");
    assert_eq!((&first.key, first.version), (&key("v000", "w"), 1));
    assert_eq!(loading.count(), INSTANCES - 1);
    let mixed = [
        make(1, "w", Some(1), Command::Loaded),
        make(2, "w", Some(7), Command::Loaded),
        make(3, "w", None, Command::Drain),
        make(4, "gone", None, Command::Load),
        make(1, "w", Some(2), Command::Report { load: 0.25 }),
        make(1, "w", Some(2), Command::Report { load: 0.5 }),
        make(1, "w", None, Command::Overload),
    ];
    let answers = store.transitions(&mixed, 2).await;
    match &answers[..] {
        [
            Ok(loaded),
            Err(Error::Conflict { expected: 7, .. }),
            Err(Error::Rejected(_)),
            Err(Error::UnknownWorker(_)),
            Ok(reported),
            Err(Error::Conflict { expected: 2, .. }),
            Ok(overloaded),
        ] => {
            assert_eq!((loaded.state, loaded.version), (InstanceState::Active, 2));
            assert_eq!((reported.load, reported.version), (0.25, 3));
            assert_eq!((overloaded.load, overloaded.version), (0.25, 4));
        }
        other => panic!("{other:?}"),
    }
    assert!(store.transitions(&[], 3).await.is_empty());
    let changes = store.changes(start).await.expect("changes");
    assert_eq!(changes.events.len(), INSTANCES + 3);
    let mut view = View::from(store.snapshot().await.expect("snapshot"));
    view.instances.clear();
    view.follow(&changes);
    assert_eq!(view.snapshot(), store.snapshot().await.expect("snapshot"));
}

/// The life is that of the content: it does not end while the content exists.
pub async fn life_stays_while_the_content_stays(store: Store) {
    let before = store.snapshot().await.expect("snapshot").life;
    beat(&store, "w", 0).await;
    store.remove_worker(&worker("w")).await.expect("remove");
    let after = store.snapshot().await.expect("snapshot").life;
    assert_eq!(before, after);
}

/// Follows the feed from `view`'s cursor and checks that the view reaches the store's content.
async fn follow(store: &Store, view: &mut View) {
    let changes = store.changes(view.cursor).await.expect("changes");
    view.follow(&changes);
    let content = store.snapshot().await.expect("snapshot");
    assert_eq!(without_renewals(view.snapshot()), without_renewals(content));
}

/// A snapshot without what the feed omits: renewals of leaders' leases are no events.
fn without_renewals(mut snapshot: Snapshot) -> Snapshot {
    for leader in &mut snapshot.leaders {
        leader.lease_until_ms = 0;
    }
    snapshot
}

/// Events whose content does not depend on the time of reading: the feed has a demand only until
/// the next one.
fn lasting(events: impl IntoIterator<Item = Event>) -> Vec<Event> {
    let events = events.into_iter().map(|event| match event {
        Event::DemandChanged(_) => Event::DemandChanged(None),
        other => other,
    });
    events.collect()
}

/// Writes a random record with random content, under a token that may be too small.
async fn write_record(store: &Store, choices: &mut Choices, now_ms: u64) {
    let (token, content) = (choices.below(1 + now_ms), choices.below(5));
    let written = match choices.maybe() {
        true => store.set_desired(record::desired(token, content)).await,
        false => store.set_demand(record::demand(token, content)).await,
    };
    match written {
        Ok(()) | Err(Error::Fenced { .. }) => {}
        Err(other) => panic!("{other}"),
    }
}

/// Random writes of every kind, the same for the same seed.
async fn disturb(store: &Store, choices: &mut Choices, now_ms: u64) {
    let worker_name = choices.pick(&["w1", "w2", "w3"]);
    let variant_name = choices.pick(&["a", "b", "c", "d"]);
    match choices.below(15) {
        14 => {
            let worker = worker(worker_name);
            store.mark_leaving(&worker).await.expect("mark");
        }
        10 => {
            let candidate = candidate(choices.pick(&["r", "s"]), worker_name);
            let ttl_ms = 1 + choices.below(30);
            let campaign = store.campaign(&candidate, ttl_ms, now_ms);
            campaign.await.expect("campaign");
        }
        11 => {
            let candidate = candidate(choices.pick(&["r", "s"]), worker_name);
            store.resign(&candidate).await.expect("resign");
        }
        12 | 13 => write_record(store, choices, now_ms).await,
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

/// The cursor of an empty store.
async fn head(store: &Store) -> Cursor {
    store.snapshot().await.expect("snapshot").cursor
}
