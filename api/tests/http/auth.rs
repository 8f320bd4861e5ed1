//! Who is let in.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    body::Body,
    http::{Request, StatusCode},
};
use serde_json::{Value, json};
use sextant_api::auth::{AdminKey, Mode, check};

use crate::double::{ADMIN, Api, Reading, Recorder, Settings, variant};

mod bound;

const QUERY: &str = r#"{"application":"digits","inputs":[]}"#;

async fn with_keys() -> Api {
    let api = Api::with(Recorder::answering(), Settings::keys()).await;
    for name in ["digits", "letters"] {
        let body = json!({"name": name, "metric": "top1"}).to_string();
        let created = api.keyed(ADMIN, "POST", "/v1/applications", body).await;
        assert_eq!(created.status, 201);
    }
    api
}

/// Creates a key and returns its id and secret.
async fn create(api: &Api, mut key: Value) -> (String, String) {
    key["name"] = json!("a key");
    let created = api.keyed(ADMIN, "POST", "/v1/keys", key.to_string()).await;
    let json = created.json();
    assert_eq!(created.status, 201, "{json}");
    assert_eq!(created.headers["cache-control"], "no-store");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    (text(&json["key"]["id"]), text(&json["secret"]))
}

async fn key(api: &Api, scope: &str) -> String {
    create(api, json!({"scopes": [scope]})).await.1
}

async fn bound(api: &Api, scopes: &[&str]) -> String {
    let key = json!({"scopes": scopes, "application": "digits"});
    create(api, key).await.1
}

async fn put_variant(api: &Api) {
    api.put_model().await;
    let stored = api.registry.put_variants(&[variant()]).await;
    stored.expect("stored");
    let published = api.metadata.publish_variant(Arc::new(variant())).await;
    published.expect("published");
    api.state.refresh().await.expect("read");
}

#[tokio::test]
async fn a_request_without_a_valid_key_is_refused() {
    let api = with_keys().await;
    let missing = api.call("POST", "/v1/queries", QUERY).await;
    assert_eq!(missing.status, 401);
    assert_eq!(missing.headers["www-authenticate"], "Bearer");
    missing.problem("unauthenticated");
    let wrong = format!("sx_{}", "0".repeat(64));
    for key in [wrong.as_str(), "", "an-administrator's-kez"] {
        let refused = api.keyed(key, "POST", "/v1/queries", QUERY).await;
        let problem = refused.problem("unauthenticated");
        assert!(
            key.is_empty() || !problem.to_string().contains(key),
            "{problem}"
        );
    }
    let basic = Request::get("/v1/models").header("authorization", "Basic YTpi");
    let basic = basic.body(Body::empty()).expect("a request");
    api.send(basic).await.problem("unauthenticated");
}

#[tokio::test]
async fn a_key_comes_in_either_header() {
    let api = with_keys().await;
    let key = key(&api, "query").await;
    assert!(key.starts_with("sx_") && key.len() == 67, "{}", key.len());
    let bearer = api.keyed(&key, "POST", "/v1/queries", QUERY).await;
    assert_eq!(bearer.status, 200);
    let own = Request::post("/v1/queries").header("x-api-key", &key);
    let own = own.body(QUERY.into()).expect("a request");
    assert_eq!(api.send(own).await.status, 200);
}

#[tokio::test]
async fn health_and_documentation_are_open() {
    let mut settings = Settings::keys();
    settings.auth.metrics = true;
    let api = Api::with(Recorder::answering(), settings).await;
    for path in [
        "/",
        "/health/live",
        "/health/ready",
        "/v2",
        "/v2/",
        "/v2/health/live",
        "/v2/health/ready",
        "/openapi.json",
        "/docs/",
        "/docs/errors/forbidden",
    ] {
        assert_eq!(api.get(path).await.status, 200, "{path}");
    }
    api.get("/nowhere").await.problem("route_not_found");
    for (path, meant) in [
        ("/healthz", "/health/live"),
        ("/readyz", "/health/ready"),
        ("/v1/models/", "/v1/models"),
    ] {
        let problem = api.get(path).await.problem("route_not_found");
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(
            detail.ends_with(&format!("did you mean `{meant}`?")),
            "{detail}"
        );
    }
    api.get("/metrics").await.problem("unauthenticated");
    assert_eq!(api.keyed(ADMIN, "GET", "/metrics", "").await.status, 200);
    let open = Api::with(Recorder::answering(), Settings::keys()).await;
    assert_eq!(open.get("/metrics").await.status, 200);
}

