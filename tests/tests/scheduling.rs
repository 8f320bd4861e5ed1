//! `[dispatcher.schedule]`: the service answers by the configured policy.

use reqwest::StatusCode;
use serde_json::{Value, json};
use sextant_tests::{Api, Settings, digits};

/// Longest that an answer may take here, ms.
const TARGET_MS: f64 = 150.0;

fn scheduled(pairs: &[&str]) -> Settings {
    let key = |pair: &&str| format!("dispatcher.schedule.{pair}");
    Settings {
        set: pairs.iter().map(key).collect(),
        ..Settings::default()
    }
}

/// Asks until an answer comes in time: a machine that is busy with other tests may start a deferred
/// batch too late, which is then refused, or finish it late.
async fn answered(api: &Api, query: &Value) -> Value {
    for _ in 0..50 {
        let answer = api.post("/v1/queries", query).await;
        if answer.status != StatusCode::OK {
            continue;
        }
        let answer = answer.json(200);
        if answer["targets_met"] == true {
            return answer;
        }
    }
    panic!("no query was answered in time");
}

fn queue_ms(answer: &Value) -> f64 {
    let micros = answer.pointer("/timings/queue_us").and_then(Value::as_f64);
    micros.unwrap_or_else(|| panic!("no queue time in {answer}")) / 1e3
}

fn lone_query() -> Value {
    json!({
        "application": "digits", "targets": {"latency_ms": TARGET_MS},
        "inputs": digits::Images::load("test").input(0)
    })
}

/// A policy that spends slack on fuller batches lets even a lone query on an idle service wait.
#[tokio::test]
async fn a_deferring_policy_uses_the_slack_of_a_lone_query() {
    let cluster = digits::service(scheduled(&["policy=symphony"])).await;
    let api = cluster.api();
    digits::warm(&api).await;
    let answer = answered(&api, &lone_query()).await;
    assert!(queue_ms(&answer) > TARGET_MS / 3.0, "{answer}");
}
