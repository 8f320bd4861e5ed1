use std::sync::Arc;

use serde_json::json;
use sextant_registry::ScoredOutput;
use sextant_rpc::{Candidate, Explanation, QueryError};
use sextant_types::{Code, NamedTensor, Route, Tensor};

use crate::{
    double::{Api, Recorder, answer},
    feedback::end_registration,
};

const QUERY: &str = r#"{"application":"digits","targets":{"latency_ms":20,"min_accuracy":0.95},
    "inputs":[{"name":"input","shape":[1,3],"datatype":"FP32","data":[[0.1,2,-3e2]]}]}"#;

#[tokio::test]
async fn a_query_arrives_as_it_was_sent() {
    let recorder = Recorder::answering();
    let reading = Api::new(recorder.clone())
        .await
        .call("POST", "/v1/queries", QUERY)
        .await;
    assert_eq!(reading.status, 200);
    let query = recorder.last();
    assert_eq!(
        query.route,
        Route::Application("digits".parse().expect("a name"))
    );
    assert_eq!(query.targets.latency_ms, Some(20.0));
    assert_eq!(query.targets.min_quality, Some(0.95));
    assert!(!query.best_effort && !query.explain);
    assert_eq!(query.inputs[0].name, "input");
    assert_eq!(query.inputs[0].tensor.shape(), [1, 3]);
    assert_eq!(
        query.inputs[0].tensor.to_vec::<f32>(),
        Some(vec![0.1, 2.0, -300.0])
    );
}

/// A pipeline that is a variant of the application is no model of the registry.
#[tokio::test]
async fn classes_are_those_of_the_application_where_a_pipeline_answers() {
    let cascade = Recorder::new(|_| {
        let mut answer = answer();
        answer.model = "cascade".parse().expect("a name");
        let features = Tensor::from_elements(vec![1, 2], &[9f32, 1.0]).expect("a tensor");
        let features = NamedTensor::new("features", features);
        answer.outputs.insert(0, features);
        Ok(answer)
    });
    let api = Api::new(cascade).await;
    let digits = json!({"name": "digits", "metric": "top1"}).to_string();
    api.call("POST", "/v1/applications", digits).await;
    api.put_model().await;
    end_registration(&api).await;
    let scored = ScoredOutput {
        output: "probabilities".to_owned(),
        classes: ["zero", "one", "two"].map(str::to_owned).to_vec(),
    };
    let mlp = "mlp".parse().expect("a name");
    let noted = api.registry.set_scored(&mlp, &scored).await;
    noted.expect("a model");
    let query = json!({"application": "digits", "classification": 1, "inputs": [
        {"name": "input", "datatype": "FP32", "shape": [1, 3], "data": [0.1, 2.0, -3.0]}]});
    let answered = api.call("POST", "/v1/queries", query.to_string()).await;
    assert_eq!(
        answered.json()["classification"],
        json!([[{"class": 0, "name": "zero", "score": 0.25}]])
    );
}

/// A model that takes three rows at a time and answers with its input.
fn three_rows_at_a_time() -> Arc<Recorder> {
    Recorder::new(|query| {
        let tensor = &query.inputs[0].tensor;
        let rows = u32::try_from(tensor.rows()).expect("few");
        if rows > 3 {
            return Err(QueryError::too_many_rows(rows, 3, "what was registered"));
        }
        let mut answer = answer();
        answer.outputs = vec![NamedTensor::new("probabilities", tensor.clone())];
        answer.rows = rows;
        answer.timings.batch_rows = rows;
        answer.targets_met = tensor.to_vec::<f32>().is_some_and(|it| it[0] != 6.0);
        Ok(answer)
    })
}

/// What was answered can be sent back: nothing is lost on the way.
#[tokio::test]
async fn missing_values_and_infinities_go_in_and_come_out() {
    let recorder = three_rows_at_a_time();
    let api = Api::new(recorder.clone()).await;
    let data = json!([[null, "Infinity"], ["-Infinity", 1.5]]);
    let tensor = json!({"name": "x", "shape": [2, 2], "datatype": "FP32", "data": data});
    let body = json!({"application": "digits", "inputs": [tensor]}).to_string();
    let reading = api.call("POST", "/v1/queries", body).await;
    assert_eq!(reading.status, 200);
    let asked = recorder.last().inputs[0].tensor.to_vec::<f32>();
    let asked = asked.expect("floats");
    assert!(asked[0].is_nan() && asked[1..] == [f32::INFINITY, f32::NEG_INFINITY, 1.5]);
    let answered = &reading.json()["outputs"][0]["data"];
    assert_eq!(*answered, json!([null, "Infinity", "-Infinity", 1.5]));
}

