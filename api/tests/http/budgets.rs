//! What applications may use: who may set it, and what is refused.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::double::{ADMIN, Api, Reading, Recorder, Settings, variant};

const DIGITS: &str = "/v1/applications/digits";

async fn with_keys() -> Api {
    let api = Api::with(Recorder::answering(), Settings::keys()).await;
    for name in ["digits", "letters"] {
        let body = json!({"name": name, "metric": "top1"}).to_string();
        let created = api.keyed(ADMIN, "POST", "/v1/applications", body).await;
        assert_eq!(created.status, 201);
    }
    api
}

/// A key of these scopes, bound to `digits` or to none.
async fn key(api: &Api, scopes: &[&str], bound: bool) -> String {
    let mut key = json!({"name": "a key", "scopes": scopes});
    if bound {
        key["application"] = json!("digits");
    }
    let created = api.keyed(ADMIN, "POST", "/v1/keys", key.to_string()).await;
    assert_eq!(created.status, 201);
    created.json()["secret"]
        .as_str()
        .expect("a secret")
        .to_owned()
}

async fn change(api: &Api, key: &str, path: &str, resources: Value) -> Reading {
    let body = json!({ "resources": resources }).to_string();
    api.keyed(key, "PATCH", path, body).await
}

#[tokio::test]
async fn members_that_are_left_out_stay_and_null_takes_back() {
    let api = with_keys().await;
    let before = api.keyed(ADMIN, "GET", DIGITS, "").await.json();
    assert_eq!(before.get("resources"), None, "nothing is set");
    let set = json!({"budget_per_hour_usd": 2.5, "least_workers": 1, "most_workers": 4,
        "priority": 200, "weight": 0.5});
    let changed = change(&api, ADMIN, DIGITS, set.clone()).await;
    assert_eq!(changed.status, 200, "{}", changed.json());
    assert_eq!(changed.json()["resources"], set);
    let further = json!({"budget_per_hour_usd": 0.0, "least_workers": null});
    let wanted = json!({"budget_per_hour_usd": 0.0, "most_workers": 4, "priority": 200,
        "weight": 0.5});
    let changed = change(&api, ADMIN, DIGITS, further).await;
    assert_eq!(changed.json()["resources"], wanted);
    let read = api.keyed(ADMIN, "GET", DIGITS, "").await.json();
    assert_eq!(read["resources"], wanted);
    let all = json!({"budget_per_hour_usd": null, "most_workers": null, "priority": null,
        "weight": null});
    let changed = change(&api, ADMIN, DIGITS, all).await.json();
    assert_eq!(changed, before);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let api = with_keys().await;
    let sound = json!({"most_workers": 4});
    assert_eq!(change(&api, ADMIN, DIGITS, sound.clone()).await.status, 200);
    for (resources, says) in [
        (json!({"budget_per_hour_usd": -1.0}), "budget_per_hour_usd"),
        (json!({"budget_per_hour_usd": 1e300}), "budget_per_hour_usd"),
        (
            json!({"budget_per_hour_usd": "much"}),
            "budget_per_hour_usd",
        ),
        (json!({"least_workers": 5}), "most_workers"),
        (json!({"least_workers": -1}), "least_workers"),
        (json!({"least_workers": 1.5}), "least_workers"),
        (json!({"most_workers": 4_000_000_000_u32}), "most_workers"),
        (json!({"priority": 256}), "priority"),
        (json!({"weight": 0.0}), "weight"),
        (json!({"weight": 1e9}), "weight"),
        (json!({"colour": "red"}), "colour"),
    ] {
        let refused = change(&api, ADMIN, DIGITS, resources.clone()).await;
        assert_eq!(refused.status, 400, "{resources}");
        let problem = refused.problem("invalid_request");
        assert!(problem.to_string().contains(says), "{problem}");
        // The same at the creation.
        let body = json!({"name": "new", "metric": "top1", "resources": resources});
        let refused = api.keyed(ADMIN, "POST", "/v1/applications", body.to_string());
        // Nothing is there yet that five at least would be more than.
        if says != "most_workers" {
            refused.await.problem("invalid_request");
        }
    }
    for body in [
        "",
        "[]",
        r#"{"resources":{"weight":1e999}}"#,
        r#"{"resources":{"weight":NaN}}"#,
        r#"{"resources":{},"name":"other"}"#,
    ] {
        let refused = api.keyed(ADMIN, "PATCH", DIGITS, body).await;
        assert_eq!(refused.status, 400, "{body}");
        refused.problem("invalid_request");
    }
    let read = api.keyed(ADMIN, "GET", DIGITS, "").await.json();
    assert_eq!(read["resources"], sound);
    change(&api, ADMIN, "/v1/applications/nobody", sound)
        .await
        .problem("application_not_found");
}

#[tokio::test]
async fn whoever_is_held_to_a_budget_does_not_decide_over_it() {
    let api = with_keys().await;
    let set = json!({"budget_per_hour_usd": 1.0});
    for scopes in [&["query"][..], &["register"], &["query", "register"]] {
        for bound in [false, true] {
            let key = key(&api, scopes, bound).await;
            let refused = change(&api, &key, DIGITS, set.clone()).await;
            assert_eq!(refused.status, 403, "{scopes:?}");
            refused.problem("forbidden");
        }
    }
    // A key that is bound to one application never has the scope; one that is not decides over all.
    let admin = key(&api, &["admin"], false).await;
    assert_eq!(change(&api, &admin, DIGITS, set.clone()).await.status, 200);
    // Nor by creating another application, or this one again.
    let registering = key(&api, &["register"], false).await;
    let new = json!({"name": "new", "metric": "top1", "resources": set}).to_string();
    api.keyed(&registering, "POST", "/v1/applications", new.clone())
        .await
        .problem("forbidden");
    api.keyed(&registering, "DELETE", DIGITS, "")
        .await
        .problem("forbidden");
    let deleted = api.keyed(&registering, "DELETE", "/v1/applications/letters", "");
    assert_eq!(deleted.await.status, 204, "nothing was set there");
    let created = api.keyed(ADMIN, "POST", "/v1/applications", new).await;
    assert_eq!(created.status, 201);
    assert_eq!(created.json()["resources"], set);
    let audit = api.keyed(ADMIN, "GET", "/v1/audit?action=application.change", "");
    let audit = audit.await.json();
    let entries = audit["entries"].as_array().expect("a list");
    assert_eq!(entries.len(), 1, "{audit}");
    assert_eq!(entries[0]["subject"], "digits", "{audit}");
}

#[tokio::test]
async fn what_is_set_is_shown_with_the_variants() {
    let api = Api::new(Recorder::answering()).await;
    let body = json!({"name": "digits", "metric": "top1"}).to_string();
    assert_eq!(api.call("POST", "/v1/applications", body).await.status, 201);
    let published = api.metadata.publish_variant(Arc::new(variant())).await;
    published.expect("published");
    let body = r#"{"resources":{"budget_per_hour_usd":3.0}}"#;
    assert_eq!(api.call("PATCH", DIGITS, body).await.status, 200);
    let shown = api.metadata.variants().await.expect("variants");
    assert_eq!(shown[0].resources.budget_per_hour_usd, Some(3.0));
}
