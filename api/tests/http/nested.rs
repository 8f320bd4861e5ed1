//! Pipelines over HTTP that are steps of others.

use serde_json::{Value, json};
use sextant_types::Tensor;

use crate::double::{Api, Reading, Recorder, answer};

/// Three numbers in, three out, by the application `digits`.
fn inner(application: &str) -> Value {
    json!({"name": "inner", "steps": [
        {"name": "classify", "application": application},
    ]})
}

fn outer() -> Value {
    json!({"name": "outer", "steps": [
        {"name": "within", "application": "inner"},
        {"name": "best", "top_k": {"labels": ["red", "green", "blue"]},
            "inputs": {"scores": "within.probabilities"}},
    ], "outputs": {"label": "best.labels"}})
}

async fn send(api: &Api, definition: &Value) -> Reading {
    let name = definition["name"].as_str().expect("a name");
    let path = format!("/v1/pipelines/{name}");
    api.call("PUT", &path, definition.to_string()).await
}

async fn with_both() -> Api {
    let echoing = Recorder::new(|query| {
        let mut echo = answer();
        let values = query.inputs[0].tensor.to_vec::<f32>().expect("floats");
        echo.outputs[0].tensor =
            Tensor::from_elements(vec![values.len() / 3, 3], &values).expect("a tensor");
        Ok(echo)
    });
    let api = Api::new(echoing).await;
    for definition in [inner("digits"), outer()] {
        let made = send(&api, &definition).await;
        assert_eq!(made.status, 201, "{}", made.json());
    }
    api
}

async fn ask(api: &Api, target: &str) -> Reading {
    let query = json!({"application": target, "explain": true, "inputs": [
        {"name": "input", "datatype": "FP32", "shape": [1, 3], "data": [0.1, 0.7, 0.2]}]});
    api.call("POST", "/v1/queries", query.to_string()).await
}

#[tokio::test]
async fn a_step_may_be_a_pipeline_whose_steps_are_told_of_as_well() {
    let api = with_both().await;
    let answered = ask(&api, "outer").await.json();
    assert_eq!(
        answered["outputs"][0]["data"],
        json!(["green"]),
        "{answered}"
    );
    let steps = answered["explanation"]["steps"].as_array().expect("steps");
    let names: Vec<&str> = steps
        .iter()
        .filter_map(|step| step["name"].as_str())
        .collect();
    assert_eq!(names, ["within", "best", "within.classify"]);
    assert_eq!(steps[0]["variant"], "inner-v1", "{answered}");
    // Another version of the inner one is asked from now on.
    let renamed = json!({"description": "of colours"});
    let changed = api
        .call("PATCH", "/v1/pipelines/inner", renamed.to_string())
        .await;
    assert_eq!(changed.status, 200, "{}", changed.json());
    let answered = ask(&api, "outer").await.json();
    let steps = answered["explanation"]["steps"].as_array().expect("steps");
    assert_eq!(steps[0]["variant"], "inner-v2", "{answered}");
    assert_eq!(answered["variant"], "outer-v1", "{answered}");
}

#[tokio::test]
async fn pipelines_that_would_ask_themselves_are_refused_with_their_names() {
    let api = with_both().await;
    let own = json!({"name": "own", "steps": [{"name": "again", "application": "own"}]});
    let detail = send(&api, &own).await.problem("invalid_pipeline")["detail"].clone();
    let detail = detail.as_str().expect("a detail");
    assert!(
        detail.contains("step `again`") && detail.contains("`own` asks `own`"),
        "{detail}"
    );
    let steps = json!({"steps": [{"name": "classify", "application": "outer"}]});
    let changed = api
        .call("PATCH", "/v1/pipelines/inner", steps.to_string())
        .await;
    let replaced = send(&api, &inner("outer")).await;
    for refused in [changed, replaced] {
        let refused = refused.problem("invalid_pipeline");
        let detail = refused["detail"].as_str().expect("a detail");
        assert!(
            detail.contains("step `classify`")
                && detail.contains("`inner` asks `outer` asks `inner`"),
            "{detail}"
        );
    }
    assert_eq!(
        ask(&api, "outer").await.status,
        200,
        "both are as they were"
    );
}

#[tokio::test]
async fn a_pipeline_whose_step_has_gone_says_so() {
    let api = with_both().await;
    let gone = api.call("DELETE", "/v1/pipelines/inner", "").await;
    assert_eq!(gone.status, 204);
    let refused = ask(&api, "outer").await.problem("unavailable");
    let detail = refused["detail"].as_str().expect("a detail");
    assert!(detail.contains("step `within`"), "{detail}");
}
