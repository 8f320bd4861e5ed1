//! Models that exceed a device's memory together: each is registered while others are loaded, and each answers.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use serde_json::{Value, json};
use sextant_tests::{
    Api, Settings, TestCluster, Upload,
    digits::{self, Images},
    onnx::Model,
    until,
};

/// Applications with one model each.
const MODELS: usize = 8;

/// One emulated device that has room for three of the models.
const SETTINGS: [&str; 6] = [
    "worker.devices=emulated:1",
    "worker.emulated.measured=true",
    "worker.emulated.pages=3",
    "worker.emulated.page_bytes=4096",
    "variants.engines=emulated",
    "variants.max_batch=2",
];

fn name(number: usize) -> String {
    format!("app-{number}")
}

async fn register(api: &Api, number: usize) -> Value {
    let name = name(number);
    api.create_application(&name).await;
    let model = Model {
        metadata: vec![
            ("sextant.alpha_ms", "0.1".to_owned()),
            ("number", number.to_string()),
        ],
        ..Model::default()
    };
    api.register(Upload {
        application: &name,
        name: &name,
        model: model.bytes(),
        validation: digits::bytes("validation.npz"),
        validation_name: "validation.npz",
    })
    .await
}

fn question(number: usize, input: &Value) -> Value {
    json!({"application": name(number), "inputs": input, "targets": {"latency_ms": 10_000.0}})
}

/// Whether a query is answered; a refusal says when to try again.
async fn is_answered(api: &Api, query: &Value) -> bool {
    let answer = api.post("/v1/queries", query).await;
    if answer.status == 200 {
        return true;
    }
    answer.problem(503, "unavailable");
    false
}

async fn answers(api: &Api, query: &Value) {
    until("the model answers", || async {
        is_answered(api, query).await.then_some(())
    })
    .await;
}

#[tokio::test]
async fn models_beyond_the_memory_of_a_device_are_registered_and_answer() {
    let cluster = TestCluster::start(Settings {
        set: SETTINGS.map(str::to_owned).to_vec(),
        ..Settings::default()
    });
    let api = cluster.api();
    let input = Images::load("test").input(0);
    let first = register(&api, 0).await;
    assert_eq!(first["state"], "succeeded", "{first}");
    // Meanwhile a client sends queries to the first model all the time.
    let ends = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicUsize::new(0));
    let (stop, count, asking) = (Arc::clone(&ends), Arc::clone(&answered), cluster.api());
    let query = question(0, &input);
    let asker = tokio::spawn(async move {
        while !stop.load(Ordering::Relaxed) {
            if is_answered(&asking, &query).await {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    for number in 1..MODELS {
        let job = register(&api, number).await;
        assert_eq!(job["state"], "succeeded", "{job}");
        answers(&api, &question(number, &input)).await;
    }
    ends.store(true, Ordering::Relaxed);
    asker.await.expect("each query is answered");
    assert!(answered.load(Ordering::Relaxed) > 0);
    for number in (0..MODELS).chain((0..MODELS).rev()) {
        answers(&api, &question(number, &input)).await;
    }
}

#[tokio::test]
async fn a_model_that_is_larger_than_the_device_is_refused_with_advice() {
    let set = SETTINGS.map(|setting| setting.replace("page_bytes=4096", "page_bytes=512"));
    let cluster = TestCluster::start(Settings {
        set: set.to_vec(),
        ..Settings::default()
    });
    let job = register(&cluster.api(), 0).await;
    assert_eq!(job["state"], "failed", "{job}");
    assert_eq!(job["error"]["code"], "memory_exceeded", "{job}");
    let text = job.to_string();
    for part in ["`5` pages", "`3` in all", "smaller model"] {
        assert!(text.contains(part), "{text}");
    }
}
