//! Properties of the change feed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    Store, beat, disturb, fixtures::Choices, fixtures::step, follow, head, key, lasting,
    sample_variant, without_renewals,
};
use crate::{Changes, Command, Cursor, Error, Event, MetadataStore, Snapshot, View};

/// Long enough for a wake-up on any machine; only a failing property waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

/// Publishing a published variant and retiring an absent one change nothing.
pub async fn publish_and_retire_are_idempotent(store: Store) {
    let first = sample_variant("v", 1.0);
    let second = sample_variant("v", 2.0);
    let start = head(&store).await;
    assert!(store.publish_variant(first.clone()).await.expect("publish"));
    assert!(!store.publish_variant(first.clone()).await.expect("publish"));
    let variants = store.variants().await.expect("variants");
    assert_eq!(variants.as_slice(), std::slice::from_ref(&first));
    assert!(
        store
            .publish_variant(second.clone())
            .await
            .expect("publish")
    );
    let variants = store.variants().await.expect("variants");
    assert_eq!(variants.as_slice(), std::slice::from_ref(&second));
    assert!(store.retire_variant(&second.id).await.expect("retire"));
    assert!(!store.retire_variant(&second.id).await.expect("retire"));
    assert_eq!(store.variants().await.expect("variants"), []);
    let events = store.changes(start).await.expect("changes").events;
    let id = second.id.clone();
    let desired = [
        Event::VariantPublished(first),
        Event::VariantPublished(second),
        Event::VariantRetired(id),
    ];
    assert_eq!(events, desired);
}

/// However the feed is cut into pieces, the pieces are complete and lead to the same content.
pub async fn feed_resumes_without_gap_or_duplicate(store: Store) {
    let start = store.snapshot().await.expect("snapshot");
    let mut view = View::from(start.clone());
    let mut choices = Choices::new(0xfeed);
    let mut pieces = Vec::new();
    for now_ms in 0..400 {
        disturb(&store, &mut choices, now_ms).await;
        if choices.below(7) == 0 {
            let changes = store.changes(view.cursor).await.expect("changes");
            view.follow(&changes);
            pieces.extend(changes.events);
        }
    }
    let Changes { events, cursor } = store.changes(view.cursor).await.expect("changes");
    pieces.extend(events);
    let whole = store.changes(start.cursor).await.expect("changes");
    let seed = choices.seed;
    assert_eq!(lasting(pieces), lasting(whole.events), "seed {seed}");
    assert_eq!(cursor, whole.cursor);
    follow(&store, &mut view).await;
    let nothing = store.changes(cursor).await.expect("changes");
    assert_eq!((nothing.events, nothing.cursor), (vec![], cursor));
}

/// A cursor that this store never gave is treated like one that is too old.
pub async fn foreign_cursor_is_trimmed(store: Store) {
    let foreign = Cursor(head(&store).await.0 + 1_000_000);
    let answer = store.changes(foreign).await;
    assert!(matches!(answer, Err(Error::Trimmed { .. })), "{answer:?}");
    wakes(&store, foreign).await;
}

/// A follower that lags behind the history is told so, and continues from a snapshot without loss.
pub async fn trimmed_feed_leads_to_a_consistent_snapshot(store: Store) {
    const MOST: u64 = 200_000;
    let start = head(&store).await;
    let mut written = 0;
    let oldest = loop {
        let cost = written as f64;
        store
            .publish_variant(sample_variant("v", cost))
            .await
            .expect("publish");
        written += 1;
        assert!(written < MOST, "the history is not bounded");
        // Asking only sometimes keeps the property fast if a call is a round trip.
        if written % 256 != 0 {
            continue;
        }
        match store.changes(start).await {
            Ok(_) => {}
            Err(Error::Trimmed { oldest, .. }) => break oldest,
            Err(other) => panic!("{other}"),
        }
    };
    assert!(oldest > start);
    wakes(&store, start).await;
    store
        .changes(oldest)
        .await
        .expect("the oldest cursor can be resumed from");
    let mut view = View::from(store.snapshot().await.expect("snapshot"));
    assert_eq!(view.variants.len(), 1);
    let mut choices = Choices::new(0x721e);
    for now_ms in 0..50 {
        disturb(&store, &mut choices, now_ms).await;
    }
    follow(&store, &mut view).await;
}

/// A snapshot taken while others write is exactly the content at its cursor.
pub async fn snapshot_is_consistent_under_writes(store: Store) {
    const MOST: usize = 300;
    let mut early = View::from(store.snapshot().await.expect("snapshot"));
    let writing = Arc::new(AtomicBool::new(true));
    let writer = tokio::spawn({
        let (store, writing) = (store.clone(), writing.clone());
        async move {
            let mut choices = Choices::new(0xc0_4515);
            for now_ms in 0..1000 {
                disturb(&store, &mut choices, now_ms).await;
                if now_ms % 16 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            writing.store(false, Ordering::Release);
        }
    });
    let mut snapshots = Vec::new();
    while writing.load(Ordering::Acquire) {
        let snapshot = store.snapshot().await.expect("snapshot");
        if snapshots.len() < MOST {
            snapshots.push(snapshot);
        }
        tokio::task::yield_now().await;
    }
    writer.await.expect("the writer ran");
    snapshots.push(store.snapshot().await.expect("snapshot"));
    let whole = store.changes(early.cursor).await.expect("changes");
    let mut events = whole.events.iter();
    for snapshot in snapshots {
        let left = store.changes(snapshot.cursor).await.expect("changes");
        let seen = events.len() - left.events.len();
        for event in events.by_ref().take(seen) {
            early.apply(event);
        }
        early.cursor = snapshot.cursor;
        let at = snapshot.cursor;
        // The feed has the latest demand only.
        let lasting = |snapshot| Snapshot {
            demand: None,
            ..without_renewals(snapshot)
        };
        assert_eq!(lasting(early.snapshot()), lasting(snapshot), "at {at}");
    }
    assert_eq!(events.len(), 0);
    let end = store.snapshot().await.expect("snapshot");
    assert_eq!(early.snapshot().demand, end.demand);
}

/// A waiter wakes on a change, and not before.
pub async fn changed_wakes_on_a_change(store: Store) {
    beat(&store, "w", 0).await;
    let start = head(&store).await;
    let mut waiting = Box::pin(store.changed(start));
    let early = std::future::poll_fn(|context| {
        std::task::Poll::Ready(waiting.as_mut().poll(context).is_ready())
    });
    assert!(!early.await, "woke without a change");
    step(&store, "v", "w", None, Command::Load)
        .await
        .expect("load");
    let woken = tokio::time::timeout(PATIENCE, waiting).await;
    woken.expect("woke in time").expect("changed");
    let changes = store.changes(start).await.expect("changes");
    assert!(matches!(&changes.events[..], [Event::InstanceChanged(it)] if it.key == key("v", "w")));
}

/// A wait for a cursor that is behind returns at once.
pub async fn changed_returns_at_once_when_there_is_something(store: Store) {
    let start = head(&store).await;
    beat(&store, "w", 0).await;
    wakes(&store, start).await;
}

async fn wakes(store: &Store, cursor: Cursor) {
    let answer = tokio::time::timeout(PATIENCE, MetadataStore::changed(&**store, cursor)).await;
    answer.expect("answered in time").expect("changed");
}