/// A path that the description's pattern matches.
fn example(pattern: &str) -> String {
    let fill = |segment: &str| match segment.starts_with('{') {
        true => "mlp".to_owned(),
        false => segment.to_owned(),
    };
    pattern.split('/').map(fill).collect::<Vec<_>>().join("/")
}

/// The status alone: some answers have no end.
async fn status(api: &Api, key: Option<&str>, method: &str, path: &str) -> StatusCode {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(key) = key {
        request = request.header("x-api-key", key);
    }
    let request = request.body(Body::empty()).expect("a request");
    api.open(request).await.status()
}

/// Every operation of the description, asked with every kind of key: what is refused is exactly
/// what the description says needs another.
#[tokio::test]
async fn every_operation_asks_for_what_it_describes() {
    let api = with_keys().await;
    let keys = [
        ("query", key(&api, "query").await),
        ("register", key(&api, "register").await),
        ("admin", key(&api, "admin").await),
    ];
    let openapi = serde_json::to_value(sextant_api::openapi()).expect("serialises");
    for (pattern, item) in openapi["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let (method, path) = (method.to_uppercase(), example(pattern));
            let security = operation["security"].as_array();
            let without = status(&api, None, &method, &path).await;
            let is_open = security.is_none_or(|either| either.contains(&json!({})));
            assert_eq!(without != 401, is_open, "{method} {path}");
            let Some(security) = security else { continue };
            let needed = security.iter().find_map(|one| one["bearer"].as_array());
            let needed = needed.and_then(|scopes| scopes.first()?.as_str());
            for (scope, key) in &keys {
                let status = status(&api, Some(key), &method, &path).await;
                let may = needed.is_none_or(|needed| [needed, "admin"].contains(scope));
                assert_ne!(status, 401, "{method} {path} with `{scope}`");
                assert_eq!(
                    status != 403,
                    may,
                    "{method} {path} with `{scope}`: {status}"
                );
            }
        }
    }
}

/// Whoever may only ask takes neither the weights of its model nor what others stored.
#[tokio::test]
async fn whoever_may_only_ask_reads_no_files() {
    let api = with_keys().await;
    let file = b"the weights".as_slice();
    let stored = api.objects.put_blob(file.into()).await.expect("stored");
    api.put_model_of(stored).await;
    let put = api.keyed(ADMIN, "PUT", "/v1/artefacts/in.npy", "x").await;
    assert_eq!(put.status, 201);
    let asks = [
        bound(&api, &["query"]).await,
        create(&api, json!({"scopes": ["query"]})).await.1,
    ];
    for key in &asks {
        let model = api.keyed(key, "GET", "/v1/models/mlp", "").await;
        assert_eq!(model.status, 200);
        for path in [
            "/v1/models/mlp/file",
            "/v1/artefacts",
            "/v1/artefacts/in.npy",
        ] {
            refused(&api.keyed(key, "GET", path, "").await, path);
        }
    }
    let registers = bound(&api, &["register"]).await;
    let own = api
        .keyed(&registers, "GET", "/v1/models/mlp/file", "")
        .await;
    assert_eq!((own.status, own.bytes.as_slice()), (StatusCode::OK, file));
}

/// Whoever may only ask changes nothing by saying the same again and again, and fills no registry with it.
#[tokio::test]
async fn what_is_said_again_and_again_is_recorded_now_and_then() {
    let api = with_keys().await;
    put_variant(&api).await;
    let asks = bound(&api, &["query"]).await;
    for _ in 0..300 {
        let unloaded = api
            .keyed(&asks, "POST", "/v2/repository/models/mlp/unload", "")
            .await;
        assert_eq!(unloaded.status, 200);
    }
    let path = "/v1/audit?action=model.unload&limit=1000";
    let audit = api.keyed(ADMIN, "GET", path, "").await.json();
    let entries = audit["entries"].as_array().map(Vec::len);
    assert!(
        entries.is_some_and(|it| (1..=120).contains(&it)),
        "{entries:?}"
    );
}

fn refused(reading: &Reading, what: &str) {
    assert_eq!(
        reading.status,
        403,
        "{what}: {}",
        String::from_utf8_lossy(&reading.bytes)
    );
    reading.problem("forbidden");
}