#[tokio::test]
async fn a_query_of_more_rows_than_a_batch_holds_is_answered_in_parts() {
    for (rows, parts, met) in [(3, 1, true), (4, 2, true), (7, 3, false), (9, 3, false)] {
        let recorder = three_rows_at_a_time();
        let api = Api::new(recorder.clone()).await;
        let data: Vec<u32> = (0..rows).collect();
        let tensor = json!({"name": "x", "shape": [rows, 1], "datatype": "FP32", "data": data});
        let body = json!({"application": "digits", "inputs": [tensor]}).to_string();
        let reading = api.call("POST", "/v1/queries", body).await;
        assert_eq!(reading.status, 200, "{rows} rows");
        let answer = reading.json();
        let output = &answer["outputs"][0];
        assert_eq!(output["shape"], json!([rows, 1]));
        let found: Vec<f64> = serde_json::from_value(output["data"].clone()).expect("numbers");
        let wanted: Vec<f64> = data.iter().map(|it| f64::from(*it)).collect();
        assert_eq!(found, wanted);
        assert_eq!(answer["targets_met"], met, "{rows} rows");
        let cost = answer["cost_usd"].as_f64().expect("a number");
        assert!(
            (cost / (2.5e-7 * f64::from(parts)) - 1.0).abs() < 1e-9,
            "{cost}"
        );
        // All parts are answered by the variant that answered the first.
        let asked = recorder.last().route;
        let first = Route::Application("digits".parse().expect("a name"));
        assert_eq!(asked == first, parts == 1, "{asked:?}");
    }
}

#[tokio::test]
async fn the_answer_as_json() {
    let api = Api::new(Recorder::answering()).await;
    let reading = api.call("POST", "/v1/queries", QUERY).await;
    assert_eq!(reading.headers["content-type"], "application/json");
    let wanted = r#"{"model":"mlp","variant":"mlp-ort-fp32-all-t1-b32","outputs":[{"name":"probabilities","shape":[1,3],"datatype":"FP32","data":[0.25,-1.0,1e-9]}],"targets_met":true,"cost_usd":2.5e-7,"timings":{"queue_us":12.3,"compute_us":100.0,"total_us":130.0,"batch_rows":4}}"#;
    assert_eq!(String::from_utf8_lossy(&reading.bytes), wanted);
}

#[tokio::test]
async fn an_id_is_echoed_and_an_explanation_shown() {
    let recorder = Recorder::new(|query| {
        let explanation = Explanation {
            reason: "the cheapest of 2".to_owned(),
            candidates: vec![candidate(0.97), candidate(-0.5)],
            considered: 2,
            steps: Vec::new(),
        };
        let mut answer = answer();
        answer.explanation = query.explain.then_some(explanation);
        Ok(answer)
    });
    let api = Api::new(recorder).await;
    let body = QUERY.replacen('{', r#"{"id":"q\"1","on_infeasible":"best_effort","#, 1);
    let json = api
        .call("POST", "/v1/queries?explain=true", body)
        .await
        .json();
    assert_eq!(json["id"], "q\"1");
    let explanation = &json["explanation"];
    assert_eq!(explanation["considered"], 2);
    assert_eq!(explanation["candidates"][0]["accuracy_bound"], 0.97);
    assert_eq!(explanation["candidates"][1]["error_bound"], 0.5);
    let json = api.call("POST", "/v1/queries", QUERY).await.json();
    assert!(json.get("explanation").is_none());
}

#[tokio::test]
async fn an_infeasible_target_names_the_closest() {
    let recorder = Recorder::new(|_| {
        let mut error = QueryError::new(Code::TargetInfeasible, "nothing is that fast");
        error.closest = vec![candidate(0.97)];
        Err(error)
    });
    let reading = Api::new(recorder)
        .await
        .call("POST", "/v1/queries", QUERY)
        .await;
    assert_eq!(reading.status, 422);
    let problem = reading.problem("target_infeasible");
    let wanted = json!([{"variant": "mlp-ort-fp32-all-t1-b8", "accuracy_bound": 0.97,
        "expected_ms": 3.0, "cost_per_1k_usd": 0.001, "state": "active", "verdict": "latency"}]);
    assert_eq!(problem["closest"], wanted);
    assert_eq!(problem["instance"], "/v1/queries");
}

#[tokio::test]
async fn a_refusal_for_now_says_when_to_come_back() {
    let recorder = Recorder::new(|_| {
        let mut error = QueryError::new(Code::Overloaded, "too much");
        error.retry_after_ms = Some(1_200);
        Err(error)
    });
    let reading = Api::new(recorder)
        .await
        .call("POST", "/v1/queries", QUERY)
        .await;
    assert_eq!(reading.status, 429);
    assert_eq!(reading.headers["retry-after"], "2");
    assert_eq!(reading.problem("overloaded")["retry_after_ms"], 1_200);
}

#[tokio::test]
async fn a_panic_is_a_coded_error_and_the_next_query_is_served() {
    let recorder = Recorder::new(|query| {
        assert!(query.targets.latency_ms != Some(20.0), "as asked for");
        Ok(answer())
    });
    let api = Api::new(recorder).await;
    let reading = api.call("POST", "/v1/queries", QUERY).await;
    assert_eq!(reading.status, 500);
    reading.problem("internal");
    let other = QUERY.replace("20", "21");
    assert_eq!(api.call("POST", "/v1/queries", other).await.status, 200);
}

fn candidate(quality_bound: f64) -> Candidate {
    Candidate {
        variant: "mlp-ort-fp32-all-t1-b8".parse().expect("a name"),
        quality_bound,
        kind: sextant_types::AccuracyKind::Accuracy,
        expected_ms: 3.0,
        cost_per_1k_usd: 0.001,
        state: "active".into(),
        verdict: "latency".into(),
        estimated: false,
        device_type: None,
    }
}
