//! Pipelines in a fleet: every front end knows them, and a step goes to another worker if its worker is lost.

use serde_json::{Value, json};
use sextant_tests::{Api, Fleet, FleetSettings, digits, until};

use crate::learn;

fn definition() -> Value {
    json!({"name": "digit", "steps": [
        {"name": "classify", "application": "digits"},
        {"name": "likely", "softmax": {}, "inputs": {"scores": "classify.scores"}},
        {"name": "digit", "top_k": {}, "inputs": {"scores": "likely.probabilities"}}
    ]})
}

/// Sends a query until it is answered.
async fn ask(api: &Api) -> Value {
    let query = json!({"application": "digit", "inputs": digits::Images::load("test").input(0)});
    until("the pipeline answers", || async {
        let answer = api.post("/v1/queries", &query).await;
        answer.status.is_success().then(|| answer.json(200))
    })
    .await
}

#[tokio::test]
async fn every_front_end_runs_it_whoever_registered_it() {
    let mut fleet = Fleet::start(FleetSettings::default());
    fleet.spawn("api-2", "api", &[]);
    learn(&fleet.api()).await;
    fleet
        .api()
        .post("/v1/pipelines", &definition())
        .await
        .json(201);
    for name in ["api", "api-2"] {
        let answer = ask(&fleet.api_of(name)).await;
        assert_eq!(
            (&answer["model"], &answer["outputs"][0]["data"][0]),
            (&json!("digit"), &json!("5"))
        );
    }
    fleet.kill("worker-1");
    ask(&fleet.api_of("api-2")).await;
    fleet.kill("dispatcher");
    fleet.launch("dispatcher");
    ask(&fleet.api()).await;
}
