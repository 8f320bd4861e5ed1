//! Who may give feedback, and who may see and erase it.

use serde_json::{Value, json};
use sextant_registry::JobKind;
use sextant_types::{Digest, time::unix_ms};

use crate::double::{ADMIN, Api, Reading, Recorder, Settings};

const OF_DIGITS: &str = "/v1/applications/digits/feedback";

async fn with_keys() -> Api {
    let api = Api::with(Recorder::answering(), Settings::keys()).await;
    for name in ["digits", "letters"] {
        let body = json!({"name": name, "metric": "top1", "feedback": {}}).to_string();
        let created = api.keyed(ADMIN, "POST", "/v1/applications", body).await;
        assert_eq!(created.status, 201);
        assert_eq!(created.json()["feedback"]["keep_days"], 30);
    }
    api
}

/// A key of this scope that is bound to an application.
async fn key(api: &Api, scope: &str, application: &str) -> String {
    let key = json!({"name": "a key", "scopes": [scope], "application": application});
    let created = api.keyed(ADMIN, "POST", "/v1/keys", key.to_string()).await;
    let secret = created.json()["secret"].as_str().map(str::to_owned);
    secret.expect("a secret")
}

async fn token(api: &Api) -> String {
    let input = json!([{"name": "pixels", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]);
    let query = json!({"application": "digits", "inputs": input}).to_string();
    let answer = api.keyed(ADMIN, "POST", "/v1/queries", query).await.json();
    let token = answer["feedback_token"].as_str().map(str::to_owned);
    token.unwrap_or_else(|| panic!("{answer}"))
}

async fn give(api: &Api, key: &str, item: &Value) -> Reading {
    api.keyed(key, "POST", "/v1/feedback", item.to_string())
        .await
}

#[tokio::test]
async fn a_key_gives_feedback_where_it_may_ask() {
    let api = with_keys().await;
    let item = json!({"token": token(&api).await, "label": 0});
    let foreign = key(&api, "query", "letters").await;
    assert_eq!(
        give(&api, &foreign, &item).await.problem("forbidden")["status"],
        403
    );
    let mixed = give(&api, &foreign, &json!([item])).await.json();
    assert_eq!(mixed["refusals"][0]["code"], "forbidden", "{mixed}");
    let only_registers = key(&api, "register", "digits").await;
    give(&api, &only_registers, &item)
        .await
        .problem("forbidden");
    let own = key(&api, "query", "digits").await;
    assert_eq!(give(&api, &own, &item).await.json()["accepted"], 1);
    assert_eq!(give(&api, ADMIN, &item).await.json()["repeated"], 1);
    // Who asks need not see what others said.
    api.keyed(&own, "GET", OF_DIGITS, "")
        .await
        .problem("forbidden");
    let line = api.keyed(&only_registers, "GET", OF_DIGITS, "").await;
    let line: Value = serde_json::from_slice(&line.bytes).expect("one line");
    assert_eq!((&line["value"], &line["score"]), (&json!(0), &json!(1.0)));
    assert_ne!(line["actor"], "administrator");
    let foreign = key(&api, "register", "letters").await;
    api.keyed(&foreign, "DELETE", &format!("{OF_DIGITS}?subject=u"), "")
        .await
        .problem("forbidden");
    let query = line["query"].as_str().expect("a query");
    let path = format!("{OF_DIGITS}?query={query}");
    let erased = api.keyed(&only_registers, "DELETE", &path, "").await;
    assert_eq!(erased.json()["erased"], 1);
}

#[tokio::test]
async fn the_tag_of_an_application_is_not_moved_by_feedback() {
    let api = with_keys().await;
    let tag = |reading: &Reading| reading.headers["etag"].clone();
    let before = api.keyed(ADMIN, "GET", "/v1/applications/digits", "").await;
    let item = json!({"token": token(&api).await, "label": 1});
    give(&api, ADMIN, &item).await.json();
    let after = api.keyed(ADMIN, "GET", "/v1/applications/digits", "").await;
    assert_eq!(tag(&before), tag(&after));
    let online = &after.json()["online"][0]["online"];
    assert_eq!(
        (&online["value"], &online["rows"]),
        (&json!(0.0), &json!(1))
    );
}

/// Ends the registration that waits.
pub async fn end_registration(api: &Api) {
    let (registry, nothing) = (&api.registry, json!({}));
    let claimed = registry.claim(JobKind::Register, "me", 60_000, unix_ms());
    let claimed = claimed.await.expect("a store").expect("a job");
    let finished = registry.finish_with(&claimed.id, "me", &[], &nothing, unix_ms());
    finished.await.expect("it is mine");
    api.state.refresh().await.expect("read");
}

/// A name stands for its current version, which has not said what users judged of the version before.
#[tokio::test]
async fn a_version_has_its_own_feedback_however_it_is_named() {
    let api = with_keys().await;
    api.put_model().await;
    end_registration(&api).await;
    let item = json!({"token": token(&api).await, "label": 0});
    assert_eq!(give(&api, ADMIN, &item).await.json()["accepted"], 1);
    let shown = async |name: &str| {
        let path = format!("/v1/models/{name}");
        api.keyed(ADMIN, "GET", &path, "").await.json()
    };
    for name in ["mlp", "mlp@1", "digits:mlp", "digits:mlp@1"] {
        let shown = shown(name).await;
        assert_eq!(shown["online"]["model"], "mlp", "{name}: {shown}");
    }
    api.put_model_of(Digest::from_bytes([9; 32])).await;
    end_registration(&api).await;
    let path = "/v1/models/mlp/versions/2/promotion";
    let promoted = api.keyed(ADMIN, "POST", path, "").await;
    assert_eq!(promoted.status, 200);
    let current = shown("mlp").await;
    assert_eq!(
        (&current["id"], &current["version"]),
        (&json!("mlp.v2"), &json!(2))
    );
    assert_eq!(current["online"], Value::Null, "{current}");
    assert_eq!(shown("mlp@1").await["online"]["model"], "mlp");
}
