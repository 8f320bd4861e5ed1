//! Why queries were answered as they were, asked for afterwards.

use axum::{body::Body, http::Request};
use serde_json::Value;
use sextant_rpc::{Candidate, Explanation, QueryError};
use sextant_types::Code;

use crate::double::{Api, Recorder, Settings, answer};

const QUERY: &str = r#"{"id":"q-1","application":"digits","targets":{"latency_ms":20},"explain":true,
    "inputs":[{"name":"input","shape":[1,3],"datatype":"FP32","data":[0.1,2,-3e2]}]}"#;

fn candidate(state: &'static str) -> Candidate {
    Candidate {
        variant: "mlp-ort-fp32-all-t1-b32".parse().expect("a name"),
        device_type: None,
        quality_bound: 0.9,
        kind: sextant_types::AccuracyKind::Accuracy,
        expected_ms: 1.5,
        cost_per_1k_usd: 0.002,
        estimated: false,
        state: state.into(),
        verdict: "selected".into(),
    }
}

/// Answers with a variant that was in such a state.
fn explaining(state: &'static str) -> std::sync::Arc<Recorder> {
    Recorder::new(move |query| {
        let mut answer = answer();
        answer.timings.queue_us = 1e6;
        answer.timings.load_us = if state == "inactive" { 1e6 } else { 0.0 };
        answer.timings.total_us = 1e6 + 200.0;
        answer.explanation = query.explain.then(|| Explanation {
            reason: "the cheapest".to_owned(),
            candidates: vec![candidate(state)],
            considered: 1,
            steps: Vec::new(),
        });
        Ok(answer)
    })
}

async fn explained(api: &Api, id: &str) -> Value {
    api.get(&format!("/v1/queries/{id}")).await.json()
}

#[tokio::test]
async fn an_explanation_is_kept_under_the_id_of_the_query_and_of_its_request() {
    let api = Api::new(explaining("active")).await;
    let answer = api.call("POST", "/v1/queries", QUERY).await;
    assert_eq!(answer.json()["id"], "q-1");
    let request = answer.headers["x-request-id"].to_str().expect("text");
    let kept = explained(&api, "q-1").await;
    assert_eq!(kept, explained(&api, request).await);
    assert_eq!(kept["request_id"], request);
    assert_eq!(kept["outcome"], "answered");
    assert_eq!(kept["variant"], "mlp-ort-fp32-all-t1-b32");
    assert_eq!(kept["targets_met"], true);
    assert_eq!(kept["explanation"]["candidates"][0]["verdict"], "selected");
}

#[tokio::test]
async fn the_time_of_a_query_is_told_stage_by_stage() {
    for (state, waits, idle) in [
        ("active", "queue_us", "load_us"),
        ("inactive", "load_us", "queue_us"),
    ] {
        let api = Api::new(explaining(state)).await;
        api.call("POST", "/v1/queries", QUERY).await;
        let budget = explained(&api, "q-1").await["budget"].clone();
        let us = |name: &str| budget[name].as_f64().expect("a number");
        assert_eq!(us("deadline_us"), 20_000.0);
        assert_eq!(us("left_us"), us("deadline_us") - us("total_us"));
        assert!(us(waits) > 0.0, "{budget}");
        assert_eq!(us(idle), 0.0, "{budget}");
        assert_eq!(us("run_us"), 100.0);
        let metrics = api.get("/metrics").await;
        let metrics = String::from_utf8_lossy(&metrics.bytes);
        let loads = "sextant_query_load_seconds_count{application=\"digits\",model=\"mlp\"}";
        let counted = metrics.lines().find_map(|line| line.strip_prefix(loads));
        let waited = u64::from(state == "inactive");
        assert_eq!(
            counted.map(str::trim),
            Some(&waited.to_string()[..]),
            "{metrics}"
        );
    }
}

#[tokio::test]
async fn without_an_id_the_answer_gets_that_of_its_request() {
    let api = Api::new(explaining("active")).await;
    let without = QUERY.replace(r#""id":"q-1","#, "");
    let answer = api.call("POST", "/v1/queries", without).await;
    let request = answer.headers["x-request-id"].to_str().expect("text");
    assert_eq!(answer.json()["id"], request);
    assert_eq!(explained(&api, request).await["id"], request);
}

#[tokio::test]
async fn a_refusal_is_explained_as_well() {
    let api = Api::new(Recorder::new(|_| {
        let mut error = QueryError::new(Code::TargetInfeasible, "nothing is that fast");
        error.closest = vec![candidate("active")];
        Err(error)
    }))
    .await;
    let strict = QUERY.replace("20", "1");
    let refused = api.call("POST", "/v1/queries", strict).await;
    let closest = refused.problem("target_infeasible")["closest"][0].clone();
    assert_eq!(closest["misses"], serde_json::json!(["latency"]));
    let kept = explained(&api, "q-1").await;
    assert_eq!(kept["outcome"], "target_infeasible");
    assert_eq!(kept["problem"]["detail"], "nothing is that fast");
    assert_eq!(kept["problem"]["closest"][0], closest);
    assert!(kept["budget"]["total_us"].as_f64().expect("a number") > 0.0);
}

#[tokio::test]
async fn nothing_is_kept_of_queries_that_do_not_ask() {
    let api = Api::new(explaining("active")).await;
    let plain = QUERY.replace(r#""explain":true,"#, "");
    api.call("POST", "/v1/queries", plain).await;
    let gone = api.get("/v1/queries/q-1").await;
    assert_eq!(gone.status, 404);
    let problem = gone.problem("query_not_found");
    assert!(problem["detail"].as_str().expect("text").contains("60"));
}

#[tokio::test]
async fn only_who_asked_and_administrators_are_told() {
    let api = Api::with(explaining("active"), Settings::keys()).await;
    let mut keys = Vec::new();
    for name in ["first", "second"] {
        let body = format!(r#"{{"name":"{name}","scopes":["query"]}}"#);
        let created = api
            .keyed(crate::double::ADMIN, "POST", "/v1/keys", body)
            .await;
        keys.push(
            created.json()["secret"]
                .as_str()
                .expect("a secret")
                .to_owned(),
        );
    }
    api.keyed(&keys[0], "POST", "/v1/queries", QUERY).await;
    let seen = |key: String| {
        let api = &api;
        async move { api.keyed(&key, "GET", "/v1/queries/q-1", "").await.status }
    };
    assert_eq!(seen(keys[0].clone()).await, 200);
    assert_eq!(seen(keys[1].clone()).await, 404);
    assert_eq!(seen(crate::double::ADMIN.to_owned()).await, 200);
}

#[tokio::test]
async fn every_answer_names_its_request_and_goes_on_with_the_trace() {
    let api = Api::new(Recorder::answering()).await;
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for (path, status) in [
        ("/v1/applications", 200),
        ("/v1/applications/nobody", 404),
        ("/nowhere", 404),
    ] {
        let request = Request::builder()
            .uri(path)
            .header("x-request-id", "order-7")
            .header("traceparent", parent)
            .body(Body::empty());
        let answer = api.send(request.expect("a request")).await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.headers["x-request-id"], "order-7", "{path}");
        let told = answer.headers["traceparent"].to_str().expect("text");
        assert!(
            told.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"),
            "{told}"
        );
        assert_ne!(told, parent);
        if status == 404 {
            assert_eq!(answer.json()["request_id"], "order-7");
        }
    }
}
