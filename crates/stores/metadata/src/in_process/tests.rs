use super::*;
use crate::conformance::{Store, sample_variant};

crate::bind_metadata_conformance!(async { (Arc::new(InProcessStore::new()) as Store, ()) });

#[tokio::test]
async fn history_is_bounded_to_what_was_asked_for() {
    let store = InProcessStore::with_history(3);
    for cost in 0..5 {
        let variant = sample_variant("v", f64::from(cost));
        store.publish_variant(variant).await.unwrap();
    }
    assert_eq!(store.changes(Cursor(2)).await.unwrap().events.len(), 3);
    let trimmed = store.changes(Cursor(1)).await;
    let Err(Error::Trimmed { oldest, .. }) = trimmed else {
        panic!("{trimmed:?}");
    };
    assert_eq!(oldest, Cursor(2));
}

#[tokio::test]
async fn refused_writes_wake_nobody() {
    let store = InProcessStore::new();
    let head = store.head.subscribe();
    let gone = VariantId::new("gone").unwrap();
    store.retire_variant(&gone).await.unwrap();
    store.expire(0).await.unwrap();
    assert!(!head.has_changed().unwrap());
}
