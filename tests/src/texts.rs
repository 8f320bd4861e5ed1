//! Services that answer queries of texts, the largest bodies of them, and what these take.

use serde_json::json;

use crate::{Settings, TestCluster, Upload, onnx::Texts};

/// The largest body that is taken by default.
pub const BODY_BYTES: usize = 16 << 20;

/// Most memory outside of the engine that a body may take, of its size.
const MOST_TIMES: usize = 4;

/// A service with a model of texts that is loaded, which has the name of its application.
pub async fn service(set: &[&str], name: &str, model: Texts) -> TestCluster {
    let cluster = TestCluster::start(Settings {
        set: set.iter().map(ToString::to_string).collect(),
        ..Settings::default()
    });
    let api = cluster.api();
    let metric = match model {
        Texts::Echo => "exact",
        Texts::Same => "mae",
    };
    let body = json!({"name": name, "metric": metric});
    api.post("/v1/applications", &body).await.created();
    let record = |text: &str| {
        let label = match model {
            Texts::Echo => json!([text, ""]),
            Texts::Same => json!(1.0),
        };
        json!({"inputs": {"x": [text, ""]}, "label": label}).to_string()
    };
    let job = api
        .register(Upload {
            application: name,
            name,
            model: model.bytes(),
            validation: ["a", "b", "c", "d"].map(record).join("\n").into_bytes(),
            validation_name: "validation.jsonl",
        })
        .await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let query = json!({"application": name, "inputs": [
        {"name": "x", "shape": [1, 2], "datatype": "BYTES", "data": ["a", ""]},
    ]});
    api.post("/v1/queries", &query).await.json(200);
    cluster
}

/// A service whose engine holds nothing: what is seen is the rest.
pub async fn without_engine() -> TestCluster {
    let set = ["worker.devices=emulated:1", "variants.engines=emulated"];
    service(&set, "texts", Texts::Same).await
}

/// A query of `/v1/queries` of as many empty strings as a body of this size has.
pub fn empty_strings(application: &str, body_bytes: usize) -> Vec<u8> {
    let count = body_bytes / 3 - 100;
    let texts = "\"\",".repeat(count - 1);
    let body = format!(
        r#"{{"application":"{application}","inputs":[{{"name":"x","shape":[1,{count}],"datatype":"BYTES","data":[{texts}""]}}]}}"#
    );
    body.into_bytes()
}

/// Asserts that what `asks` does takes no more memory than four times a body of this size.
pub async fn within<T>(
    cluster: &TestCluster,
    body_bytes: usize,
    asks: impl Future<Output = T>,
) -> T {
    let before = cluster.resident_bytes();
    cluster.forget_peak();
    let answer = asks.await;
    let taken = cluster.peak_bytes().saturating_sub(before);
    let most = (MOST_TIMES * body_bytes) as u64;
    assert!(taken <= most, "`{taken}` bytes of `{most}`");
    answer
}
