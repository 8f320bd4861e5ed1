//! A fleet over real stores, and what happens to its queries when parts of it die.

mod by_hand;
mod chart;
mod engines;
mod faults;
mod isolation;
mod jobs;
mod leaving;
mod machine;
mod network;
mod pipelines;
mod roles;
mod scaling;
mod security;
mod starting;
mod stores;
mod upgrade;
mod versions;

use std::time::Duration;

use serde_json::{Value, json};
use sextant_tests::{Api, Fleet, FleetSettings, Tally, digits, until};

/// A fleet that has learnt one model of the example, on every worker.
async fn fleet() -> Fleet {
    let fleet = Fleet::start(FleetSettings::default());
    learn(&fleet.api()).await;
    loaded_on(&fleet.api(), &["worker-1", "worker-2"]).await;
    fleet
}

/// Registers one model and waits until it answers.
async fn learn(api: &Api) {
    api.create_application("digits").await;
    let job = api.register(digits::upload("digits", "mlp", "mlp")).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    answers(api).await;
}

/// Waits until a query is answered.
async fn answers(api: &Api) -> Value {
    let query = json!({"application": "digits", "inputs": digits::Images::load("test").input(0)});
    until("a query is answered", || async {
        let answer = api.post("/v1/queries", &query).await;
        answer.status.is_success().then(|| answer.json(200))
    })
    .await
}

/// Waits until each of the workers has an active instance.
async fn loaded_on(api: &Api, workers: &[&str]) {
    until("every worker has an instance", || async {
        let instances = api.get("/v1/instances").await.json(200);
        let active = |worker: &str| {
            let instances = instances["instances"].as_array().into_iter().flatten();
            instances
                .filter(|it| it["worker"] == worker && it["state"] == "active")
                .count()
                > 0
        };
        workers.iter().all(|worker| active(worker)).then_some(())
    })
    .await;
}

/// The workers that hold a lease.
async fn workers(api: &Api) -> Vec<String> {
    let workers = api.get("/v1/workers").await.json(200);
    let workers = workers["workers"].as_array().into_iter().flatten();
    let names = workers.filter_map(|worker| worker["name"].as_str().map(str::to_owned));
    names.collect()
}

/// Refusals that a fault explains: the service says that it cannot now, or not in time.
fn explained(tally: &Tally) {
    for code in tally.refused.keys() {
        let may = ["unavailable", "deadline_exceeded", "overloaded", "warming"];
        assert!(
            may.contains(&code.as_str()),
            "refused as `{code}`: {tally:?}"
        );
    }
}

/// Nobody waits for longer than the service promises while parts of it are lost.
const LONGEST: Duration = Duration::from_secs(30);
