//! `/v1/storage`: who may look and sweep, and what a sweep does to an upload under way.

use axum::{body::Body, http::Request};
use futures::{SinkExt, channel::mpsc};

use crate::double::{Api, Recorder, Settings};

const BOUNDARY: &str = "----------------sextant";

fn field(name: &str, content: &str) -> String {
    let file = match name {
        "model" | "validation" => "; filename=\"file\"",
        _ => "",
    };
    format!(
        "--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"{name}\"{file}\r\n\r\n{content}\r\n"
    )
}

#[tokio::test]
async fn only_administrators_see_and_sweep() {
    let api = Api::with(Recorder::answering(), Settings::keys()).await;
    for (method, path) in [("GET", "/v1/storage"), ("POST", "/v1/storage/sweep")] {
        assert_eq!(api.call(method, path, "").await.status, 401);
    }
}

#[tokio::test]
async fn a_sweep_says_what_it_gave_back_and_stands_in_the_record() {
    let api = Api::new(Recorder::answering()).await;
    let stored = api.objects.put_blob("of nobody".into()).await;
    stored.expect("stored");
    api.call("PUT", "/v1/artefacts/mine", "12345").await;
    let usage = api.get("/v1/storage").await.json();
    assert_eq!(
        (usage["objects"].as_u64(), usage["bytes"].as_u64()),
        (Some(2), Some(14))
    );
    let young = api.call("POST", "/v1/storage/sweep", "").await.json();
    assert_eq!(young["bytes"], 0);
    let freed = api
        .call("POST", "/v1/storage/sweep", r#"{"grace_s": 0}"#)
        .await
        .json();
    assert_eq!(
        (&freed["bytes"], &freed["blobs"]["objects"]),
        (&9.into(), &1.into())
    );
    let audit = api.get("/v1/audit?action=storage.sweep").await.json();
    assert_eq!(
        audit["entries"].as_array().map(Vec::len),
        Some(2),
        "{audit}"
    );
    let refused = api
        .call("POST", "/v1/storage/sweep", r#"{"grace": 0}"#)
        .await;
    refused.problem("invalid_request");
}

#[tokio::test]
async fn an_upload_that_was_slower_than_a_sweep_is_to_be_sent_again() {
    let api = Api::new(Recorder::answering()).await;
    let application = r#"{"name":"slow","metric":"top1"}"#;
    api.call("POST", "/v1/applications", application).await;
    let (mut sender, body) = mpsc::channel::<Result<String, std::io::Error>>(1);
    let request = Request::post("/v1/models")
        .header(
            "content-type",
            format!("multipart/form-data; boundary={BOUNDARY}"),
        )
        .body(Body::from_stream(body))
        .expect("a request");
    let upload = api.send(request);
    let sweeps = async {
        let first = field("name", "m") + &field("application", "slow") + &field("model", "onnx");
        // The next field begins: the file is whole.
        let begun = format!("--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"validation\"");
        sender.send(Ok(first + &begun)).await.expect("taken");
        let digest = sextant_objects::digest_of(b"onnx");
        while !api.objects.has_blob(&digest).await.expect("an answer") {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let swept = api
            .call("POST", "/v1/storage/sweep", r#"{"grace_s": 0}"#)
            .await;
        assert_eq!(swept.json()["blobs"]["objects"], 1);
        let rest = format!("; filename=\"file\"\r\n\r\nvalidation\r\n--{BOUNDARY}--\r\n");
        sender.send(Ok(rest)).await.expect("taken");
        drop(sender);
    };
    let (refused, ()) = tokio::join!(upload, sweeps);
    let problem = refused.problem("unavailable");
    let detail = problem["detail"].as_str().expect("a text");
    assert!(detail.contains("send the model again"), "{detail}");
    let model = api.get("/v1/models/m").await.json();
    assert_eq!(
        model["status"], "failed",
        "the name may be registered again"
    );
    let whole = field("name", "m")
        + &field("application", "slow")
        + &field("model", "onnx")
        + &field("validation", "validation")
        + &format!("--{BOUNDARY}--\r\n");
    let request = Request::post("/v1/models")
        .header(
            "content-type",
            format!("multipart/form-data; boundary={BOUNDARY}"),
        )
        .body(Body::from(whole));
    let accepted = api.send(request.expect("a request")).await;
    assert_eq!(accepted.status, 202);
}
