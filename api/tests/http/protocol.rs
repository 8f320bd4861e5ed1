//! The Open Inference Protocol.

use std::io::{Read, Write};

use axum::{body::Body, http::Request};
use flate2::{
    read::{GzDecoder, ZlibDecoder},
    write::{GzEncoder, ZlibEncoder},
};
use serde_json::json;
use sextant_rpc::QueryError;
use sextant_types::{Route, Tensor};

use crate::double::{Api, Recorder, answer};

const INFER: &str = r#"{"id":"7","inputs":[{"name":"input","shape":[1,3],"datatype":"FP32",
    "data":[1,2,3]}]}"#;

fn post(path: &str, headers: &[(&str, String)], body: impl Into<Body>) -> Request<Body> {
    let mut request = Request::builder().method("POST").uri(path);
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    request.body(body.into()).expect("a request")
}

#[tokio::test]
async fn server_health_and_metadata() {
    let api = Api::new(Recorder::answering()).await;
    let server = api.get("/v2").await.json();
    assert_eq!(server["name"], "sextant");
    assert_eq!(api.get("/v2/").await.json(), server);
    assert_eq!(
        api.get("/v2/health/live").await.json(),
        json!({"live": true})
    );
    assert_eq!(
        api.get("/v2/health/ready").await.json(),
        json!({"ready": true})
    );
    let wanted = json!({"name": "digits", "versions": ["1"], "platform": "onnx_onnxv1",
        "inputs": [{"name": "input", "datatype": "FP32", "shape": [-1, 3]}],
        "outputs": [{"name": "probabilities", "datatype": "FP32", "shape": [-1, 3]}]});
    assert_eq!(api.get("/v2/models/digits").await.json(), wanted);
    assert_eq!(api.get("/v2/models/digits/versions/1").await.json(), wanted);
    let ready = api.get("/v2/models/mlp/versions/1/ready").await;
    assert_eq!(ready.json(), json!({"name": "mlp", "ready": true}));
    let index = api.call("POST", "/v2/repository/index", "").await;
    assert_eq!(index.json(), json!([]));
}

#[tokio::test]
async fn names_are_tried_as_variant_model_and_application() {
    let recorder = Recorder::answering();
    let api = Api::new(recorder.clone()).await;
    for (name, route) in [
        (
            "digits",
            Route::Application("digits".parse().expect("a name")),
        ),
        ("mlp", Route::Model("mlp".parse().expect("a name"))),
        (
            "mlp-ort-fp32-all-t1-b32",
            Route::Variant("mlp-ort-fp32-all-t1-b32".parse().expect("a name")),
        ),
    ] {
        let path = format!("/v2/models/{name}/infer");
        assert_eq!(api.call("POST", &path, INFER).await.status, 200);
        assert_eq!(recorder.last().route, route);
    }
}

#[tokio::test]
async fn errors_carry_the_member_that_clients_read() {
    let api = Api::new(Recorder::answering()).await;
    for (path, code) in [
        ("/v2/models/nope/infer", "model_not_found"),
        ("/v2/models/UPPER/infer", "model_not_found"),
        ("/v2/models/mlp/versions/2/infer", "model_not_found"),
        ("/v2/nope", "route_not_found"),
    ] {
        let problem = api.call("POST", path, INFER).await.problem(code);
        assert_eq!(problem["error"], problem["detail"]);
    }
    let problem = api
        .call("POST", "/v2/models/mlp/infer", "{")
        .await
        .problem("invalid_request");
    assert!(problem["error"].is_string());
}

