//! API keys.

use sextant_types::{Code, ErrorKind};

use super::*;
use crate::{ApiKey, KeyScope, NewKey};

on_both! {
    a_key_is_created_once,
    a_key_keeps_what_it_was_given,
    a_key_is_revoked_once,
    every_change_raises_the_revision,
    two_keys_never_share_a_hash,
}

fn key(name: &str) -> NewKey {
    NewKey::new(name, format!("hash of {name}"), &[KeyScope::Query])
}

async fn a_key_is_created_once(place: Place) {
    let registry = place.open().await;
    let new = key("a");
    let made = registry.create_key(&new, 7).await.unwrap();
    assert_eq!((made.created_ms, made.revoked_ms), (7, None));
    assert_eq!(registry.create_key(&new, 8).await.unwrap(), made);
    let other = NewKey {
        name: "b".to_owned(),
        ..new.clone()
    };
    assert_eq!(told(registry.create_key(&other, 8).await), "Exists");
    assert_eq!(registry.key(&new.id).await.unwrap(), made);
    let gone = registry.key("gone").await.unwrap_err();
    assert_eq!(
        (gone.code(), gone.kind()),
        (Code::KeyNotFound, ErrorKind::NotFound)
    );
}

async fn a_key_keeps_what_it_was_given(place: Place) {
    let registry = place.open().await;
    let full = NewKey {
        scopes: vec![KeyScope::Admin, KeyScope::Query, KeyScope::Admin],
        application: Some(app()),
        rate_per_s: Some(0.1 + 0.2),
        burst: Some(17),
        quota_per_day: Some(1 << 50),
        expires_ms: Some(100),
        ..key("full")
    };
    let none = NewKey {
        scopes: Vec::new(),
        ..key("none")
    };
    let first = registry.create_key(&full, 1).await.unwrap();
    let second = registry.create_key(&none, 2).await.unwrap();
    assert_eq!(first.scopes, [KeyScope::Query, KeyScope::Admin]);
    assert_eq!(first.rate_per_s, full.rate_per_s);
    assert_eq!(first.expires_ms, full.expires_ms);
    registry.close().await;
    let registry = place.open().await;
    assert_eq!(registry.keys().await.unwrap(), [first, second]);
    let endless = NewKey {
        rate_per_s: Some(f64::NAN),
        ..key("endless")
    };
    assert_eq!(told(registry.create_key(&endless, 3).await), "Unstorable");
}

async fn a_key_is_revoked_once(place: Place) {
    let registry = place.open().await;
    let new = key("a");
    registry.create_key(&new, 1).await.unwrap();
    let revoked = registry.revoke_key(&new.id, 5).await.unwrap();
    assert_eq!(revoked.revoked_ms, Some(5));
    assert_eq!(registry.revoke_key(&new.id, 6).await.unwrap(), revoked);
    let found = registry.key(&new.id).await.unwrap();
    assert_eq!(found, revoked, "it stays, for the record");
    assert_eq!(
        registry.create_key(&new, 7).await.unwrap(),
        revoked,
        "no way back"
    );
    assert_eq!(told(registry.revoke_key("gone", 6).await), "NotFound");
}

async fn every_change_raises_the_revision(place: Place) {
    let (here, there) = (place.open().await, place.open().await);
    assert_eq!(there.keys_revision().await.unwrap(), 0);
    let new = key("a");
    here.create_key(&new, 1).await.unwrap();
    let created = there.keys_revision().await.unwrap();
    assert!(created > 0);
    here.create_key(&new, 2).await.unwrap();
    assert_eq!(there.keys_revision().await.unwrap(), created, "no change");
    here.revoke_key(&new.id, 3).await.unwrap();
    let revoked = there.keys_revision().await.unwrap();
    assert!(revoked > created);
    here.revoke_key(&new.id, 4).await.unwrap();
    assert_eq!(there.keys_revision().await.unwrap(), revoked, "no change");
}

async fn two_keys_never_share_a_hash(place: Place) {
    let registry = place.open().await;
    let racers: Vec<_> = (0..8)
        .map(|index| {
            let registry = registry.clone();
            let new = NewKey::new(format!("{index}"), "the same", &[KeyScope::Query]);
            tokio::spawn(async move { registry.create_key(&new, index).await })
        })
        .collect();
    let mut made: Vec<ApiKey> = Vec::new();
    for racer in racers {
        match racer.await.unwrap() {
            Ok(key) => made.push(key),
            Err(error) => assert_eq!(told::<()>(Err(error)), "Exists"),
        }
    }
    assert_eq!(made.len(), 1);
    assert_eq!(registry.keys().await.unwrap(), made);
}