#[tokio::test]
async fn a_revoked_or_expired_key_is_refused_everywhere() {
    let one = with_keys().await;
    let other = one.beside(Recorder::answering(), Settings::keys()).await;
    let (id, key) = create(&one, json!({"scopes": ["query"]})).await;
    other.state.refresh().await.expect("read");
    for api in [&one, &other] {
        let asked = api.keyed(&key, "POST", "/v1/queries", QUERY).await;
        assert_eq!(asked.status, 200);
    }
    let path = format!("/v1/keys/{id}");
    let seen = one.keyed(ADMIN, "GET", &path, "").await;
    assert_eq!(seen.json()["id"], id);
    assert!(seen.json().get("revoked_ms").is_none());
    one.keyed(&key, "GET", &path, "").await.problem("forbidden");
    let revoked = one.keyed(ADMIN, "DELETE", &path, "").await;
    assert!(revoked.json()["revoked_ms"].is_u64());
    let newer = one.keyed(ADMIN, "GET", &path, "").await;
    assert_eq!(newer.json(), revoked.json());
    assert_ne!(newer.headers["etag"], seen.headers["etag"]);
    other.state.refresh().await.expect("read");
    for api in [&one, &other] {
        let refused = api.keyed(&key, "POST", "/v1/queries", QUERY).await;
        refused.problem("unauthenticated");
    }
    let again = one.keyed(ADMIN, "DELETE", &path, "").await;
    assert_eq!((again.status.as_u16(), again.json()), (200, revoked.json()));
    for method in ["GET", "DELETE"] {
        let unknown = one.keyed(ADMIN, method, "/v1/keys/unknown", "").await;
        unknown.problem("key_not_found");
    }
    let ended = sextant_registry::NewKey {
        expires_ms: Some(1),
        ..sextant_registry::NewKey::new("old", sha256("old key"), &[])
    };
    one.registry.create_key(&ended, 0).await.expect("stored");
    one.state.refresh().await.expect("read");
    let expired = one.keyed("old key", "GET", "/v1/models", "").await;
    let problem = expired.problem("unauthenticated");
    assert!(
        problem["detail"]
            .as_str()
            .is_some_and(|text| text.contains("expired"))
    );
}

#[tokio::test]
async fn a_key_that_has_changed_since_it_was_seen_is_not_revoked() {
    let api = with_keys().await;
    let (id, _) = create(&api, json!({"scopes": ["query"]})).await;
    let revoke = async |tag: &str| {
        let request = Request::builder()
            .method("DELETE")
            .uri(format!("/v1/keys/{id}"))
            .header("authorization", format!("Bearer {ADMIN}"))
            .header("if-match", tag)
            .body(Body::empty());
        api.send(request.expect("a request")).await
    };
    revoke("\"another\"").await.problem("precondition_failed");
    let path = format!("/v1/keys/{id}");
    let seen = api.keyed(ADMIN, "GET", &path, "").await;
    assert!(seen.json().get("revoked_ms").is_none());
    let tag = seen.headers["etag"].to_str().expect("text").to_owned();
    assert_eq!(revoke(&tag).await.status, 200);
}

