//! The audit record.

use serde_json::json;

use super::*;
use crate::{Audit, AuditFilter};

on_both! {
    entries_are_kept_once_and_as_they_were,
    entries_are_filtered_and_paged_newest_first,
}

fn entry(at_ms: u64, actor: &str, action: &str) -> Audit {
    let detail = json!({ "at": at_ms, "float": 1e-17, "nul": "\u{0}" });
    Audit::new(at_ms, actor, action, "subject", detail)
}

async fn entries_are_kept_once_and_as_they_were(place: Place) {
    let registry = place.open().await;
    let first = entry(1, "me", "key.create");
    registry.record(&first).await.unwrap();
    let changed = Audit {
        detail: json!("changed"),
        ..first.clone()
    };
    registry.record(&changed).await.unwrap();
    let all = registry.audit(&AuditFilter::default()).await.unwrap();
    assert_eq!(all, [first]);
}

async fn entries_are_filtered_and_paged_newest_first(place: Place) {
    let registry = place.open().await;
    let mut entries = Vec::new();
    for index in 0..9 {
        let actor = if index % 3 == 0 { "me" } else { "you" };
        // Pairs have the same time, so that the id decides.
        let made = entry(index / 2, actor, "key.create");
        registry.record(&made).await.unwrap();
        entries.push(made);
    }
    entries.sort_by(|left, right| (right.at_ms, &right.id).cmp(&(left.at_ms, &left.id)));
    let mut filter = AuditFilter {
        limit: Some(4),
        ..AuditFilter::default()
    };
    let mut joined = Vec::new();
    loop {
        let page = registry.audit(&filter).await.unwrap();
        let Some(last) = page.last() else {
            break;
        };
        filter.before = Some(last.id.clone());
        joined.extend(page);
    }
    assert_eq!(joined, entries);
    let mine = AuditFilter {
        actor: Some("me".to_owned()),
        action: Some("key.create".to_owned()),
        subject: Some("subject".to_owned()),
        since_ms: Some(1),
        ..AuditFilter::default()
    };
    let mine = registry.audit(&mine).await.unwrap();
    assert_eq!(
        mine.iter().map(|entry| entry.at_ms).collect::<Vec<_>>(),
        [3, 1]
    );
    let other = AuditFilter {
        action: Some("key.revoke".to_owned()),
        ..AuditFilter::default()
    };
    assert_eq!(registry.audit(&other).await.unwrap(), []);
}
