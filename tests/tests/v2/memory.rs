//! Large requests over the Open Inference Protocol take a bounded multiple of their bodies.

use reqwest::Method;
use serde_json::json;
use sextant_tests::{
    oip::{InferTensorContents, ModelInferRequest, model_infer_request::InferInputTensor},
    texts::{BODY_BYTES, within, without_engine},
};

use crate::grpc::client;

/// A query of `count` strings over gRPC.
fn query(count: usize) -> ModelInferRequest {
    ModelInferRequest {
        model_name: "texts".to_owned(),
        inputs: vec![InferInputTensor {
            name: "x".to_owned(),
            datatype: "BYTES".to_owned(),
            shape: vec![1, count as i64],
            ..Default::default()
        }],
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_strings_take_four_times_their_body_beside_the_engine() {
    let cluster = without_engine().await;
    let api = cluster.api();
    let count = BODY_BYTES / 4 - 100;
    let head = json!({"inputs": [{
        "name": "x", "shape": [1, count], "datatype": "BYTES", "parameters": {"binary_data_size": 4 * count},
    }]});
    let mut body = head.to_string().into_bytes();
    let headers = [("inference-header-content-length", body.len().to_string())];
    body.resize(body.len() + 4 * count, 0);
    let path = "/v2/models/texts/infer";
    let asks = api.send_with(Method::POST, path, &headers, body);
    within(&cluster, BODY_BYTES, asks).await.json(200);

    let mut client = client(&cluster).await;
    let mut raw = query(count);
    raw.raw_input_contents = vec![vec![0; 4 * count]];
    let answer = within(&cluster, BODY_BYTES, client.model_infer(raw)).await;
    answer.expect("an answer to bytes");
    // Each string takes two bytes in this form. If the whole body had this form, the engine would need more memory than
    // a service has.
    let mut typed = query(count);
    typed.inputs[0].contents = Some(InferTensorContents {
        bytes_contents: vec![Vec::new(); count],
        ..Default::default()
    });
    let answer = within(&cluster, 2 * count, client.model_infer(typed)).await;
    answer.expect("an answer to typed fields");
}