#[tokio::test]
async fn a_front_end_that_serves_follows_the_keys_by_itself() {
    use tokio::net::TcpListener;
    use tokio_util::sync::CancellationToken;
    let one = with_keys().await;
    let other = one.beside(Recorder::answering(), Settings::keys()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let shutdown = CancellationToken::new();
    let serving = sextant_api::serve(listener, other.state.clone(), shutdown.clone());
    let serving = tokio::spawn(serving);
    let (id, key) = create(&one, json!({"scopes": ["query"]})).await;
    while other.keyed(&key, "GET", "/v1/models", "").await.status != 200 {
        tokio::task::yield_now().await;
    }
    one.keyed(ADMIN, "DELETE", &format!("/v1/keys/{id}"), "")
        .await;
    while other.keyed(&key, "GET", "/v1/models", "").await.status != 401 {
        tokio::task::yield_now().await;
    }
    shutdown.cancel();
    serving.await.expect("no panic").expect("a clean end");
}

fn sha256(text: &str) -> String {
    use sha2::{Digest, Sha256};
    hex::encode(Sha256::digest(text))
}

#[tokio::test]
async fn keys_without_sense_are_refused() {
    let api = with_keys().await;
    let good = json!({"name": "a", "scopes": ["query"]});
    for (field, value) in [
        ("name", json!("")),
        ("name", json!("x".repeat(201))),
        ("scopes", json!([])),
        ("scopes", json!(["read"])),
        ("rate_per_s", json!(0)),
        ("rate_per_s", json!(-1.5)),
        ("burst", json!(5)),
        ("quota_per_day", json!(0)),
        ("expires_ms", json!(1)),
        ("application", json!("Digits!")),
        ("unknown", json!(1)),
    ] {
        let mut body = good.clone();
        body[field] = value;
        let refused = api.keyed(ADMIN, "POST", "/v1/keys", body.to_string()).await;
        assert_eq!(refused.status, 400, "{body}");
    }
    let bound = json!({"name": "a", "scopes": ["admin"], "application": "digits"});
    let refused = api
        .keyed(ADMIN, "POST", "/v1/keys", bound.to_string())
        .await;
    refused.problem("invalid_request");
    let list = api.keyed(ADMIN, "GET", "/v1/keys", "").await.json();
    assert_eq!(list, json!({"keys": []}));
}

#[tokio::test]
async fn what_was_done_is_kept_with_who_did_it() {
    let api = with_keys().await;
    let (id, register) = create(&api, json!({"scopes": ["register"]})).await;
    let body = json!({"name": "more", "metric": "top1"}).to_string();
    api.keyed(&register, "POST", "/v1/applications", body).await;
    api.keyed(&register, "DELETE", "/v1/applications/more", "")
        .await;
    api.keyed(&register, "DELETE", "/v1/applications/nothing", "")
        .await;
    api.keyed(&register, "PUT", "/v1/artefacts/in/a.npy", "x")
        .await;
    api.keyed(&register, "GET", "/v1/applications", "").await;
    let job = json!({"application": "digits", "input": "in/a.npy", "output": "out/a.npy"});
    let job = api
        .keyed(&register, "POST", "/v1/jobs", job.to_string())
        .await;
    let job = job.json()["id"].as_str().expect("a job").to_owned();
    let path = format!("/v1/audit?actor={id}");
    let audit = api.keyed(ADMIN, "GET", &path, "").await.json();
    let entries = audit["entries"].as_array().expect("a list").iter();
    let done: Vec<_> = entries
        .map(|entry| (entry["action"].as_str(), entry["subject"].as_str()))
        .collect();
    let wanted = [
        (Some("job.create"), Some(job.as_str())),
        (Some("artefact.put"), Some("in/a.npy")),
        (Some("application.delete"), Some("more")),
        (Some("application.create"), Some("more")),
    ];
    assert_eq!(done, wanted);
    let by = "/v1/audit?actor=administrator&action=key.create";
    let audit = api.keyed(ADMIN, "GET", by, "").await.json();
    assert_eq!(audit["entries"][0]["subject"], id);
    assert!(!audit.to_string().contains("sx_"), "{audit}");
}

#[tokio::test]
async fn requests_of_one_key_at_once_are_limited() {
    let mut settings = Settings::keys();
    settings.auth.max_concurrent_per_key = Some(0);
    let api = Api::with(Recorder::answering(), settings).await;
    let key = key(&api, "query").await;
    let refused = api.keyed(&key, "POST", "/v1/queries", QUERY).await;
    assert_eq!(refused.status, 429);
    refused.problem("rate_limited");
}

#[test]
fn being_open_to_others_has_to_be_said() {
    let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
    for loopback in [
        "127.0.0.1:80",
        "127.8.9.1:80",
        "[::1]:80",
        "[::ffff:127.0.0.1]:80",
    ] {
        assert_eq!(check(address(loopback), None), Ok(Mode::Off), "{loopback}");
    }
    for reachable in ["0.0.0.0:80", "10.0.0.1:80", "[::]:80"] {
        let refused = check(address(reachable), None).expect_err("refused");
        assert!(
            refused.to_string().contains("auth.mode = \"keys\""),
            "{refused}"
        );
        for mode in [Mode::Off, Mode::Keys] {
            assert_eq!(check(address(reachable), Some(mode)), Ok(mode));
        }
    }
    let weak = AdminKey::new("secret").expect_err("too short");
    assert!(!weak.to_string().contains("secret"), "{weak}");
    let kept = AdminKey::new(ADMIN).expect("long enough");
    assert!(!format!("{kept:?}").contains(ADMIN));
}
