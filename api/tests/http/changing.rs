//! Changes of applications: presets, tags, and requests that are sent again.

use axum::{body::Body, http::Request};
use serde_json::{Value, json};
use sextant_rpc::QueryError;

use crate::double::{ADMIN, Api, Reading, Recorder, Settings};

const DIGITS: &str = r#"{"name":"digits","metric":"top1","default_targets":{"latency_ms":50,"min_accuracy":0.9},
    "presets":{"fast":{"latency_ms":5}}}"#;
const PATH: &str = "/v1/applications/digits";

async fn with_digits(recorder: std::sync::Arc<Recorder>) -> Api {
    let api = Api::new(recorder).await;
    let created = api.call("POST", "/v1/applications", DIGITS).await;
    assert_eq!(created.status, 201);
    api
}

async fn patch(api: &Api, body: &Value) -> Reading {
    api.call("PATCH", PATH, body.to_string()).await
}

async fn with_header(
    api: &Api,
    method: &str,
    path: &str,
    (name, value): (&str, &str),
    body: &str,
) -> Reading {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(name, value)
        .body(Body::from(body.to_owned()));
    api.send(request.expect("a request")).await
}

#[tokio::test]
async fn what_is_left_out_stays_and_null_takes_back() {
    let api = with_digits(Recorder::answering()).await;
    let change = json!({
        "description": "digits", "default_targets": {"latency_ms": 20, "min_accuracy": null},
        "presets": {"good": {"min_accuracy": 0.99}}
    });
    let changed = patch(&api, &change).await;
    assert_eq!(changed.status, 200);
    let wanted = json!({
        "name": "digits", "metric": "top1", "description": "digits", "default_targets": {"latency_ms": 20.0},
        "presets": {"fast": {"latency_ms": 5.0}, "good": {"min_accuracy": 0.99}}
    });
    assert_eq!(changed.json(), wanted);
    assert_eq!(api.get(PATH).await.json(), wanted);
    let change = json!({"description": null, "default_targets": null, "presets": {"fast": null}});
    let changed = patch(&api, &change).await.json();
    assert_eq!(changed["default_targets"], json!({}));
    assert_eq!(changed["presets"], json!({"good": {"min_accuracy": 0.99}}));
    assert_eq!(changed["description"], "");
    assert!(
        patch(&api, &json!({"presets": null}))
            .await
            .json()
            .get("presets")
            .is_none()
    );
}

#[tokio::test]
async fn a_change_that_makes_no_sense_changes_nothing() {
    let api = with_digits(Recorder::answering()).await;
    let before = api.get(PATH).await.json();
    for (change, code) in [
        (json!({"presets": {"Not Valid": {}}}), "invalid_name"),
        (
            json!({"presets": {"p": {"max_error": 1}}}),
            "invalid_target",
        ),
        (
            json!({"presets": {"p": {"latency_ms": -1}}}),
            "invalid_target",
        ),
        (
            json!({"default_targets": {"min_accuracy": 7}}),
            "invalid_target",
        ),
        (json!({"metric": "best"}), "invalid_request"),
        (json!({"metric": null}), "invalid_request"),
        // Targets that are there would be of another kind.
        (json!({"metric": "mae"}), "invalid_target"),
        (
            json!({"metric": "mae", "default_targets": null, "presets": {"p": {"min_accuracy": 0.9}}}),
            "invalid_target",
        ),
        (json!({"description": 5}), "invalid_request"),
        (json!([]), "invalid_request"),
    ] {
        let refused = patch(&api, &change).await;
        assert_eq!(refused.status, 400, "{change}");
        refused.problem(code);
    }
    let many: serde_json::Map<String, Value> = (0..64)
        .map(|number| (format!("p{number}"), json!({})))
        .collect();
    patch(&api, &json!({"presets": many}))
        .await
        .problem("invalid_request");
    assert_eq!(api.get(PATH).await.json(), before);
    let nobody = api.call("PATCH", "/v1/applications/nobody", "{}").await;
    nobody.problem("application_not_found");
}

