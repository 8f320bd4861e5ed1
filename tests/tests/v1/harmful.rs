//! Queries that are hard on an engine: each has a coded answer, and nobody else notices.

use serde_json::{Value, json};
use sextant_tests::{Answer, Api, Settings, TestCluster, Upload, onnx, until};

/// A service with one variant or two of each model, whose runs may take a second.
fn service(set: &[&str]) -> TestCluster {
    let common = [
        "variants.engines=ort",
        "variants.max_threads=1",
        "variants.max_batch=4",
        "worker.cores=2",
        "worker.stuck_batch_ms=1000",
    ];
    let set = common.iter().chain(set);
    TestCluster::start(Settings {
        set: set.map(|pair| (*pair).to_owned()).collect(),
        ..Settings::default()
    })
}

/// Registers a model under an application of its own name.
async fn register(api: &Api, name: &str, model: onnx::Hostile) {
    api.create_application(name).await;
    let upload = Upload {
        application: name,
        name,
        model: model.bytes(),
        validation: onnx::Hostile::RECORDS.into(),
        validation_name: "validation.jsonl",
    };
    let job = api.register(upload).await;
    assert_eq!(job["state"], "succeeded", "{job}");
}

async fn ask(api: &Api, application: &str, largest: f64) -> Answer {
    let query = json!({"application": application, "inputs": [
        {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [largest, -1.0]},
    ]});
    api.post("/v1/queries", &query).await
}

/// The outputs of a query that harms nobody.
async fn answered(api: &Api, application: &str) -> Value {
    ask(api, application, 3.0).await.json(200)["outputs"][0]["data"].clone()
}

/// Threads that run batches.
fn executors(cluster: &TestCluster) -> usize {
    let threads = cluster.threads().into_iter();
    threads
        .filter(|(_, name)| name.starts_with("sextant-exec"))
        .count()
}

#[tokio::test]
async fn a_query_that_never_ends_is_ended_and_costs_nobody_else() {
    let cluster = service(&[]);
    let api = cluster.api();
    register(&api, "turns", onnx::Hostile::Turns).await;
    register(&api, "good", onnx::Hostile::No).await;
    assert_eq!(answered(&api, "turns").await, json!([3.0, 0.0]));
    assert_eq!(answered(&api, "good").await, json!([3.0, 0.0]));
    let before = executors(&cluster);
    for _ in 0..4 {
        let endless = ask(&api, "turns", 1e18);
        let beside = async {
            for _ in 0..5 {
                assert_eq!(answered(&api, "good").await, json!([3.0, 0.0]));
            }
        };
        let (endless, ()) = tokio::join!(endless, beside);
        endless.problem(400, "time_exceeded");
        assert_eq!(answered(&api, "turns").await, json!([3.0, 0.0]));
    }
    assert_eq!(executors(&cluster), before, "a thread was left behind");
    until("nothing computes any more", || async {
        let busy = cluster.busy_threads();
        let busy = busy.iter().any(|name| name.starts_with("sextant-exec"));
        (!busy).then_some(())
    })
    .await;
}
