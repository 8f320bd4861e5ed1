use sextant_api::Limits;

use crate::double::{Api, Recorder};

/// A query with one part replaced.
fn with(part: &str, replacement: &str) -> String {
    let good = r#"{"application":"digits","targets":{"latency_ms":20},
"inputs":[{"name":"input","shape":[1,3],"datatype":"FP32","data":[1,2,3]}]}"#;
    assert!(good.contains(part), "{part}");
    good.replace(part, replacement)
}

#[tokio::test]
async fn bad_queries_are_coded() {
    let api = Api::new(Recorder::answering()).await;
    let cases = [
        (
            with("\"latency_ms\":20", "\"latency_ms\":-1"),
            "invalid_target",
        ),
        (
            with("\"latency_ms\":20", "\"latency_ms\":0"),
            "invalid_target",
        ),
        (
            with("\"latency_ms\":20", "\"latency_ms\":1e999"),
            "invalid_request",
        ),
        (
            with("\"latency_ms\":20", "\"latency_ms\":NaN"),
            "invalid_request",
        ),
        (
            with("\"latency_ms\":20", "\"latency_ms\":\"NaN\""),
            "invalid_request",
        ),
        (
            with("\"latency_ms\":20", "\"min_accuracy\":1.5"),
            "invalid_target",
        ),
        (
            with("\"latency_ms\":20", "\"min_accuracy\":0.5,\"max_error\":1"),
            "invalid_target",
        ),
        (
            with("\"latency_ms\":20", "\"max_cost_per_1k_usd\":-0.1"),
            "invalid_target",
        ),
        (
            with("\"latency_ms\":20", "\"latency\":20"),
            "invalid_request",
        ),
        (with("\"digits\"", "\"Digits!\""), "invalid_name"),
        (with("\"application\":\"digits\",", ""), "invalid_request"),
        (
            with("\"digits\"", "\"digits\",\"model\":\"mlp\""),
            "invalid_request",
        ),
        (with("FP32", "FP31"), "invalid_tensor"),
        (with("[1,2,3]", "[1,2]"), "invalid_tensor"),
        (with("[1,2,3]", "[1,2,\"3\"]"), "invalid_tensor"),
        (with("[1,2,3]", "[[1,2],[3]]"), "invalid_tensor"),
        (with("[1,2,3]", "[1,2,1e39]"), "invalid_tensor"),
        (with(",\"data\":[1,2,3]", ""), "invalid_tensor"),
        (with("[1,3]", "[-1,3]"), "invalid_request"),
        (with("[1,3]", "[4294967296,4294967296]"), "invalid_tensor"),
        (String::new(), "invalid_request"),
        ("[]".to_owned(), "invalid_request"),
        ("\u{1f}\u{8b}".to_owned(), "invalid_request"),
    ];
    for (body, code) in cases {
        let reading = api.call("POST", "/v1/queries", body.clone()).await;
        assert_eq!(reading.status, 400, "{body}");
        assert_eq!(reading.json()["code"], code, "{body}: {}", reading.json());
        reading.problem(code);
    }
}

#[tokio::test]
async fn a_json_error_says_where() {
    let api = Api::new(Recorder::answering()).await;
    let body = with("[1,3]", "[1,\"x\"]");
    let problem = api
        .call("POST", "/v1/queries", body)
        .await
        .problem("invalid_request");
    assert_eq!(problem["line"], 2);
    assert_eq!(problem["field"], "inputs[0].shape[1]");
    let body = with("\"data\"", "data");
    let problem = api
        .call("POST", "/v1/queries", body)
        .await
        .problem("invalid_request");
    assert_eq!(problem["line"], 2);
    assert!(problem["column"].as_u64() > Some(1));
    let body = with("[1,2,3]", "[1,2,true]");
    let problem = api
        .call("POST", "/v1/queries", body)
        .await
        .problem("invalid_tensor");
    assert_eq!(problem["field"], "inputs[0].data");
    assert_eq!(
        problem["detail"],
        "input `input`: element 2 is `true`, not a value of type FP32"
    );
}

#[tokio::test]
async fn people_read_the_title_first() {
    let api = Api::new(Recorder::answering()).await;
    let reading = api.get("/nope").await;
    let request = reading.headers["x-request-id"].to_str().expect("text");
    let wanted = r#"{"type":"/docs/errors/route_not_found","title":"There is no such route","status":404,"detail":"there is no route `GET /nope`","instance":"/nope","request_id":"REQUEST","code":"route_not_found"}"#;
    let wanted = wanted.replace("REQUEST", request);
    assert_eq!(String::from_utf8_lossy(&reading.bytes), wanted);
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused() {
    let limits = Limits {
        max_body_bytes: 100,
        ..Limits::default()
    };
    let api = Api::limited(Recorder::answering(), limits).await;
    let reading = api.call("POST", "/v1/queries", " ".repeat(101)).await;
    assert_eq!(reading.status, 413);
    reading.problem("too_large");
    let pieces = futures::stream::iter((0..11).map(|_| Ok::<_, std::io::Error>("0123456789")));
    let body = axum::body::Body::from_stream(pieces);
    api.call("POST", "/v1/queries", body)
        .await
        .problem("too_large");
}

#[tokio::test]
async fn more_queries_than_allowed_are_refused() {
    let limits = Limits {
        max_concurrent_queries: 0,
        ..Limits::default()
    };
    let api = Api::limited(Recorder::answering(), limits).await;
    let reading = api.call("POST", "/v1/queries", "{}").await;
    assert_eq!(reading.status, 429);
    assert_eq!(reading.headers["retry-after"], "1");
    reading.problem("overloaded");
    assert_eq!(api.get("/health/ready").await.status, 200);
}

#[tokio::test]
async fn unknown_routes_and_methods_are_coded() {
    let api = Api::new(Recorder::answering()).await;
    for path in [
        "/nope",
        "/v1",
        "/v1/queries/1/2",
        "/docs/errors/nope",
        "/v3/health",
    ] {
        let reading = api.get(path).await;
        assert_eq!(reading.status, 404, "{path}");
        assert_eq!(reading.problem("route_not_found")["instance"], path);
    }
    let reading = api.get("/v1/queries").await;
    assert_eq!(reading.status, 405);
    assert_eq!(reading.headers["allow"], "POST");
    reading.problem("method_not_allowed");
}
