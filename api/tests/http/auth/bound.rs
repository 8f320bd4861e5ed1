//! Keys that are bound to an application.

use sextant_api::Limits;

use super::*;
use crate::served::soon;

#[tokio::test]
async fn a_bound_key_sees_its_application_only() {
    let api = with_keys().await;
    put_variant(&api).await;
    let own = bound(&api, &["query"]).await;
    let foreign = json!({"scopes": ["query"], "application": "letters"});
    let foreign = create(&api, foreign).await.1;
    let recorder_knows = "/v2/models/mlp/infer";
    let variant = variant().id.to_string();
    for body in [
        QUERY.to_owned(),
        QUERY
            .replace("application", "model")
            .replace("digits", "mlp"),
        QUERY
            .replace("application", "variant")
            .replace("digits", &variant),
    ] {
        let answered = api.keyed(&own, "POST", "/v1/queries", body.clone()).await;
        assert_eq!(answered.status, 200, "{body}");
        let other = api
            .keyed(&foreign, "POST", "/v1/queries", body.clone())
            .await;
        refused(&other, &body);
    }
    let infer = r#"{"inputs":[]}"#;
    assert_eq!(
        api.keyed(&own, "POST", recorder_knows, infer).await.status,
        200
    );
    refused(
        &api.keyed(&foreign, "POST", recorder_knows, infer).await,
        recorder_knows,
    );
    for path in [
        "/v1/applications/digits".to_owned(),
        "/v1/applications/digits/variants".to_owned(),
        "/v1/models/mlp".to_owned(),
        "/v1/models/mlp/variants".to_owned(),
        format!("/v1/variants/{variant}"),
        "/v2/models/mlp".to_owned(),
    ] {
        assert_eq!(
            api.keyed(&own, "GET", &path, "").await.status,
            200,
            "{path}"
        );
        refused(&api.keyed(&foreign, "GET", &path, "").await, &path);
    }
    for path in ["/v1/artefacts", "/v1/jobs", "/v1/workers", "/v1/cluster"] {
        refused(&api.keyed(&own, "GET", path, "").await, path);
    }
}

#[tokio::test]
async fn a_bound_key_lists_its_own() {
    let api = with_keys().await;
    put_variant(&api).await;
    let own = bound(&api, &["query"]).await;
    let foreign = json!({"scopes": ["query"], "application": "letters"});
    let foreign = create(&api, foreign).await.1;
    // The index has the application, its model and its variant.
    for (path, list, own_entries) in [
        ("/v1/models", "/models", 1),
        ("/v2/repository/index", "", 3),
    ] {
        let method = if path.starts_with("/v2") {
            "POST"
        } else {
            "GET"
        };
        let count = async |key: &str| {
            let json = api.keyed(key, method, path, "").await.json();
            json.pointer(list).and_then(Value::as_array).map(Vec::len)
        };
        assert_eq!(
            (count(&own).await, count(&foreign).await),
            (Some(own_entries), Some(0)),
            "{path}"
        );
    }
    let applications = api.keyed(&own, "GET", "/v1/applications", "").await.json();
    let names = applications["applications"].as_array().expect("a list");
    assert_eq!((names.len(), &names[0]["name"]), (1, &json!("digits")));
}

