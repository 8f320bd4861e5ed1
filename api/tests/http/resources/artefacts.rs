//! Artefacts over real stores, and models that are registered from them.

use http_body_util::BodyExt;
use sextant_types::Digest;

use super::*;

const FROM_ARTEFACTS: &str = "/v1/registrations";

/// Flips one bit of a stored blob.
fn damage(api: &Api, digest: &Digest, at: usize) {
    let name = digest.to_string();
    let file = api.folder().join("objects/blobs").join(&name[..2]);
    let file = file.join(&name);
    let mut bytes = std::fs::read(&file).expect("a blob");
    bytes[at] ^= 1;
    std::fs::write(file, bytes).expect("written");
}

#[tokio::test]
async fn a_damaged_model_is_not_handed_out() {
    let api = with_digits().await;
    // One that is read at once, and one that is sent in pieces.
    let small = api.objects.put_blob(vec![7; 1000].into()).await;
    let small = small.expect("stored");
    api.put_model_of(small).await;
    let path = "/v1/models/mlp/file";
    assert_eq!(api.get(path).await.bytes, vec![7; 1000]);
    damage(&api, &small, 500);
    let refused = api.get(path).await;
    assert_eq!(refused.status, 500);
    refused.problem("internal");
    let api = with_digits().await;
    let content = vec![7; 3 << 20];
    let large = api.objects.put_blob(content.clone().into()).await;
    let large = large.expect("stored");
    api.put_model_of(large).await;
    assert_eq!(api.get(path).await.bytes, content);
    damage(&api, &large, 5);
    let request = Request::get(path).body(Body::empty()).expect("a request");
    let answer = api.open(request).await.into_body();
    let whole = axum::body::to_bytes(answer, usize::MAX).await;
    assert!(whole.is_err(), "its end is an error");
}

#[tokio::test]
async fn a_file_that_is_written_over_is_not_sent_to_its_end() {
    let api = with_digits().await;
    let path = "/v1/artefacts/out/answers.npy";
    let stored = api.call("PUT", path, vec![1u8; 3 << 20]).await;
    assert_eq!(stored.status, 201);
    let request = Request::get(path).body(Body::empty()).expect("a request");
    let mut answer = api.open(request).await.into_body();
    let first = answer.frame().await.expect("a piece").expect("a piece");
    assert_eq!(first.data_ref().map(|piece| piece[0]), Some(1));
    let other = vec![2u8; 4 << 20];
    api.call("PUT", path, other.clone()).await;
    let rest = axum::body::to_bytes(answer, usize::MAX).await;
    assert!(rest.is_err(), "it is of two files");
    assert_eq!(api.get(path).await.bytes, other);
}

#[tokio::test]
async fn a_model_is_registered_from_the_artefact_store() {
    let api = with_digits().await;
    api.call("PUT", "/v1/artefacts/in/mlp.onnx", "onnx").await;
    let body = |path: &str| {
        json!({"name": "mlp", "application": "digits", "model_path": path,
            "validation_path": "in/labels.npz"})
        .to_string()
    };
    let missing = api.call("POST", FROM_ARTEFACTS, body("in/mlp.onnx")).await;
    missing.problem("artefact_not_found");
    api.call("PUT", "/v1/artefacts/in/labels.npz", "labels")
        .await;
    api.call("POST", FROM_ARTEFACTS, body("../mlp.onnx"))
        .await
        .problem("invalid_path");
    assert_eq!(
        api.call("POST", FROM_ARTEFACTS, body("in/mlp.onnx"))
            .await
            .status,
        202
    );
    // The same content by another way is the same model.
    assert_eq!(upload(&api, "mlp", b"onnx").await.status, 202);
}

#[tokio::test]
async fn artefacts_are_stored_and_read_in_ranges() {
    let api = Api::new(Recorder::answering()).await;
    let stored = api
        .call("PUT", "/v1/artefacts/jobs/in%20put.jsonl", "0123456789")
        .await;
    assert_eq!(stored.status, 201);
    let json = stored.json();
    assert_eq!(
        (&json["path"], &json["size_bytes"]),
        (&json!("jobs/in put.jsonl"), &json!(10))
    );
    let read = api.get("/v1/artefacts/jobs/in%20put.jsonl").await;
    assert_eq!(
        (read.status.as_u16(), read.bytes.as_slice()),
        (200, b"0123456789".as_slice())
    );
    let head = api
        .call("HEAD", "/v1/artefacts/jobs/in%20put.jsonl", "")
        .await;
    assert_eq!(
        (
            head.headers["content-length"].to_str().ok(),
            head.bytes.len()
        ),
        (Some("10"), 0)
    );
    for (range, status, wanted) in [
        ("bytes=2-4", 206, "234"),
        ("bytes=7-", 206, "789"),
        ("bytes=-2", 206, "89"),
        ("bytes=8-99", 206, "89"),
        ("bytes=4-2", 200, "0123456789"),
        ("lines=1-2", 200, "0123456789"),
    ] {
        let request = Request::builder()
            .uri("/v1/artefacts/jobs/in%20put.jsonl")
            .header("range", range)
            .body(Body::empty());
        let reading = api.send(request.expect("a request")).await;
        assert_eq!(reading.status, status, "{range}");
        assert_eq!(reading.bytes, wanted.as_bytes(), "{range}");
    }
    for range in ["bytes=10-", "bytes=10-12", "bytes=-0"] {
        let request = Request::builder()
            .uri("/v1/artefacts/jobs/in%20put.jsonl")
            .header("range", range)
            .body(Body::empty());
        let refused = api.send(request.expect("a request")).await;
        assert_eq!(refused.status, 416, "{range}");
        refused.problem("range_not_satisfiable");
    }
    let list = api.get("/v1/artefacts?prefix=jobs/").await.json();
    assert_eq!(list["artefacts"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        api.get("/v1/artefacts?prefix=x").await.json(),
        json!({"artefacts": []})
    );
    assert_eq!(
        api.call("DELETE", "/v1/artefacts/jobs/in%20put.jsonl", "")
            .await
            .status,
        204
    );
    let gone = api
        .call("DELETE", "/v1/artefacts/jobs/in%20put.jsonl", "")
        .await;
    gone.problem("artefact_not_found");
    for path in ["a/%2e%2e/b", "a//b", "%2fetc/passwd", "a%00b"] {
        let reading = api.call("PUT", &format!("/v1/artefacts/{path}"), "x").await;
        assert_eq!(reading.json()["code"], "invalid_path", "{path}");
    }
}

#[tokio::test]
async fn a_large_artefact_comes_back_whole() {
    let api = Api::new(Recorder::answering()).await;
    let bytes: Vec<u8> = (0..3_000_001u32).map(|index| (index % 251) as u8).collect();
    api.call("PUT", "/v1/artefacts/large", bytes.clone()).await;
    assert!(api.get("/v1/artefacts/large").await.bytes == bytes);
}
