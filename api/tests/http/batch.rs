//! Several queries in one request, and vectors for rows of token ids.

use serde_json::{Value, json};
use sextant_rpc::QueryError;
use sextant_types::Code;

use crate::double::{ADMIN, Api, Recorder, Settings, answer};

fn query(name: &str, value: f64) -> Value {
    json!({
        "id": name, "application": "digits",
        "inputs": [{"name": "input", "shape": [1, 3], "datatype": "FP32", "data": [value, 0, 0]}]
    })
}

/// Answers but for queries whose first number is negative.
fn picky() -> std::sync::Arc<Recorder> {
    Recorder::new(|query| {
        let values = query.inputs[0].tensor.to_vec::<f32>().expect("numbers");
        match values[0] < 0.0 {
            true => Err(QueryError::new(Code::Overloaded, "too busy for this one")),
            false => Ok(answer()),
        }
    })
}

#[tokio::test]
async fn each_query_of_a_batch_has_an_outcome_of_its_own() {
    let api = Api::new(picky()).await;
    let mut wrong = query("wrong", 1.0);
    wrong["targets"] = json!({"latency_ms": -1});
    let body =
        json!({"queries": [query("first", 1.0), query("busy", -1.0), wrong, query("last", 2.0)]});
    let answered = api
        .call("POST", "/v1/queries/batch", body.to_string())
        .await;
    assert_eq!(answered.status, 200);
    let answered = answered.json();
    assert_eq!(
        (&answered["answered"], &answered["failed"]),
        (&json!(2), &json!(2))
    );
    let outcomes = answered["outcomes"].as_array().expect("a list");
    let statuses: Vec<&Value> = outcomes.iter().map(|outcome| &outcome["status"]).collect();
    assert_eq!(statuses, [200, 429, 400, 200]);
    assert_eq!(outcomes[0]["answer"]["id"], "first");
    assert_eq!(outcomes[0]["answer"]["variant"], "mlp-ort-fp32-all-t1-b32");
    assert_eq!(outcomes[1]["problem"]["code"], "overloaded");
    assert_eq!(outcomes[2]["problem"]["code"], "invalid_target");
    assert_eq!(outcomes[3]["answer"]["id"], "last");
}

#[tokio::test]
async fn what_is_no_batch_is_refused_as_a_whole() {
    let api = Api::new(Recorder::answering()).await;
    let many: Vec<Value> = (0..257).map(|_| query("one", 1.0)).collect();
    for body in [
        json!({"queries": []}),
        json!({"queries": many}),
        json!({"queries": 5}),
        json!([query("one", 1.0)]),
        json!({}),
    ] {
        let refused = api
            .call("POST", "/v1/queries/batch", body.to_string())
            .await;
        assert_eq!(refused.status, 400);
        refused.problem("invalid_request");
    }
    let mut binary = query("binary", 1.0);
    binary["binary_outputs"] = json!(true);
    let body = json!({"queries": [binary]}).to_string();
    let outcome = api.call("POST", "/v1/queries/batch", body).await.json();
    assert_eq!(outcome["outcomes"][0]["problem"]["field"], "binary_outputs");
}

#[tokio::test]
async fn each_query_of_a_batch_counts_against_the_key() {
    let api = Api::with(Recorder::answering(), Settings::keys()).await;
    let key = json!({"name": "few", "scopes": ["query"], "quota_per_day": 2}).to_string();
    let created = api.keyed(ADMIN, "POST", "/v1/keys", key).await.json();
    let secret = created["secret"].as_str().expect("a secret");
    let body = json!({"queries": [query("a", 1.0), query("b", 1.0), query("c", 1.0)]});
    let answered = api
        .keyed(secret, "POST", "/v1/queries/batch", body.to_string())
        .await;
    let answered = answered.json();
    assert_eq!(answered["answered"], 2, "{answered}");
    assert_eq!(answered["outcomes"][2]["problem"]["code"], "rate_limited");
}