#[tokio::test]
async fn a_metric_that_measured_nothing_becomes_another() {
    let api = with_digits(Recorder::answering()).await;
    let change = json!({"presets": {"good": {"min_accuracy": 0.99}}});
    assert_eq!(patch(&api, &change).await.status, 200);
    let change =
        json!({"metric": "mae", "default_targets": {"min_accuracy": null, "max_error": 3}});
    let refused = patch(&api, &change).await.problem("invalid_target");
    assert_eq!(refused["field"], "presets.good", "{refused}");
    let with_presets = json!({
        "metric": "mae", "default_targets": {"min_accuracy": null, "max_error": 3},
        "presets": {"good": {"max_error": 1}}
    });
    let changed = patch(&api, &with_presets).await.json();
    assert_eq!(changed["metric"], "mae");
    assert_eq!(
        changed["default_targets"],
        json!({"latency_ms": 50.0, "max_error": 3.0})
    );
    assert_eq!(changed["presets"]["good"], json!({"max_error": 1.0}));
    assert_eq!(changed["presets"]["fast"], json!({"latency_ms": 5.0}));
    assert_eq!(api.get(PATH).await.json(), changed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_target_holds_whoever_reads_targets_meanwhile() {
    let recorder = Recorder::answering();
    let api = with_digits(recorder.clone()).await;
    let query = r#"{"application":"digits","inputs":[]}"#;
    for latency_ms in 1..=200 {
        // As the service does now and then.
        let reads = (0..8).map(|_| {
            let state = api.state.clone();
            tokio::spawn(async move { state.refresh().await })
        });
        let reads: Vec<_> = reads.collect();
        let change = json!({"default_targets": {"latency_ms": latency_ms}});
        assert_eq!(patch(&api, &change).await.status, 200);
        for read in reads {
            read.await.expect("no panic").expect("a registry");
        }
        let answered = api.call("POST", "/v1/queries", query).await;
        assert_eq!(answered.status, 200);
        let asked = recorder.last().targets.latency_ms;
        assert_eq!(asked, Some(f64::from(latency_ms)));
    }
}

#[tokio::test]
async fn a_query_asks_for_a_preset() {
    let recorder = Recorder::answering();
    let api = with_digits(recorder.clone()).await;
    let ask = |more: Value| {
        let mut query = json!({
            "application": "digits",
            "inputs": [{"name": "input", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]
        });
        for (name, value) in more.as_object().expect("members") {
            query[name] = value.clone();
        }
        query.to_string()
    };
    let targets = |preset: Value| {
        let (api, recorder) = (&api, &recorder);
        async move {
            let answered = api.call("POST", "/v1/queries", ask(preset)).await;
            assert_eq!(answered.status, 200);
            let targets = recorder.last().targets;
            (targets.latency_ms, targets.min_quality)
        }
    };
    assert_eq!(targets(json!({})).await, (Some(50.0), Some(0.9)));
    assert_eq!(
        targets(json!({"preset": "fast"})).await,
        (Some(5.0), Some(0.9))
    );
    let own = json!({"preset": "fast", "targets": {"latency_ms": 2}});
    assert_eq!(targets(own).await, (Some(2.0), Some(0.9)));
    let nulls = json!({"preset": null, "targets": null, "explain": null, "on_infeasible": null});
    assert_eq!(targets(nulls).await, (Some(50.0), Some(0.9)));
    let unknown = api
        .call("POST", "/v1/queries", ask(json!({"preset": "slow"})))
        .await;
    let problem = unknown.problem("invalid_target");
    assert!(
        problem["detail"].as_str().expect("text").contains("`fast`"),
        "{problem}"
    );
    assert_eq!(problem["field"], "preset");
}

#[tokio::test]
async fn a_request_by_the_protocol_asks_for_a_preset() {
    let recorder = Recorder::answering();
    let api = with_digits(recorder.clone()).await;
    let path = "/v2/models/digits/infer";
    let body = |parameters: Value| {
        let inputs = json!([{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]);
        json!({"parameters": parameters, "inputs": inputs}).to_string()
    };
    let fast = json!({"slo_preset": "fast"});
    assert_eq!(api.call("POST", path, body(fast)).await.status, 200);
    let targets = recorder.last().targets;
    assert_eq!(
        (targets.latency_ms, targets.min_quality),
        (Some(5.0), Some(0.9))
    );
    let header = ("x-slo-preset", "fast");
    let stated = json!({"slo_latency_ms": 7});
    for (parameters, expected) in [(json!({}), 5.0), (stated, 7.0)] {
        let answer = with_header(&api, "POST", path, header, &body(parameters)).await;
        assert_eq!(answer.status, 200);
        assert_eq!(recorder.last().targets.latency_ms, Some(expected));
    }
    let unknown = api
        .call("POST", path, body(json!({"slo_preset": "slow"})))
        .await;
    let detail = unknown.problem("invalid_target")["detail"].clone();
    assert!(
        detail.as_str().is_some_and(|it| it.contains("`fast`")),
        "{detail}"
    );
}

#[tokio::test]
async fn only_what_was_seen_is_changed() {
    let api = with_digits(Recorder::answering()).await;
    let seen = api.get(PATH).await;
    let tag = seen.headers["etag"].to_str().expect("text").to_owned();
    let unchanged = with_header(&api, "GET", PATH, ("if-none-match", &tag), "").await;
    assert_eq!(unchanged.status, 304);
    assert!(unchanged.bytes.is_empty());
    let change = r#"{"description":"first"}"#;
    let changed = with_header(&api, "PATCH", PATH, ("if-match", &tag), change).await;
    assert_eq!(changed.status, 200);
    let newer = changed.headers["etag"].to_str().expect("text").to_owned();
    assert_ne!(tag, newer);
    assert_eq!(api.get(PATH).await.headers["etag"], newer.as_str());
    for (method, body) in [("PATCH", r#"{"description":"second"}"#), ("DELETE", "")] {
        let refused = with_header(&api, method, PATH, ("if-match", &tag), body).await;
        assert_eq!(refused.status, 412);
        refused.problem("precondition_failed");
    }
    assert_eq!(api.get(PATH).await.json()["description"], "first");
    let several = format!("{tag}, {newer}");
    let deleted = with_header(&api, "DELETE", PATH, ("if-match", &several), "").await;
    assert_eq!(deleted.status, 204);
}

#[tokio::test]
async fn resources_take_an_administrator_and_targets_do_not() {
    let api = Api::with(Recorder::answering(), Settings::keys()).await;
    let key = r#"{"name":"team","scopes":["register"]}"#;
    let created = api.keyed(ADMIN, "POST", "/v1/keys", key).await.json();
    let team = created["secret"].as_str().expect("a secret");
    assert_eq!(
        api.keyed(team, "POST", "/v1/applications", DIGITS)
            .await
            .status,
        201
    );
    let targets = r#"{"default_targets":{"latency_ms":7}}"#;
    assert_eq!(api.keyed(team, "PATCH", PATH, targets).await.status, 200);
    let resources = r#"{"resources":{"priority":200}}"#;
    let refused = api.keyed(team, "PATCH", PATH, resources).await;
    assert_eq!(refused.status, 403);
    refused.problem("forbidden");
    assert_eq!(api.keyed(ADMIN, "PATCH", PATH, resources).await.status, 200);
}

const JOB: &str = r#"{"application":"digits","input":"in.jsonl","output":"out.jsonl"}"#;

#[tokio::test]
async fn a_job_that_is_sent_again_is_the_same_job() {
    let api = with_digits(Recorder::answering()).await;
    api.call("PUT", "/v1/artefacts/in.jsonl", "{}").await;
    let key = ("idempotency-key", "order-1");
    let first = with_header(&api, "POST", "/v1/jobs", key, JOB).await;
    assert_eq!(first.status, 202);
    // Another front end over the same registry, as after a restart.
    let other = api.beside(Recorder::answering(), Settings::default()).await;
    let again = with_header(&other, "POST", "/v1/jobs", key, JOB).await;
    assert_eq!(again.json()["id"], first.json()["id"]);
    let without = api.call("POST", "/v1/jobs", JOB).await.json();
    assert_ne!(without["id"], first.json()["id"]);
    let changed = JOB.replace("out.jsonl", "elsewhere.jsonl");
    let refused = with_header(&api, "POST", "/v1/jobs", key, &changed).await;
    assert_eq!(refused.status, 409);
    refused.problem("idempotency_key_reused");
    let wrong = with_header(
        &api,
        "POST",
        "/v1/jobs",
        ("idempotency-key", "two words"),
        JOB,
    )
    .await;
    assert_eq!(wrong.problem("invalid_request")["field"], "idempotency-key");
}

/// The targets that a job takes from its application are not what its client has sent.
#[tokio::test]
async fn a_job_that_is_sent_again_after_a_change_of_its_application_is_the_same_job() {
    let api = with_digits(Recorder::answering()).await;
    api.call("PUT", "/v1/artefacts/in.jsonl", "{}").await;
    let preset = JOB.replacen('{', r#"{"preset":"fast","#, 1);
    let targets = JOB.replacen('{', r#"{"targets":{"min_accuracy":0.5},"#, 1);
    let bodies = [("plain", JOB), ("preset", &*preset), ("targets", &*targets)];
    let mut first = Vec::new();
    for (key, body) in bodies {
        let key = ("idempotency-key", key);
        let sent = with_header(&api, "POST", "/v1/jobs", key, body).await;
        assert_eq!(sent.status, 202, "{body}");
        first.push(sent.json()["id"].clone());
    }
    let change = json!({
        "default_targets": {"latency_ms": 20, "min_accuracy": 0.8},
        "presets": {"fast": {"latency_ms": 7}}
    });
    assert_eq!(patch(&api, &change).await.status, 200);
    for ((key, body), first) in bodies.iter().zip(&first) {
        let key = ("idempotency-key", *key);
        let again = with_header(&api, "POST", "/v1/jobs", key, body).await;
        assert_eq!(again.json()["id"], *first, "{body}");
    }
    // What a client asks for itself is another request, also if the application's defaults are the same.
    let stated = JOB.replacen('{', r#"{"targets":{"min_accuracy":0.8},"#, 1);
    for (key, body) in [
        ("plain", &*stated),
        ("plain", &*preset),
        ("targets", &*stated),
    ] {
        let key = ("idempotency-key", key);
        let refused = with_header(&api, "POST", "/v1/jobs", key, body).await;
        refused.problem("idempotency_key_reused");
    }
}

#[tokio::test]
async fn a_wait_is_followed_and_told() {
    let api = with_digits(Recorder::answering()).await;
    api.call("PUT", "/v1/artefacts/in.jsonl", "{}").await;
    let job = api.call("POST", "/v1/jobs", JOB).await.json();
    let path = format!("/v1/jobs/{}", job["id"].as_str().expect("an id"));
    let waited = with_header(&api, "GET", &path, ("prefer", "respond-async, wait=0"), "").await;
    assert_eq!(waited.headers["preference-applied"], "wait=0");
    let refused = api.get(&format!("{path}?wait_ms=60001")).await;
    assert_eq!(refused.problem("invalid_request")["field"], "wait_ms");
}

#[tokio::test]
async fn an_ended_job_is_forgotten_and_a_running_one_is_not() {
    let api = with_digits(Recorder::answering()).await;
    api.call("PUT", "/v1/artefacts/in.jsonl", "{}").await;
    let job = api.call("POST", "/v1/jobs", JOB).await.json();
    let path = format!("/v1/jobs/{}", job["id"].as_str().expect("an id"));
    let forget = format!("{path}?forget=true");
    api.call("DELETE", &forget, "").await.problem("in_use");
    assert_eq!(
        api.call("DELETE", &path, "").await.json()["state"],
        "cancelled"
    );
    assert_eq!(api.call("DELETE", &forget, "").await.status, 204);
    api.get(&path).await.problem("job_not_found");
}

#[tokio::test]
async fn lists_come_in_pages() {
    let api = Api::new(Recorder::new(|_| {
        Err(QueryError::new(sextant_types::Code::Internal, "none"))
    }))
    .await;
    for name in ["a", "b", "c", "d", "e"] {
        let body = format!(r#"{{"name":"{name}","metric":"top1"}}"#);
        api.call("POST", "/v1/applications", body).await;
        let key = format!(r#"{{"name":"{name}","scopes":["query"]}}"#);
        api.call("POST", "/v1/keys", key).await;
        api.call("PUT", "/v1/artefacts/in.jsonl", "{}").await;
        let job = format!(r#"{{"application":"{name}","input":"in.jsonl","output":"out"}}"#);
        api.call("POST", "/v1/jobs", job).await;
    }
    for (path, member, name) in [
        ("/v1/applications", "applications", "name"),
        ("/v1/keys", "keys", "name"),
        ("/v1/jobs", "jobs", "application"),
    ] {
        let mut seen = Vec::new();
        let mut after = String::new();
        for _ in 0..3 {
            let page = api.get(&format!("{path}?limit=2{after}")).await.json();
            let items = page[member].as_array().expect("a list");
            seen.extend(
                items
                    .iter()
                    .map(|item| item[name].as_str().expect("a name").to_owned()),
            );
            after = page["next"]
                .as_str()
                .map_or_else(String::new, |next| format!("&after={next}"));
        }
        assert!(after.is_empty(), "{path}: the last page says so");
        seen.sort();
        assert_eq!(seen, ["a", "b", "c", "d", "e"], "{path}");
        let refused = api.get(&format!("{path}?limit=0")).await;
        assert_eq!(refused.problem("invalid_request")["field"], "limit");
    }
}