/// A form that registers a version of a model.
fn form(key: &str, (application, name): (&str, &str), version: &str) -> Request<Body> {
    let part = |name: &str, value: &str| {
        format!("--edge\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let parts = [
        part("name", name),
        part("application", application),
        part("version", version),
        part("model", "onnx"),
        part("validation", "labels"),
    ];
    let body = format!("{}--edge--\r\n", parts.concat());
    Request::post("/v1/models")
        .header("content-type", "multipart/form-data; boundary=edge")
        .header("x-api-key", key)
        .body(Body::from(body))
        .expect("a request")
}

/// A name that several applications have is refused with the names to use in its place.
#[tokio::test]
async fn a_bound_key_learns_of_no_other_application_that_has_a_name() {
    let api = with_keys().await;
    let more = json!({"name": "faces", "metric": "top1"}).to_string();
    let created = api.keyed(ADMIN, "POST", "/v1/applications", more).await;
    assert_eq!(created.status, 201);
    for application in ["digits", "letters"] {
        // Neither has the name as its id, which only a first version has.
        let registered = api.send(form(ADMIN, (application, "mlp"), "2")).await;
        assert_eq!(registered.status, 202, "{application}");
    }
    let own = bound(&api, &["query"]).await;
    let foreign = json!({"scopes": ["query"], "application": "faces"});
    let foreign = create(&api, foreign).await.1;
    let query = json!({"model": "mlp", "inputs": []}).to_string();
    let text = json!({"model": "mlp", "input": "a sentence"}).to_string();
    for (method, path, body) in [
        ("GET", "/v1/models/mlp", ""),
        ("GET", "/v1/models/mlp/versions", ""),
        ("GET", "/v2/models/mlp", ""),
        ("POST", "/v1/queries", query.as_str()),
        ("POST", "/v1/embeddings", text.as_str()),
    ] {
        let told = api.keyed(&own, method, path, body.to_owned()).await;
        let problem = told.problem("model_not_found");
        let detail = problem["detail"].as_str().expect("a detail");
        assert!(
            detail.ends_with("say which is meant, `digits:mlp`"),
            "{detail}"
        );
        let told = api.keyed(&foreign, method, path, body.to_owned()).await;
        refused(&told, path);
    }
    let told = api.keyed(ADMIN, "GET", "/v1/models/mlp", "").await;
    let problem = told.problem("model_not_found");
    let detail = problem["detail"].as_str().expect("a detail");
    let both = "say which is meant, `digits:mlp` or `letters:mlp`";
    assert!(detail.ends_with(both), "{detail}");
}

#[tokio::test]
async fn a_bound_key_registers_for_its_application_only() {
    let api = with_keys().await;
    let own = bound(&api, &["register"]).await;
    let taken = api.send(form(&own, ("digits", "own"), "1")).await;
    assert_eq!(taken.status, 202);
    let job = taken.headers["location"]
        .to_str()
        .expect("a path")
        .to_owned();
    assert_eq!(api.keyed(&own, "GET", &job, "").await.status, 200);
    let foreign = form(&own, ("letters", "foreign"), "1");
    refused(&api.send(foreign).await, "a form");
    let stored = json!({"name": "a", "application": "digits", "model_path": "a",
        "validation_path": "b"});
    refused(
        &api.keyed(&own, "POST", "/v1/registrations", stored.to_string())
            .await,
        "files",
    );
    let application = json!({"name": "more", "metric": "top1"}).to_string();
    refused(
        &api.keyed(&own, "POST", "/v1/applications", application)
            .await,
        "creating",
    );
    let path = "/v1/applications/letters";
    refused(&api.keyed(&own, "DELETE", path, "").await, path);
}

/// What is wrong with a query may tell of presets, of the metric and of inputs.
#[tokio::test]
async fn a_bound_key_learns_nothing_of_another_application_by_queries_that_are_wrong() {
    let api = with_keys().await;
    put_variant(&api).await;
    let change = json!({"presets": {"of-digits": {"latency_ms": 5.0}}}).to_string();
    let path = "/v1/applications/digits";
    let changed = api.keyed(ADMIN, "PATCH", path, change).await;
    assert_eq!(changed.status, 200);
    let own = bound(&api, &["query"]).await;
    let foreign = json!({"scopes": ["query"], "application": "letters"});
    let foreign = create(&api, foreign).await.1;
    let preset = json!({"application": "digits", "preset": "nothing", "inputs": []});
    let metric = json!({"model": "mlp", "targets": {"max_error": 1.0}, "inputs": []});
    for wrong in [&preset, &metric] {
        let told = api
            .keyed(&own, "POST", "/v1/queries", wrong.to_string())
            .await;
        told.problem("invalid_target");
        let told = api
            .keyed(&foreign, "POST", "/v1/queries", wrong.to_string())
            .await;
        refused(&told, "a query");
    }
    let batch = json!({"queries": [preset, metric]}).to_string();
    let told = api
        .keyed(&foreign, "POST", "/v1/queries/batch", batch)
        .await;
    for outcome in told.json()["outcomes"].as_array().expect("a list") {
        assert_eq!(outcome["problem"]["code"], "forbidden", "{outcome}");
    }
    let text = json!({"model": "digits", "input": "a sentence"}).to_string();
    let told = api
        .keyed(&own, "POST", "/v1/embeddings", text.clone())
        .await;
    told.problem("invalid_request");
    let told = api.keyed(&foreign, "POST", "/v1/embeddings", text).await;
    refused(&told, "embeddings");
}

/// A query that finds no place is told how many its application has.
#[tokio::test]
async fn a_bound_key_learns_nothing_of_the_queries_to_another_application() {
    let recorder = Recorder::stalling();
    let limits = Limits {
        max_concurrent_queries: 3,
        ..Limits::default()
    };
    let settings = Settings {
        limits,
        ..Settings::keys()
    };
    let api = Api::with(Arc::clone(&recorder), settings).await;
    for name in ["digits", "letters"] {
        let body = json!({"name": name, "metric": "top1"}).to_string();
        let created = api.keyed(ADMIN, "POST", "/v1/applications", body).await;
        assert_eq!(created.status, 201);
    }
    put_variant(&api).await;
    let own = bound(&api, &["query"]).await;
    let foreign = json!({"scopes": ["query"], "application": "letters"});
    let foreign = create(&api, foreign).await.1;
    let (path, query) = ("/v1/queries", r#"{"model":"mlp","inputs":[]}"#);
    let first = api.keyed(&own, "POST", path, query);
    let second = api.keyed(&own, "POST", path, query);
    let mut waiting = Box::pin(futures::future::join(first, second));
    soon("two queries wait", async {
        while recorder.waiting() < 2 {
            futures::future::select(&mut waiting, Box::pin(tokio::task::yield_now())).await;
        }
    })
    .await;
    let full = api.keyed(&own, "POST", path, query).await;
    let problem = full.problem("overloaded");
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(detail.starts_with("`2` queries of `digits`"), "{detail}");
    let told = api.keyed(&foreign, "POST", path, query).await;
    refused(&told, "a query");
}