#[tokio::test]
async fn token_ids_become_vectors() {
    let recorder = Recorder::answering();
    let api = Api::new(recorder.clone()).await;
    let body = json!({"model": "digits", "input": [[1, 2, 3], [4, 5, 6]], "user": "me"});
    let answered = api.call("POST", "/v1/embeddings", body.to_string()).await;
    assert_eq!(answered.status, 200);
    let answered = answered.json();
    assert_eq!(answered["object"], "list");
    assert_eq!(answered["model"], "mlp");
    assert_eq!(
        answered["usage"],
        json!({"prompt_tokens": 6, "total_tokens": 6})
    );
    for index in 0..2 {
        let one = &answered["data"][index];
        assert_eq!(one["index"], index);
        assert_eq!(one["object"], "embedding");
        assert_eq!(one["embedding"][0], 0.25);
        assert_eq!(one["embedding"].as_array().expect("a list").len(), 3);
    }
    let last = recorder.last();
    assert_eq!(last.inputs[0].tensor.shape(), [1, 3]);
    assert_eq!(last.inputs[0].tensor.to_vec::<i64>(), Some(vec![4, 5, 6]));
}

#[tokio::test]
async fn vectors_come_of_whatever_a_query_may_name() {
    let recorder = Recorder::answering();
    let api = Api::new(recorder.clone()).await;
    for name in ["digits", "mlp", "mlp@1", "mlp-ort-fp32-all-t1-b32"] {
        let body = json!({"model": name, "input": [1, 2, 3]}).to_string();
        let answered = api.call("POST", "/v1/embeddings", body).await;
        assert_eq!(answered.status, 200, "{name}");
        assert_eq!(recorder.last().route.name(), name);
    }
    for (name, code) in [
        ("mlp@2", "model_not_found"),
        ("mlp@x", "invalid_name"),
        ("No Name", "invalid_name"),
    ] {
        let body = json!({"model": name, "input": [1, 2, 3]}).to_string();
        let refused = api.call("POST", "/v1/embeddings", body).await;
        refused.problem(code);
    }
}

#[tokio::test]
async fn vectors_come_in_base64_where_that_is_asked_for() {
    let api = Api::new(Recorder::answering()).await;
    let body = json!({"model": "mlp", "input": [1, 2, 3], "encoding_format": "base64"});
    let answered = api
        .call("POST", "/v1/embeddings", body.to_string())
        .await
        .json();
    // 0.25, -1 and 1e-9 as FP32 in little-endian order.
    assert_eq!(answered["data"][0]["embedding"], "AACAPgAAgL9fcIkw");
}

#[tokio::test]
async fn text_and_what_gives_no_vectors_are_refused() {
    let api = Api::new(Recorder::answering()).await;
    for (input, say) in [
        (json!("hello"), "token ids"),
        (json!(["hello", "world"]), "token ids"),
        (json!([]), "at least one"),
        (json!([[1], []]), "at least one"),
        (json!([1.5]), "whole numbers"),
        (json!(["hello", 1]), "whole numbers"),
        (json!({"ids": [1]}), "whole numbers"),
    ] {
        let body = json!({"model": "digits", "input": input}).to_string();
        let problem = api
            .call("POST", "/v1/embeddings", body)
            .await
            .problem("invalid_request");
        assert_eq!(problem["field"], "input", "{problem}");
        assert!(
            problem["detail"].as_str().expect("text").contains(say),
            "{problem}"
        );
    }
    let other = json!({"model": "digits", "input": [1, 2, 3], "dimensions": 7}).to_string();
    let problem = api
        .call("POST", "/v1/embeddings", other)
        .await
        .problem("invalid_request");
    assert_eq!(problem["field"], "dimensions");
    let nobody = json!({"model": "nobody", "input": [1]}).to_string();
    let refused = api.call("POST", "/v1/embeddings", nobody).await;
    refused.problem("model_not_found");
}
