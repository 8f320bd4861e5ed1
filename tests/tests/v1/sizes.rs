//! Models whose queries come in several sizes. Each query is judged by its own size. Queries of similar sizes share
//! batches if the model applies a mask.

use std::time::Duration;

use reqwest::multipart::{Form, Part};
use serde_json::{Value, json};
use sextant_tests::{Api, Settings, TestCluster, onnx::Encoder};

/// Tokens of each validation record.
const RECORD: usize = 16;

const PLACES: usize = 1024;

fn word(at: usize) -> usize {
    at * 7 % Encoder::WORDS
}

fn inputs(tokens: usize) -> Value {
    let words: Vec<usize> = (0..tokens).map(|at| word(at + tokens)).collect();
    json!([
        {"name": "tokens", "datatype": "INT64", "shape": [1, tokens], "data": words},
        {"name": "mask", "datatype": "INT64", "shape": [1, tokens], "data": vec![1; tokens]},
    ])
}

fn form(application: &str, name: &str, encoder: Encoder) -> Form {
    let record = |label: usize| {
        let words: Vec<usize> = (0..RECORD).map(|at| word(at * label + label)).collect();
        let inputs = json!({"tokens": words, "mask": vec![1; RECORD]});
        format!("{}\n", json!({"inputs": inputs, "label": label % 4}))
    };
    let records: String = (0..12).map(record).collect();
    Form::new()
        .text("name", name.to_owned())
        .text("application", application.to_owned())
        .part(
            "model",
            Part::bytes(encoder.bytes()).file_name("model.onnx"),
        )
        .part(
            "validation",
            Part::bytes(records.into_bytes()).file_name("validation.jsonl"),
        )
}

fn encoder() -> Encoder {
    Encoder {
        places: PLACES,
        heeds_mask: true,
    }
}

/// Registers and returns the job once it is over.
async fn register(api: &Api, form: Form) -> Value {
    let accepted = api.multipart("/v1/models", form).await.json(202);
    api.job_over(accepted["job"].as_str().expect("a job")).await
}

fn p50_ms(latency: &Value) -> f64 {
    let lone = latency["latency"].as_array().expect("a list");
    lone[0]["p50_ms"].as_f64().expect("a number")
}

/// The variant that runs the file as it was registered, with large batches.
fn original(variants: &[Value]) -> &str {
    let name = |variant: &Value| {
        variant["name"]
            .as_str()
            .map(|name| name.contains("ort-fp32-all-t1-b8"))
    };
    let found = variants.iter().find(|variant| name(variant) == Some(true));
    found
        .and_then(|variant| variant["name"].as_str())
        .expect("it is there")
}

#[tokio::test]
async fn each_query_is_judged_by_its_own_length_and_near_ones_share_batches() {
    let cluster = TestCluster::start(Settings::default());
    let api = cluster.api();
    api.create_application("texts").await;
    let form = form("texts", "encoder", encoder());
    let job = register(&api, form.text("mask", "mask").text("pad", "tokens=1")).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let model = api.get("/v1/models/encoder").await.json(200);
    assert_eq!(
        model["padding"],
        json!({"mask": "mask", "pad": {"tokens": 1.0}})
    );
    let answer = api.get("/v1/models/encoder/variants").await.json(200);
    let variants = answer["variants"].as_array().expect("a list");
    for variant in variants.iter().filter(|it| it["precision"] == "fp32") {
        assert_eq!(variant["dimensions"], json!([RECORD, RECORD]), "{variant}");
        assert_eq!(variant["longest"], PLACES, "{variant}");
        assert_eq!(variant["padded"], true, "{variant}");
    }
    // The target is half of the time that the fastest variant takes for the longest texts.
    let longest = |variant: &Value| {
        p50_ms(
            variant["sizes"]
                .as_array()
                .expect("a list")
                .last()
                .expect("one"),
        )
    };
    let target = variants.iter().map(longest).fold(f64::INFINITY, f64::min) / 2.0;
    let ask = |tokens: usize| json!({"application": "texts", "targets": {"latency_ms": target}, "inputs": inputs(tokens)});
    let refused = api.post("/v1/queries", &ask(PLACES)).await;
    refused.problem(422, "target_infeasible");
    sextant_tests::until("a short text is answered in time", || async {
        let answer = api.post("/v1/queries", &ask(8)).await;
        (answer.status == 200).then_some(())
    })
    .await;
    let too_long = api.post("/v1/queries", &ask(PLACES + 1)).await;
    let problem = too_long.problem(400, "invalid_tensor");
    let detail = problem["detail"].as_str().expect("a text");
    assert!(detail.contains(&format!("`{PLACES}`")), "{detail}");
    shared_batches(&api, original(variants)).await;
}

/// Sends texts of similar lengths at once until some have shared a batch, and compares each answer with that of the
/// same text alone.
async fn shared_batches(api: &Api, variant: &str) {
    let ask = async |tokens: usize| {
        let body = json!({"variant": variant, "inputs": inputs(tokens)});
        api.post("/v1/queries", &body).await.json(200)
    };
    let lengths: Vec<usize> = (0..24).map(|at| 120 + at % 9).collect();
    let mut alone = Vec::new();
    for tokens in &lengths {
        alone.push(ask(*tokens).await);
    }
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let together = lengths.iter().map(|tokens| ask(*tokens));
        let together = futures::future::join_all(together).await;
        for ((tokens, alone), answer) in lengths.iter().zip(&alone).zip(&together) {
            assert_eq!(answer["outputs"][1]["shape"], json!([1, tokens, 64]));
            close(&answer["outputs"], &alone["outputs"]);
        }
        let shared = |answer: &Value| answer["timings"]["batch_rows"].as_u64() > Some(1);
        if together.iter().any(shared) {
            return;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "no batch was shared"
        );
    }
}

fn close(outputs: &Value, expected: &Value) {
    for output in 0..2 {
        let numbers = |outputs: &Value| -> Vec<f64> {
            let data = outputs[output]["data"].as_array().expect("a list");
            data.iter().filter_map(Value::as_f64).collect()
        };
        let (have, want) = (numbers(outputs), numbers(expected));
        assert_eq!(have.len(), want.len());
        let apart = have
            .iter()
            .zip(&want)
            .map(|(have, want)| (have - want).abs());
        let most = want
            .iter()
            .fold(0.0, |most: f64, value| most.max(value.abs()));
        assert!(apart.fold(0.0, f64::max) <= 1e-3 * most, "output {output}");
    }
}

#[tokio::test]
async fn a_padding_that_does_not_suit_the_model_is_refused() {
    let cluster = TestCluster::start(Settings::default());
    let api = cluster.api();
    api.create_application("texts").await;
    let deaf = Encoder {
        heeds_mask: false,
        places: 64,
    };
    let job = register(&api, form("texts", "deaf", deaf).text("mask", "mask")).await;
    assert_eq!(job["error"]["code"], "invalid_padding", "{job}");
    let job = register(&api, form("texts", "unknown", deaf).text("mask", "masks")).await;
    assert_eq!(job["error"]["code"], "invalid_padding", "{job}");
    for (pads, mask) in [("tokens", true), ("tokens=one", true), ("tokens=1", false)] {
        let mut form = form("texts", "wrong", deaf).text("pad", pads);
        if mask {
            form = form.text("mask", "mask");
        }
        let answer = api.multipart("/v1/models", form).await;
        answer.problem(400, "invalid_padding");
    }
}
