//! `/v1/workers`: a worker for each device of the process, and its statistics.

use serde_json::{Value, json};
use sextant_tests::{Api, TestCluster, digits};

/// A service with the CPU and two emulated devices.
async fn emulated() -> TestCluster {
    let set = [
        "worker.devices=cpu,emulated:2",
        "variants.engines=emulated",
        "variants.max_batch=4",
    ];
    digits::with_mlp(&set).await
}

/// The number of batches that a worker ran.
async fn ran(api: &Api, worker: &str) -> u64 {
    let stats = api.get(&format!("/v1/workers/{worker}/stats")).await;
    let stats = stats.json(200);
    let count = stats.pointer("/actions/infer/succeeded");
    count.and_then(Value::as_u64).unwrap_or(0)
}

#[tokio::test]
async fn every_device_has_a_worker_that_tells_what_it_did() {
    let cluster = emulated().await;
    let api = cluster.api();
    let workers = api.get("/v1/workers").await.json(200);
    let workers = workers["workers"].as_array().expect("a list");
    let names: Vec<&Value> = workers.iter().map(|worker| &worker["name"]).collect();
    assert_eq!(names, ["local", "local-emulated-0", "local-emulated-1"]);
    let query = json!({
        "variant": "mlp-emulated-fp32-all-t1-b4", "inputs": digits::Images::load("test").input(0)
    });
    for _ in 0..8 {
        api.post("/v1/queries", &query).await.json(200);
    }
    // The CPU's worker has no engine, so the batches ran on the devices.
    assert_eq!(ran(&api, "local").await, 0);
    let on_devices = ran(&api, "local-emulated-0").await + ran(&api, "local-emulated-1").await;
    assert!(on_devices >= 8, "{on_devices} batches");
    let stats = api
        .get("/v1/workers/local-emulated-0/stats")
        .await
        .json(200);
    assert_eq!(stats["device"], "emulated:0");
    assert_eq!(stats["engines"], json!(["emulated"]));
    assert_eq!(stats["pages"]["total"], 1376);
    let shown = cluster.client(&["worker", "stats", "local-emulated-0"]);
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(
        text.contains("emulated:0") && text.contains("infer"),
        "{text}"
    );
}

#[tokio::test]
async fn an_unknown_worker_is_not_found() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let answer = api.get("/v1/workers/nobody/stats").await;
    answer.problem(404, "worker_not_found");
    let stats = api.get("/v1/workers/local/stats").await.json(200);
    assert_eq!(stats["device"], "cpu");
}
