//! `/v1/applications`.

use reqwest::Method;
use serde_json::json;
use sextant_tests::digits;

#[tokio::test]
async fn an_application_lives_from_creation_to_deletion() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let body = json!({
        "name": "life", "metric": "top5", "description": "for a test",
        "default_targets": {"latency_ms": 50.0, "min_accuracy": 0.5}
    });
    let created = api.post("/v1/applications", &body).await;
    assert_eq!(created.headers["location"], "/v1/applications/life");
    assert_eq!(created.json(201)["metric"], "top5");
    api.post("/v1/applications", &body).await.json(200);
    let read = api.get("/v1/applications/life").await.json(200);
    assert_eq!(read["default_targets"], body["default_targets"]);
    assert_eq!(read["description"], "for a test");
    let listed = api.get("/v1/applications").await.json(200);
    let names: Vec<_> = listed["applications"]
        .as_array()
        .expect("a list")
        .iter()
        .collect();
    assert!(
        names
            .iter()
            .any(|application| application["name"] == "life")
    );
    assert_eq!(api.delete("/v1/applications/life").await.status, 204);
    api.get("/v1/applications/life")
        .await
        .problem(404, "application_not_found");
    api.delete("/v1/applications/life")
        .await
        .problem(404, "application_not_found");
}

#[tokio::test]
async fn one_that_is_a_pipeline_is_changed_and_deleted_as_it_was_seen() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let definition = json!({"name": "seen", "steps": [{"name": "a", "application": "digits"}]});
    api.post("/v1/pipelines", &definition).await.json(201);
    let path = "/v1/applications/seen";
    let tag = async || {
        let read = api.get(path).await;
        let tag = read.headers["etag"].to_str().expect("text").to_owned();
        assert!(read.json(200)["signature"].is_object());
        [("if-match", tag)]
    };
    let first = tag().await;
    let change = || json!({"description": "seen"}).to_string().into_bytes();
    let changed = api.send_with(Method::PATCH, path, &first, change()).await;
    changed.json(200);
    for (method, body) in [(Method::PATCH, change()), (Method::DELETE, Vec::new())] {
        let late = api.send_with(method, path, &first, body).await;
        late.problem(412, "precondition_failed");
    }
    let seen = tag().await;
    let deleted = api.send_with(Method::DELETE, path, &seen, Vec::new()).await;
    assert_eq!(deleted.status, 204);
}

#[tokio::test]
async fn the_first_model_fixes_the_signature() {
    let cluster = digits::shared().await;
    let application = cluster.api().get("/v1/applications/digits").await.json(200);
    let signature = &application["signature"];
    assert_eq!(signature["inputs"][0]["name"], "pixels");
    assert_eq!(signature["inputs"][0]["datatype"], "FP32");
    assert_eq!(signature["inputs"][0]["shape"], json!([-1, 64]));
    assert_eq!(signature["outputs"][0]["name"], "scores");
    assert_eq!(signature["batched"], true);
}

#[tokio::test]
async fn other_settings_under_a_taken_name_conflict() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let body = json!({"name": "digits", "metric": "exact"});
    api.post("/v1/applications", &body)
        .await
        .problem(409, "application_exists");
}

#[tokio::test]
async fn an_application_with_models_stays() {
    let cluster = digits::shared().await;
    cluster
        .api()
        .delete("/v1/applications/digits")
        .await
        .problem(409, "in_use");
}

#[tokio::test]
async fn what_is_no_application_is_refused() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    for (body, code) in [
        (
            json!({"name": "Not Valid", "metric": "top1"}),
            "invalid_name",
        ),
        (json!({"name": "", "metric": "top1"}), "invalid_name"),
        (json!({"name": "../up", "metric": "top1"}), "invalid_name"),
        (
            json!({"name": "x".repeat(129), "metric": "top1"}),
            "invalid_name",
        ),
        (json!({"name": "x", "metric": "vibes"}), "invalid_request"),
        (json!({"name": "x"}), "invalid_request"),
        (
            json!({"name": "x", "metric": "top1", "colour": "red"}),
            "invalid_request",
        ),
        (
            json!({"name": "x", "metric": "top1", "default_targets": {"max_error": 1.0}}),
            "invalid_target",
        ),
        (
            json!({"name": "x", "metric": "top1", "default_targets": {"latency_ms": -1.0}}),
            "invalid_target",
        ),
        (json!([1, 2]), "invalid_request"),
    ] {
        api.post("/v1/applications", &body).await.problem(400, code);
    }
    let broken = api.post_raw("/v1/applications", "{\"name\": \n oops").await;
    assert_eq!(broken.problem(400, "invalid_request")["line"], 2);
    api.get("/v1/applications/nobody/variants")
        .await
        .problem(404, "application_not_found");
}
