//! Common steps and waits of the tests of fleets.

use serde_json::{Value, json};

use crate::{Api, digits, until};

/// Registers one model and waits until it answers.
pub async fn learn(api: &Api) {
    api.create_application("digits").await;
    let job = api.register(digits::upload("digits", "mlp", "mlp")).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    answers(api).await;
}

/// Waits until a query is answered.
pub async fn answers(api: &Api) -> Value {
    let query = json!({"application": "digits", "inputs": digits::Images::load("test").input(0)});
    until("a query is answered", || async {
        let answer = api.post("/v1/queries", &query).await;
        answer.status.is_success().then(|| answer.json(200))
    })
    .await
}

/// Whether an instance answers queries. On a busy machine it may be overloaded or interfered at any time.
pub fn is_serving(instance: &Value) -> bool {
    ["active", "overloaded", "interfered"].contains(&instance["state"].as_str().unwrap_or(""))
}

/// Waits until each of the workers has a serving instance.
pub async fn loaded_on(api: &Api, workers: &[&str]) {
    until("every worker has an instance", || async {
        let instances = api.get("/v1/instances").await.json(200);
        let has_one = |worker: &str| {
            let mut instances = instances["instances"].as_array().into_iter().flatten();
            instances.any(|it| it["worker"] == worker && is_serving(it))
        };
        workers.iter().all(|worker| has_one(worker)).then_some(())
    })
    .await;
}

/// The workers that hold a lease.
pub async fn workers(api: &Api) -> Vec<String> {
    let workers = api.get("/v1/workers").await.json(200);
    let workers = workers["workers"].as_array().into_iter().flatten();
    let names = workers.filter_map(|worker| worker["name"].as_str().map(str::to_owned));
    names.collect()
}
