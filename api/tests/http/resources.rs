//! Applications, models, jobs and artefacts over real stores: what is registered, and asked of them.

use std::sync::{Arc, atomic::Ordering};

use axum::{body::Body, http::Request};
use serde_json::{Value, json};
use sextant_registry::JobKind;
use sextant_rpc::QueryError;
use sextant_types::{Route, time::unix_ms};

use crate::double::{Api, Reading, Recorder, variant};

mod artefacts;

const DIGITS: &str = r#"{"name":"digits","metric":"top1","description":"hand-written digits",
    "default_targets":{"latency_ms":50,"min_accuracy":0.9}}"#;

pub async fn with_digits() -> Api {
    let api = Api::new(Recorder::answering()).await;
    assert_eq!(
        api.call("POST", "/v1/applications", DIGITS).await.status,
        201
    );
    api
}

pub fn form(fields: &[(&str, &[u8])]) -> Request<Body> {
    let mut body = Vec::new();
    for (name, value) in fields {
        let head = format!(
            "--edge\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"x\"\r\n\r\n"
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(value);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--edge--\r\n");
    Request::builder()
        .method("POST")
        .uri("/v1/models")
        .header("content-type", "multipart/form-data; boundary=edge")
        .body(body.into())
        .expect("a request")
}

pub async fn upload(api: &Api, name: &str, model: &[u8]) -> Reading {
    api.send(form(&[
        ("name", name.as_bytes()),
        ("application", b"digits"),
        ("model", model),
        ("validation", b"labels"),
    ]))
    .await
}

#[tokio::test]
async fn an_application_is_created_once() {
    let api = with_digits().await;
    let again = api.call("POST", "/v1/applications", DIGITS).await;
    assert_eq!(again.status, 200);
    assert_eq!(again.headers["location"], "/v1/applications/digits");
    let wanted = json!({"name": "digits", "metric": "top1", "description": "hand-written digits",
        "default_targets": {"latency_ms": 50.0, "min_accuracy": 0.9}});
    assert_eq!(again.json(), wanted);
    assert_eq!(api.get("/v1/applications/digits").await.json(), wanted);
    assert_eq!(
        api.get("/v1/applications").await.json(),
        json!({"applications": [wanted]})
    );
    let other = DIGITS.replace("50", "51");
    let reading = api.call("POST", "/v1/applications", other).await;
    assert_eq!(reading.status, 409);
    reading.problem("application_exists");
    assert_eq!(
        api.call("DELETE", "/v1/applications/digits", "")
            .await
            .status,
        204
    );
    api.get("/v1/applications/digits")
        .await
        .problem("application_not_found");
    api.get("/v1/applications/digits/variants")
        .await
        .problem("application_not_found");
}

#[tokio::test]
async fn a_bad_application_is_refused() {
    let api = Api::new(Recorder::answering()).await;
    for (body, code) in [
        (DIGITS.replace("top1", "best"), "invalid_request"),
        (DIGITS.replace("\"digits\"", "\"Digits\""), "invalid_name"),
        (
            DIGITS.replace("min_accuracy", "max_error"),
            "invalid_target",
        ),
        (DIGITS.replace("0.9", "1.9"), "invalid_target"),
        (DIGITS.replace("50", "-50"), "invalid_target"),
        (DIGITS.replace("metric", "measure"), "invalid_request"),
    ] {
        api.call("POST", "/v1/applications", body)
            .await
            .problem(code);
    }
}

#[tokio::test]
async fn default_targets_fill_what_a_query_leaves_open() {
    let recorder = Recorder::answering();
    let api = Api::new(recorder.clone()).await;
    api.call("POST", "/v1/applications", DIGITS).await;
    upload(&api, "mlp", b"onnx").await;
    let query = r#"{"application":"digits","targets":{"latency_ms":5},"inputs":[]}"#;
    api.call("POST", "/v1/queries", query).await;
    let targets = recorder.last().targets;
    assert_eq!(
        (targets.latency_ms, targets.min_quality),
        (Some(5.0), Some(0.9))
    );
    api.call("POST", "/v1/queries", r#"{"model":"mlp","inputs":[]}"#)
        .await;
    assert_eq!(recorder.last().targets.latency_ms, Some(50.0));
    api.call("POST", "/v1/queries", r#"{"variant":"mlp","inputs":[]}"#)
        .await;
    assert_eq!(recorder.last().targets.latency_ms, None);
    assert!(matches!(recorder.last().route, Route::Variant(_)));
}

#[tokio::test]
async fn a_model_is_registered_from_a_form() {
    let api = with_digits().await;
    let reading = upload(&api, "mlp", b"onnx").await;
    assert_eq!(reading.status, 202);
    let body = reading.json();
    let job = body["job"].as_str().expect("a job").to_owned();
    assert_eq!(body["model"], "mlp");
    assert_eq!(reading.headers["location"], format!("/v1/jobs/{job}"));

    let again = upload(&api, "mlp", b"onnx").await;
    assert_eq!((again.status.as_u16(), &again.json()), (202, &body));
    let other = upload(&api, "mlp", b"other").await;
    assert_eq!(
        (other.status.as_u16(), &other.json()["version"]),
        (202, &json!(2))
    );

    let model = api.get("/v1/models/mlp").await.json();
    assert_eq!(model["status"], "registering");
    assert_eq!(model["job"], job);
    assert_eq!(
        (&model["size_bytes"], &model["variants"]),
        (&json!(4), &json!(0))
    );
    let digest = model["digest"]
        .as_str()
        .expect("text")
        .parse()
        .expect("a digest");
    assert_eq!(api.objects.get_blob(&digest).await.expect("stored"), "onnx");
    let list = api.get("/v1/models?application=digits").await.json();
    assert_eq!(list["models"][0], model);
    assert_eq!(list["models"][1]["id"], "mlp.v2");
    assert_eq!(
        api.get("/v1/models/mlp/variants").await.json(),
        json!({"variants": []})
    );

    let found = api.get(&format!("/v1/jobs/{job}")).await.json();
    assert_eq!(
        (&found["kind"], &found["state"]),
        (&json!("register"), &json!("queued"))
    );
    assert_eq!(
        found["spec"],
        json!({"model": "mlp", "application": "digits"})
    );
    api.call("DELETE", "/v1/models/mlp", "")
        .await
        .problem("in_use");
    let cancelled = api
        .call("DELETE", &format!("/v1/jobs/{job}"), "")
        .await
        .json();
    assert_eq!(cancelled["state"], "cancelled");
    let model = api.get("/v1/models/mlp").await.json();
    assert_eq!(model["error"]["code"], "unavailable");
    assert_eq!(api.call("DELETE", "/v1/models/mlp", "").await.status, 204);
    api.get("/v1/models/mlp@1").await.problem("model_not_found");
    assert_eq!(api.get("/v1/models/mlp").await.json()["version"], 2);
}

#[tokio::test]
async fn what_is_plainly_wrong_is_refused_at_once() {
    let api = with_digits().await;
    let good: [(&str, &[u8]); 4] = [
        ("name", b"mlp"),
        ("application", b"digits"),
        ("model", b"onnx"),
        ("validation", b"labels"),
    ];
    let cases = [
        (0, "name", "M L P", "invalid_name"),
        (1, "application", "faces", "application_not_found"),
        (2, "model", "", "invalid_model"),
        (3, "validation", "", "invalid_validation_set"),
        (3, "labels", "labels", "invalid_request"),
        (3, "labels", "no", "invalid_request"),
        (3, "model", "onnx", "invalid_request"),
    ];
    for (index, name, value, code) in cases {
        let mut fields = good;
        fields[index] = (name, value.as_bytes());
        api.send(form(&fields)).await.problem(code);
    }
    api.send(form(&good[..3])).await.problem("invalid_request");
    api.call("POST", "/v1/models", "{}")
        .await
        .problem("invalid_request");
    let cut = Request::builder()
        .method("POST")
        .uri("/v1/models")
        .header("content-type", "multipart/form-data; boundary=edge")
        .body(Body::from(
            "--edge\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nabc",
        ));
    api.send(cut.expect("a request"))
        .await
        .problem("invalid_request");
    assert_eq!(api.get("/v1/models").await.json(), json!({"models": []}));
}

#[tokio::test]
async fn a_set_without_labels_is_declared_in_either_form() {
    let api = with_digits().await;
    let fields: [(&str, &[u8]); 5] = [
        ("name", b"a"),
        ("application", b"digits"),
        ("model", b"onnx"),
        ("validation", b"set"),
        ("labels", b"none"),
    ];
    assert_eq!(api.send(form(&fields)).await.status, 202);
    for path in ["/v1/artefacts/model", "/v1/artefacts/set"] {
        api.call("PUT", path, "bytes").await;
    }
    let body = json!({"name": "b", "application": "digits", "model_path": "model", "validation_path": "set",
        "labels": "none"});
    let sent = api
        .call("POST", "/v1/registrations", body.to_string())
        .await;
    assert_eq!(sent.status, 202);
    let other = body.to_string().replace("none", "some");
    let refused = api.call("POST", "/v1/registrations", other).await;
    let problem = refused.problem("invalid_request");
    assert_eq!(problem["field"], "labels", "{problem}");
    for name in ["a", "b"] {
        let model = api.get(&format!("/v1/models/{name}")).await.json();
        assert_eq!(model["labels"], "none", "{model}");
    }
}

#[tokio::test]
async fn files_over_the_limit_are_refused() {
    let limits = sextant_api::Limits {
        max_model_bytes: 3,
        ..sextant_api::Limits::default()
    };
    let api = Api::limited(Recorder::answering(), limits).await;
    api.call("POST", "/v1/applications", DIGITS).await;
    let reading = upload(&api, "mlp", b"onnx").await;
    assert_eq!(reading.status, 413);
    reading.problem("too_large");
    api.call("PUT", "/v1/artefacts/a", "1234")
        .await
        .problem("too_large");
    let pieces = futures::stream::iter((0..4).map(|_| Ok::<_, std::io::Error>("1")));
    let streamed = Body::from_stream(pieces);
    api.call("PUT", "/v1/artefacts/a", streamed)
        .await
        .problem("too_large");
    api.get("/v1/artefacts/a")
        .await
        .problem("artefact_not_found");
}

#[tokio::test]
async fn an_offline_job_is_queued() {
    let api = with_digits().await;
    api.call("PUT", "/v1/artefacts/in.jsonl", "{}\n").await;
    let body = json!({"id": "nightly-1", "application": "digits", "input": "in.jsonl",
        "output": "out.jsonl", "targets": {"min_accuracy": 0.5}});
    let reading = api.call("POST", "/v1/jobs", body.to_string()).await;
    assert_eq!(reading.status, 202);
    assert_eq!(reading.headers["location"], "/v1/jobs/nightly-1");
    let job = reading.json();
    let wanted = json!({"route": {"application": "digits"}, "input": "in.jsonl",
        "output": "out.jsonl", "chunk": 256,
        "targets": {"latency_ms": 50.0, "min_quality": 0.5, "max_cost_per_1k_usd": null}});
    assert_eq!(job["spec"], wanted);
    assert_eq!(job["progress"], json!({"done": 0, "total": 0}));
    let again = api.call("POST", "/v1/jobs", body.to_string()).await.json();
    assert_eq!(again, job);
    let list = |query: &'static str| {
        let api = &api;
        async move { api.get(&format!("/v1/jobs{query}")).await.json()["jobs"].clone() }
    };
    assert_eq!(list("?kind=offline&state=queued").await, json!([job]));
    assert_eq!(list("?kind=register").await, json!([]));
    api.get("/v1/jobs?state=resting")
        .await
        .problem("invalid_request");
    api.get("/v1/jobs?kinds=offline")
        .await
        .problem("invalid_request");
    let text = String::from_utf8(api.get("/metrics").await.bytes).expect("UTF-8");
    assert!(
        text.contains("sextant_jobs{kind=\"offline\",state=\"queued\"} 1"),
        "{text}"
    );
    let waited = api.get("/v1/jobs/nightly-1?wait_ms=1").await.json();
    assert_eq!(waited["state"], "queued");
    api.get("/v1/jobs/none").await.problem("job_not_found");
}

#[tokio::test]
async fn lists_are_of_the_model_that_a_reference_stands_for() {
    let api = with_digits().await;
    api.put_model().await;
    let stored = api.registry.put_variants(&[variant()]).await;
    stored.expect("stored");
    for (model, count) in [
        ("mlp", 1),
        ("mlp@1", 1),
        ("digits:mlp", 1),
        ("mlp@2", 0),
        ("nothing", 0),
    ] {
        for list in ["variants", "jobs"] {
            let listed = api.get(&format!("/v1/{list}?model={model}")).await.json();
            let listed = listed[list].as_array().map(Vec::len);
            assert_eq!(listed, Some(count), "{list} of {model}");
        }
    }
}

/// Dispatchers learn of a model on another way than whoever reads its job.
#[tokio::test]
async fn who_reads_that_a_registration_is_done_finds_its_model() {
    let recorder = Recorder::answering();
    let api = Api::new(Arc::clone(&recorder)).await;
    api.call("POST", "/v1/applications", DIGITS).await;
    let job = upload(&api, "late", b"onnx").await.json()["job"].clone();
    let path = format!("/v1/jobs/{}", job.as_str().expect("a job"));
    let claimed = api
        .registry
        .claim(JobKind::Register, "me", 60_000, unix_ms());
    let claimed = claimed.await.expect("a store").expect("a job");
    let nothing = json!({});
    let finished = api
        .registry
        .finish_with(&claimed.id, "me", &[], &nothing, unix_ms());
    finished.await.expect("it is mine");
    for path in [path.clone(), format!("{path}/events")] {
        recorder.late.store(3, Ordering::Relaxed);
        let reading = api.get(&path).await;
        let text = String::from_utf8_lossy(&reading.bytes);
        assert!(text.contains("\"succeeded\""), "{text}");
        assert_eq!(recorder.late.load(Ordering::Relaxed), 0, "{path}");
    }
}

/// A dispatcher that was not told of a model, or has lost what it knew, does not make it one that does not exist.
#[tokio::test]
async fn what_is_registered_and_not_announced_is_no_404() {
    let recorder = Recorder::new(|query| Err(QueryError::not_found(&query.route)));
    let api = Api::new(Arc::clone(&recorder)).await;
    api.call("POST", "/v1/applications", DIGITS).await;
    let asked = async |application: &str| {
        let query = json!({"application": application, "inputs": [
            {"name": "pixels", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]});
        api.call("POST", "/v1/queries", query.to_string()).await
    };
    // Nothing can answer yet, and nobody can have meant what was asked for.
    let reading = asked("digits").await;
    assert_eq!(reading.status, 404);
    let problem = reading.problem("application_not_found");
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(!detail.contains("did you mean"), "{detail}");
    upload(&api, "late", b"onnx").await;
    let claimed = api
        .registry
        .claim(JobKind::Register, "me", 60_000, unix_ms());
    let claimed = claimed.await.expect("a store").expect("a job");
    let nothing = json!({});
    let finished = api
        .registry
        .finish_with(&claimed.id, "me", &[], &nothing, unix_ms());
    finished.await.expect("it is mine");
    api.state.refresh().await.expect("read");
    let reading = asked("digits").await;
    assert_eq!(reading.status, 503);
    assert_eq!(reading.headers["retry-after"], "1");
    reading.problem("unavailable");
    recorder.late.store(usize::MAX, Ordering::Relaxed);
    for path in ["/v2/models/late", "/v2/models/late/config"] {
        let reading = api.get(path).await;
        assert_eq!(reading.status, 503, "{path}");
    }
    assert_eq!(api.get("/v2/models/later").await.status, 404);
    let reading = asked("digitz").await;
    assert_eq!(reading.status, 404);
    let problem = reading.problem("application_not_found");
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(detail.ends_with("did you mean `digits`?"), "{detail}");
}

#[tokio::test]
async fn a_bad_job_is_refused() {
    let api = with_digits().await;
    api.call("PUT", "/v1/artefacts/in.jsonl", "{}\n").await;
    let good = json!({"application": "digits", "input": "in.jsonl", "output": "out.jsonl"});
    let cases: [(&str, Value, &str); 8] = [
        ("application", json!("faces"), "application_not_found"),
        ("application", json!(null), "invalid_request"),
        ("model", json!("mlp"), "invalid_request"),
        ("input", json!("none.jsonl"), "artefact_not_found"),
        ("input", json!("../in.jsonl"), "invalid_path"),
        ("output", json!("in.jsonl"), "invalid_request"),
        ("chunk", json!(0), "invalid_request"),
        ("targets", json!({"latency_ms": -1}), "invalid_target"),
    ];
    for (field, value, code) in cases {
        let mut body = good.clone();
        body[field] = value;
        api.call("POST", "/v1/jobs", body.to_string())
            .await
            .problem(code);
    }
}
