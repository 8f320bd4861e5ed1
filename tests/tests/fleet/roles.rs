//! Processes start, end and change places.

use super::*;
use sextant_tests::Load;

#[tokio::test]
async fn each_role_in_a_process_of_its_own_answers_queries() {
    let fleet = fleet().await;
    let api = fleet.api();
    let images = digits::Images::load("test");
    let mut right = 0;
    for index in 0..50 {
        let query = json!({"application": "digits", "inputs": images.input(index), "explain": true,
            "targets": {"latency_ms": 5000, "min_accuracy": 0.5}});
        let answer = api.post("/v1/queries", &query).await.json(200);
        assert_eq!(answer["model"], "mlp", "{answer}");
        assert!(answer["explanation"]["reason"].is_string(), "{answer}");
        assert_eq!(answer["targets_met"], true, "{answer}");
        let shown = digits::digit(&answer["outputs"][0]["data"]);
        right += usize::from(shown as i64 == images.labels[index]);
    }
    assert!(right >= 40, "{right} of 50 digits are right");
    let absent = json!({"application": "nobody", "inputs": images.input(0)});
    let answer = api.post("/v1/queries", &absent).await;
    answer.problem(404, "application_not_found");
    let impossible = json!({"application": "digits", "inputs": images.input(0),
        "targets": {"min_accuracy": 1.0}});
    let answer = api.post("/v1/queries", &impossible).await;
    let problem = answer.problem(422, "target_infeasible");
    assert!(problem["closest"][0]["variant"].is_string(), "{problem}");
    let ragged = json!({"application": "digits", "inputs":
        [{"name": "pixels", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]});
    let answer = api.post("/v1/queries", &ragged).await;
    answer.problem(400, "invalid_tensor");
}

/// The cost of `digits`, once it includes `queries` queries.
async fn digits_cost(api: &Api, queries: u64) -> f64 {
    until("the costs are shown", async || {
        let answer = api.get("/v1/costs").await;
        let body = answer.status.is_success().then(|| answer.json(200))?;
        let of = body.pointer("/applications/0")?;
        (of["queries"] == queries).then(|| of["usd"].as_f64())?
    })
    .await
}

#[tokio::test]
async fn a_front_end_tells_what_queries_cost() {
    let fleet = fleet().await;
    let api = fleet.api();
    // One query was sent until it was answered.
    let before = digits_cost(&api, 1).await;
    let images = digits::Images::load("test");
    let mut sum = 0.0;
    for index in 0..20 {
        let query = json!({"application": "digits", "inputs": images.input(index)});
        let answer = api.post("/v1/queries", &query).await.json(200);
        let usd = answer["cost_usd"].as_f64().unwrap_or(0.0);
        assert!(usd > 0.0, "{answer}");
        sum += usd;
    }
    let spent = digits_cost(&api, 21).await - before;
    assert!((spent - sum).abs() <= 1e-9 * sum, "{spent} of {sum}");
}

#[tokio::test]
async fn a_worker_that_is_asked_to_end_loses_no_query_and_another_joins_in_its_place() {
    let mut fleet = fleet().await;
    let load = Load::start(fleet.api(), 8, None).await;
    load.answers(100).await;
    fleet.stop("worker-1");
    load.answers(100).await;
    assert_eq!(workers(&fleet.api()).await, ["worker-2"]);
    fleet.spawn("worker-3", "worker", &[]);
    loaded_on(&fleet.api(), &["worker-3"]).await;
    fleet.stop("worker-2");
    load.answers(100).await;
    let tally = load.stop().await;
    assert_eq!(tally.answered, tally.sent, "{tally:?}");
    assert_eq!(workers(&fleet.api()).await, ["worker-3"]);
}

#[tokio::test]
async fn a_dispatcher_that_is_asked_to_end_hands_over_to_the_one_that_stands_by() {
    let mut fleet = fleet().await;
    fleet.spawn("standby", "dispatcher", &[]);
    let load = Load::start(fleet.api(), 8, None).await;
    load.answers(100).await;
    fleet.stop("dispatcher");
    load.answers(100).await;
    let tally = load.stop().await;
    assert_eq!(tally.answered, tally.sent, "{tally:?}");
}

#[tokio::test]
async fn front_ends_share_one_dispatcher() {
    let mut fleet = fleet().await;
    fleet.spawn("api-2", "api", &[]);
    answers(&fleet.api_of("api-2")).await;
    let loads = [
        Load::start(fleet.api(), 4, None).await,
        Load::start(fleet.api_of("api-2"), 4, None).await,
    ];
    for load in loads {
        load.answers(100).await;
        let tally = load.stop().await;
        assert_eq!(tally.answered, tally.sent, "{tally:?}");
    }
}
