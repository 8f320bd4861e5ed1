//! Feedback on answers over the Open Inference Protocol.

use serde_json::json;
use sextant_tests::{
    Settings, digits,
    oip::{
        ModelInferRequest, infer_parameter::ParameterChoice, model_infer_request::InferInputTensor,
    },
    until,
};

#[tokio::test]
async fn answers_of_the_protocol_have_tokens_where_feedback_is_taken() {
    let cluster = digits::service(Settings::default()).await;
    let api = cluster.api();
    digits::warm(&api).await;
    let images = digits::Images::load("test");
    let infer = || async {
        let body = json!({"inputs": images.input(0)});
        let answer = api.post("/v2/models/digits/infer", &body).await.json(200);
        answer["parameters"]["feedback_token"].clone()
    };
    assert!(infer().await.is_null(), "no application takes feedback");
    let taking = json!({"feedback": {}});
    let changed = api.patch("/v1/applications/digits", &taking).await;
    changed.json(200);
    let token = until("answers have tokens", || async {
        let token = infer().await;
        token.is_string().then_some(token)
    })
    .await;
    let mut client = super::grpc::client(&cluster).await;
    let pixels = images.pixels(0).iter().flat_map(|it| it.to_le_bytes());
    let asked = ModelInferRequest {
        model_name: "digits".to_owned(),
        inputs: vec![InferInputTensor {
            name: "pixels".to_owned(),
            datatype: "FP32".to_owned(),
            shape: vec![1, digits::PIXELS as i64],
            ..Default::default()
        }],
        raw_input_contents: vec![pixels.collect()],
        ..Default::default()
    };
    let reply = client.model_infer(asked).await.expect("an answer");
    let reply = reply.into_inner();
    let of_grpc = reply.parameters["feedback_token"].parameter_choice.clone();
    let Some(ParameterChoice::StringParam(of_grpc)) = of_grpc else {
        panic!("a text, not {of_grpc:?}");
    };
    for token in [token, json!(of_grpc)] {
        let item = json!({"token": token, "label": images.labels[0]});
        let taken = api.post("/v1/feedback", &item).await.json(200);
        assert_eq!(
            (&taken["accepted"], &taken["unscored"]),
            (&json!(1), &json!(0)),
            "{taken}"
        );
    }
}