/// Whichever interface they come by. Questions about a name are no queries.
#[tokio::test]
async fn queries_that_name_nothing_are_counted() {
    let api = Api::new(Recorder::new(|query| {
        Err(QueryError::not_found(&query.route))
    }))
    .await;
    let asked = [
        ("/v1/queries", r#"{"model":"nope","inputs":[]}"#),
        ("/v1/embeddings", r#"{"model":"nope","input":[1]}"#),
        ("/v2/models/nope/infer", INFER),
        ("/v2/models/nope/versions/1/infer", INFER),
        ("/v2/models/mlp/versions/2/infer", INFER),
    ];
    for (path, body) in asked {
        let refused = api.call("POST", path, body).await;
        refused.problem("model_not_found");
    }
    let refused = api.get("/v2/models/nope").await;
    refused.problem("model_not_found");
    let metrics = api.get("/metrics").await;
    let text = String::from_utf8(metrics.bytes).expect("UTF-8");
    let counted = "sextant_query_failures_total{application=\"\",code=\"model_not_found\"}";
    let counted = format!("{counted} {}\n", asked.len());
    assert!(text.contains(&counted), "no `{counted}` in\n{text}");
}

#[tokio::test]
async fn an_id_is_short_and_plain() {
    let api = Api::new(Recorder::answering()).await;
    let with = |id: &str| {
        let id = serde_json::to_string(id).expect("a text");
        INFER.replacen("\"7\"", &id, 1)
    };
    let fitting = "\u{e9}".repeat(128);
    let answered = api
        .call("POST", "/v2/models/digits/infer", with(&fitting))
        .await;
    assert_eq!(answered.json()["id"], fitting.as_str());
    for id in [&"x".repeat(129), "a\nb", "a\u{0}b"] {
        let refused = api.call("POST", "/v2/models/digits/infer", with(id)).await;
        assert_eq!(refused.problem("invalid_request")["field"], "id");
        let own = json!({"application": "digits", "inputs": [], "id": id});
        let refused = api.call("POST", "/v1/queries", own.to_string()).await;
        assert_eq!(refused.problem("invalid_request")["field"], "id");
    }
}

#[tokio::test]
async fn the_answer_in_json() {
    let api = Api::new(Recorder::answering()).await;
    let reading = api.call("POST", "/v2/models/digits/infer", INFER).await;
    let wanted = json!({"model_name": "digits", "model_version": "1", "id": "7",
        "parameters": {"model": "mlp", "variant": "mlp-ort-fp32-all-t1-b32", "slo_met": true,
            "batch_rows": 4, "queue_us": 12.3, "compute_us": 100.0,
            "cost_usd": 2.5e-7},
        "outputs": [{"name": "probabilities", "shape": [1, 3], "datatype": "FP32",
            "data": [0.25, -1.0, 1e-9]}]});
    assert_eq!(reading.json(), wanted);
}

/// As clients write what they leave out that know it by types.
#[tokio::test]
async fn null_is_as_good_as_leaving_out() {
    let api = Api::new(Recorder::answering()).await;
    let path = "/v2/models/digits/infer";
    let plain = api.call("POST", path, INFER).await.json();
    let input = json!({"name": "input", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3],
        "parameters": null});
    let members = json!({"id": "7", "parameters": null, "inputs": [input], "outputs": null});
    let inner = json!({"id": "7", "inputs": [input],
        "parameters": {"binary_data_output": null, "explain": null, "timeout": null},
        "outputs": [{"name": "probabilities", "parameters": null}]});
    for body in [members, inner] {
        let answered = api.call("POST", path, body.to_string()).await;
        assert_eq!(answered.json(), plain, "{body}");
    }
    let index = r#"{"ready": null}"#;
    let index = api.call("POST", "/v2/repository/index", index).await;
    assert_eq!(index.json(), json!([]));
}

#[tokio::test]
async fn targets_come_from_parameters_headers_and_timeout() {
    let recorder = Recorder::answering();
    let api = Api::new(recorder.clone()).await;
    let path = "/v2/models/digits/infer";
    let with =
        |parameters: &str| INFER.replacen('{', &format!("{{\"parameters\":{parameters},"), 1);
    let headers = [
        ("x-slo-latency-ms", "7".to_owned()),
        ("x-slo-min-accuracy", "0.5".to_owned()),
    ];

    api.send(post(path, &headers, INFER)).await;
    let targets = recorder.last().targets;
    assert_eq!(
        (targets.latency_ms, targets.min_quality),
        (Some(7.0), Some(0.5))
    );

    let body = with(
        r#"{"slo_latency_ms":5,"slo_min_accuracy":0.9,"slo_policy":"best_effort",
        "timeout":900,"priority":1}"#,
    );
    api.send(post(path, &headers, body)).await;
    let query = recorder.last();
    assert_eq!(
        (query.targets.latency_ms, query.targets.min_quality),
        (Some(5.0), Some(0.9))
    );
    assert!(query.best_effort);

    api.call("POST", path, with(r#"{"timeout":2500,"slo_max_error":2}"#))
        .await;
    let targets = recorder.last().targets;
    assert_eq!(
        (targets.latency_ms, targets.min_quality),
        (Some(2.5), Some(-2.0))
    );

    let refused = [
        (
            post(path, &[("x-slo-latency-ms", "soon".to_owned())], INFER),
            "invalid_target",
        ),
        (
            post(path, &[("x-slo-latency-ms", "NaN".to_owned())], INFER),
            "invalid_target",
        ),
        (post(path, &[], with(r#"{"timeout":-1}"#)), "invalid_target"),
        (
            post(path, &[], with(r#"{"slo_policy":"maybe"}"#)),
            "invalid_request",
        ),
    ];
    for (request, code) in refused {
        api.send(request).await.problem(code);
    }
}

#[tokio::test]
async fn every_target_has_a_header() {
    let recorder = Recorder::answering();
    let api = Api::new(recorder.clone()).await;
    let path = "/v2/models/digits/infer";
    let headers = [
        ("x-slo-max-error", "0.25".to_owned()),
        ("x-slo-max-cost-per-1k-usd", "0.5".to_owned()),
        ("x-slo-policy", "best_effort".to_owned()),
    ];
    assert_eq!(api.send(post(path, &headers, INFER)).await.status, 200);
    let query = recorder.last();
    assert_eq!(query.targets.min_quality, Some(-0.25));
    assert_eq!(query.targets.max_cost_per_1k_usd, Some(0.5));
    assert!(query.best_effort);
}

#[tokio::test]
async fn a_target_that_is_misspelt_is_refused_with_the_name_that_was_meant() {
    let recorder = Recorder::answering();
    let api = Api::new(recorder.clone()).await;
    let path = "/v2/models/digits/infer";
    let with =
        |parameters: &str| INFER.replacen('{', &format!("{{\"parameters\":{parameters},"), 1);
    let header = |name: &'static str| post(path, &[(name, "0.9".to_owned())], INFER);
    let parameter = |parameters: &str| post(path, &[], with(parameters));
    let misspelt = [
        (
            parameter(r#"{"slo_min_acuracy":0.99,"slo_latency_ms":5}"#),
            "slo_min_accuracy",
        ),
        (parameter(r#"{"slo_latency":5}"#), "slo_latency_ms"),
        (
            parameter(r#"{"slo_polcy":{"nested":[1,null]}}"#),
            "slo_policy",
        ),
        (header("x-slo-min-acuracy"), "x-slo-min-accuracy"),
        (header("x-slo-latency"), "x-slo-latency-ms"),
    ];
    for (request, meant) in misspelt {
        let reading = api.send(request).await;
        let detail = reading.json()["error"].to_string();
        assert!(
            detail.contains(&format!("did you mean `{meant}`?")),
            "{detail}"
        );
        reading.problem("invalid_target");
    }
    // What begins otherwise is for other servers.
    for parameters in [r#"{"sequence_id":7,"slow":true}"#, "{}"] {
        let reading = api.send(post(path, &[], with(parameters))).await;
        assert_eq!(reading.status, 200, "{parameters}");
    }
}

#[tokio::test]
async fn binary_tensors_go_both_ways() {
    let recorder = Recorder::answering();
    let api = Api::new(recorder.clone()).await;
    let head = r#"{"inputs":[{"name":"input","shape":[1,3],"datatype":"FP32",
        "parameters":{"binary_data_size":12}}],"outputs":[{"name":"probabilities",
        "parameters":{"binary_data":true}}]}"#;
    let mut body = head.as_bytes().to_vec();
    for value in [1.5f32, f32::NAN, -2.0] {
        body.extend_from_slice(&value.to_le_bytes());
    }
    let length = [("Inference-Header-Content-Length", head.len().to_string())];
    let reading = api
        .send(post("/v2/models/mlp/infer", &length, body.clone()))
        .await;
    assert_eq!(reading.status, 200);
    let sent = recorder.last().inputs[0]
        .tensor
        .to_vec::<f32>()
        .expect("FP32");
    assert!(sent[0] == 1.5 && sent[1].is_nan() && sent[2] == -2.0);

    let length: usize = reading.headers["inference-header-content-length"]
        .to_str()
        .expect("text")
        .parse()
        .expect("a number");
    let (json, tail) = reading.bytes.split_at(length);
    let json: serde_json::Value = serde_json::from_slice(json).expect("JSON");
    assert_eq!(json["outputs"][0]["parameters"]["binary_data_size"], 12);
    assert!(json["outputs"][0].get("data").is_none());
    let values: Vec<f32> = tail
        .as_chunks::<4>()
        .0
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect();
    assert_eq!(values, [0.25, -1.0, 1e-9]);

    for (length, code) in [
        (body.len() + 1, "invalid_request"),
        // All of it would be the input.
        (0, "invalid_tensor"),
        (head.len() - 1, "invalid_request"),
    ] {
        let length = [("Inference-Header-Content-Length", length.to_string())];
        let reading = api
            .send(post("/v2/models/mlp/infer", &length, body.clone()))
            .await;
        reading.problem(code);
    }
    let length = [("Inference-Header-Content-Length", head.len().to_string())];
    body.truncate(head.len() + 8);
    let reading = api
        .send(post("/v2/models/mlp/infer", &length, body.clone()))
        .await;
    reading.problem("invalid_tensor");
    body.resize(head.len() + 16, 0);
    let reading = api.send(post("/v2/models/mlp/infer", &length, body)).await;
    reading.problem("invalid_tensor");
}

#[tokio::test]
async fn only_wanted_outputs_are_sent() {
    let api = Api::new(Recorder::answering()).await;
    let body = INFER.replacen('{', r#"{"outputs":[{"name":"nope"}],"#, 1);
    api.call("POST", "/v2/models/mlp/infer", body)
        .await
        .problem("invalid_tensor");
}

fn compressed(encoding: &str, bytes: &[u8]) -> Vec<u8> {
    let level = flate2::Compression::default();
    let mut out = Vec::new();
    match encoding {
        "gzip" => GzEncoder::new(&mut out, level).write_all(bytes),
        _ => ZlibEncoder::new(&mut out, level).write_all(bytes),
    }
    .expect("memory takes it");
    out
}

#[tokio::test]
async fn bodies_may_be_compressed() {
    let recorder = Recorder::answering();
    let api = Api::new(recorder.clone()).await;
    let query = r#"{"application":"digits","inputs":[{"name":"input","shape":[1,3],
        "datatype":"FP32","data":[1,2,3]}]}"#;
    for (path, body) in [("/v2/models/digits/infer", INFER), ("/v1/queries", query)] {
        for encoding in ["gzip", "deflate"] {
            let headers = [("content-encoding", encoding.to_owned())];
            let small = compressed(encoding, body.as_bytes());
            let answer = api.send(post(path, &headers, small.clone())).await;
            assert_eq!(answer.status, 200, "{path} {encoding}");
            let tensor = &recorder.last().inputs[0].tensor;
            assert_eq!(tensor.to_vec::<f32>(), Some(vec![1.0, 2.0, 3.0]));
            let cut = small[..small.len() / 2].to_vec();
            let refused = api.send(post(path, &headers, cut)).await;
            refused.problem("invalid_request");
        }
        let unknown = [("content-encoding", "br".to_owned())];
        let refused = api.send(post(path, &unknown, vec![0x8b; 40])).await;
        refused.problem("invalid_request");
    }
}

/// A few kilobytes that stand for more than the limit.
#[tokio::test]
async fn what_a_body_holds_counts_against_its_limit() {
    let api = Api::new(Recorder::answering()).await;
    let bomb = compressed("gzip", &vec![b' '; 256 << 20]);
    assert!(bomb.len() < 1 << 20);
    let headers = [("content-encoding", "gzip".to_owned())];
    for path in ["/v2/models/digits/infer", "/v1/queries"] {
        let refused = api.send(post(path, &headers, bomb.clone())).await;
        refused.problem("too_large");
    }
}

#[tokio::test]
async fn large_answers_are_compressed_where_that_is_accepted() {
    let recorder = Recorder::new(|_| {
        let mut answer = answer();
        let tensor = Tensor::from_elements(vec![1, 1000], &[0.5f32; 1000]);
        answer.outputs[0].tensor = tensor.expect("a tensor");
        Ok(answer)
    });
    let api = Api::new(recorder).await;
    let path = "/v2/models/digits/infer";
    let plain = api.send(post(path, &[], INFER)).await;
    assert!(!plain.headers.contains_key("content-encoding"));
    for encoding in ["gzip", "deflate"] {
        let headers = [("accept-encoding", encoding.to_owned())];
        let answer = api.send(post(path, &headers, INFER)).await;
        assert_eq!(answer.headers["content-encoding"], encoding);
        let mut text = String::new();
        match encoding {
            "gzip" => GzDecoder::new(&answer.bytes[..]).read_to_string(&mut text),
            _ => ZlibDecoder::new(&answer.bytes[..]).read_to_string(&mut text),
        }
        .expect("it is what it says");
        assert!(text.len() > 4 * answer.bytes.len());
        assert_eq!(text.as_bytes(), &plain.bytes[..]);
    }
}
