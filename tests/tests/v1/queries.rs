//! `/v1/queries`: which variants answer, and which queries are refused.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Value, json};
use sextant_tests::{Api, Settings, TestCluster, digits};

async fn variants(api: &Api) -> Vec<Value> {
    let answer = api.get("/v1/applications/digits/variants").await.json(200);
    answer["variants"].as_array().expect("a list").clone()
}

fn number(value: &Value, pointer: &str) -> f64 {
    let number = value.pointer(pointer).and_then(Value::as_f64);
    number.unwrap_or_else(|| panic!("`{pointer}` is missing in {value}"))
}

#[tokio::test]
async fn most_test_images_are_read_correctly() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let images = digits::Images::load("test");
    let mut correct = 0;
    for index in 0..100 {
        let query = json!({
            "application": "digits", "targets": {"min_accuracy": 0.9},
            "inputs": images.input(index)
        });
        let answer = api.post("/v1/queries", &query).await.json(200);
        assert_eq!(answer["targets_met"], true, "{answer}");
        let output = &answer["outputs"][0];
        assert_eq!(
            (&output["name"], &output["shape"]),
            (&json!("scores"), &json!([1, 10]))
        );
        correct += usize::from(digits::digit(&output["data"]) as i64 == images.labels[index]);
    }
    assert!(correct >= 93, "{correct} of 100 images were read correctly");
}

/// The demonstration: for the same image, other targets are answered by other variants.
#[tokio::test]
async fn other_targets_are_answered_by_other_variants() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    digits::warm(&api).await;
    let variants = variants(&api).await;
    let best = |model: &str| {
        let bounds = variants.iter().filter(|variant| variant["model"] == model);
        bounds
            .map(|variant| number(variant, "/accuracy/lower"))
            .fold(0.0, f64::max)
    };
    let images = digits::Images::load("test");
    let mut answered = BTreeSet::new();
    for model in digits::MODELS {
        let target = best(model);
        let query = json!({
            "application": "digits", "targets": {"latency_ms": 5000.0, "min_accuracy": target},
            "inputs": images.input(0)
        });
        let answer = api.post("/v1/queries", &query).await.json(200);
        let name = answer["variant"].as_str().expect("a name").to_owned();
        let chosen = variants
            .iter()
            .find(|variant| variant["name"] == name.as_str());
        assert!(
            number(chosen.expect("it is listed"), "/accuracy/lower") >= target,
            "{answer}"
        );
        assert_eq!(answer["targets_met"], true, "{answer}");
        answered.insert(name);
    }
    // A small model may be as accurate as a large one on the processor at hand, and then it answers for both.
    assert!(answered.len() > 1, "{answered:?}");
}

#[tokio::test]
async fn a_model_or_a_variant_can_be_named() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let inputs = digits::Images::load("test").input(3);
    let query = json!({"model": "mlp", "inputs": inputs, "id": "seven"});
    let answer = api.post("/v1/queries", &query).await.json(200);
    assert_eq!(
        (&answer["model"], &answer["id"]),
        (&json!("mlp"), &json!("seven"))
    );
    let dominated = variants(&api).await;
    let dominated = dominated
        .iter()
        .find(|variant| !variant["dominated_by"].is_null());
    let name = &dominated.expect("some variant is dominated")["name"];
    let query = json!({"variant": name, "inputs": inputs});
    assert_eq!(
        &api.post("/v1/queries", &query).await.json(200)["variant"],
        name
    );
}

#[tokio::test]
async fn an_explanation_says_what_was_considered() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let query = json!({
        "application": "digits", "targets": {"latency_ms": 1000.0, "min_accuracy": 0.9},
        "inputs": digits::Images::load("test").input(0), "explain": true
    });
    let answer = api.post("/v1/queries", &query).await.json(200);
    let explanation = &answer["explanation"];
    assert!(!explanation["reason"].as_str().expect("a reason").is_empty());
    let all = variants(&api).await.len() as u64;
    assert!(explanation["considered"].as_u64().expect("a count") <= all);
    let candidates = explanation["candidates"].as_array().expect("a list");
    let selected: Vec<&Value> = candidates
        .iter()
        .filter(|candidate| candidate["verdict"] == "selected")
        .collect();
    assert_eq!(selected.len(), 1, "{explanation}");
    assert_eq!(selected[0]["variant"], answer["variant"]);
    let mut plain = query.clone();
    plain.as_object_mut().expect("an object").remove("explain");
    let without = api.post("/v1/queries", &plain).await.json(200);
    assert!(without["explanation"].is_null());
    let asked = api.post("/v1/queries?explain=true", &plain).await.json(200);
    assert!(asked["explanation"].is_object());
}

#[tokio::test]
async fn rows_come_back_in_their_order() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let images = digits::Images::load("test");
    let rows = 5;
    let data: Vec<f32> = (0..rows)
        .flat_map(|row| images.pixels(row))
        .copied()
        .collect();
    let variant = "mlp-ort-fp32-all-t1-b8";
    let query = json!({"variant": variant, "inputs": [
        {"name": "pixels", "shape": [rows, digits::PIXELS], "datatype": "FP32", "data": data}
    ]});
    let together = api.post("/v1/queries", &query).await.json(200);
    let scores = together["outputs"][0]["data"].as_array().expect("a list");
    assert_eq!(scores.len(), rows * 10);
    for row in 0..rows {
        let query = json!({"variant": variant, "inputs": images.input(row)});
        let alone = api.post("/v1/queries", &query).await.json(200);
        let alone = alone["outputs"][0]["data"].as_array().expect("a list");
        for (one, other) in scores[row * 10..].iter().zip(alone) {
            let (one, other) = (number(one, ""), number(other, ""));
            assert!(
                (one - other).abs() <= 1e-3 * other.abs().max(1.0),
                "{one} and {other}"
            );
        }
    }
}

/// Queries that share a batch each get their own answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_queries_do_not_mix() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let images = Arc::new(digits::Images::load("test"));
    let queries: Vec<_> = (0..128)
        .map(|index| {
            let (api, images) = (api.clone(), Arc::clone(&images));
            tokio::spawn(async move {
                let query = json!({"variant": "cnn-small-ort-fp32-all-t1-b8", "inputs": images.input(index)});
                let answer = api.post("/v1/queries", &query).await.json(200);
                digits::digit(&answer["outputs"][0]["data"]) as i64 == images.labels[index]
            })
        })
        .collect();
    let mut correct = 0;
    for query in queries {
        correct += usize::from(query.await.expect("no query panics"));
    }
    assert!(correct >= 120, "{correct} of 128 answers fit their image");
}

#[tokio::test]
async fn what_nothing_can_meet_names_the_closest() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let inputs = digits::Images::load("test").input(0);
    for targets in [
        json!({"min_accuracy": 1.0}),
        json!({"latency_ms": 0.000_001}),
        json!({"max_cost_per_1k_usd": 1e-30}),
        json!({"latency_ms": 0.000_001, "min_accuracy": 0.9999}),
    ] {
        let query = json!({"application": "digits", "targets": targets, "inputs": inputs});
        let problem = api
            .post("/v1/queries", &query)
            .await
            .problem(422, "target_infeasible");
        let closest = problem["closest"].as_array().expect("the closest variants");
        assert!(
            !closest.is_empty() && closest[0]["variant"].is_string(),
            "{problem}"
        );
    }
    let query = json!({
        "application": "digits", "targets": {"min_accuracy": 1.0}, "inputs": inputs,
        "on_infeasible": "best_effort"
    });
    let answer = api.post("/v1/queries", &query).await.json(200);
    assert_eq!(answer["targets_met"], false);
    let best = variants(&api).await;
    let bound = |variant: &Value| number(variant, "/accuracy/lower");
    let most = best.iter().map(bound).fold(0.0, f64::max);
    let chosen = best
        .iter()
        .find(|variant| variant["name"] == answer["variant"]);
    assert_eq!(bound(chosen.expect("it is listed")), most, "{answer}");
}

/// The uploaded file's own accuracy is always available. With a share of it as target, every answer keeps that share.
#[tokio::test]
async fn a_share_of_the_uploaded_files_accuracy_is_kept() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let inputs = digits::Images::load("test").input(0);
    let all = variants(&api).await;
    let bound = |variant: &Value| number(variant, "/accuracy/lower");
    for share in [1.0, 0.99, 0.9] {
        let query = json!({
            "application": "digits", "targets": {"min_relative_accuracy": share}, "inputs": inputs
        });
        let answer = api.post("/v1/queries", &query).await.json(200);
        assert_eq!(answer["targets_met"], true);
        let chosen = all.iter().find(|it| it["name"] == answer["variant"]);
        let single = all.iter().filter(|it| it["precision"] == "fp32");
        let uploaded = single.max_by(|a, b| {
            let value = |of: &Value| number(of, "/accuracy/value");
            value(a).total_cmp(&value(b))
        });
        let least = share * bound(uploaded.expect("there is one"));
        assert!(
            bound(chosen.expect("it is listed")) >= least - 1e-12,
            "{answer}"
        );
    }
}

/// A query that prefers accuracy gets no less accurate variant than one that does not, and the answer says why.
#[tokio::test]
async fn the_preferred_of_the_variants_that_meet_the_targets_answers() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let inputs = digits::Images::load("test").input(0);
    let all = variants(&api).await;
    let mut bounds = Vec::new();
    for prefer in ["cost", "accuracy", "latency"] {
        let query = json!({
            "application": "digits", "targets": {"prefer": prefer}, "inputs": inputs, "explain": true
        });
        let answer = api.post("/v1/queries", &query).await.json(200);
        assert_eq!(answer["targets_met"], true, "{answer}");
        let chosen = all.iter().find(|it| it["name"] == answer["variant"]);
        bounds.push(number(chosen.expect("it is listed"), "/accuracy/lower"));
    }
    assert!(
        bounds[1] >= bounds[0] && bounds[1] >= bounds[2],
        "{bounds:?}"
    );
    let query = json!({"application": "digits", "targets": {"prefer": "beauty"}, "inputs": inputs});
    api.post("/v1/queries", &query)
        .await
        .problem(400, "invalid_request");
}

#[tokio::test]
async fn targets_that_are_no_targets_are_refused() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let inputs = digits::Images::load("test").input(0);
    for targets in [
        json!({"latency_ms": 0.0}),
        json!({"latency_ms": -5.0}),
        json!({"latency_ms": 1e300}),
        json!({"min_accuracy": 1.5}),
        json!({"min_accuracy": -0.5}),
        json!({"max_cost_per_1k_usd": 0.0}),
        json!({"min_relative_accuracy": 0.0}),
        json!({"min_relative_accuracy": 1.01}),
        json!({"min_accuracy": 0.5, "max_error": 0.5}),
        json!({"max_error": 0.5}),
    ] {
        let query = json!({"application": "digits", "targets": targets, "inputs": inputs});
        let problem = api
            .post("/v1/queries", &query)
            .await
            .problem(400, "invalid_target");
        assert!(
            problem["detail"]
                .as_str()
                .is_some_and(|detail| detail.contains('`'))
        );
    }
    for text in [
        "NaN",
        "Infinity",
        "1e999",
        "\"soon\"",
        "null, \"min_acuracy\": 1",
    ] {
        let body = format!(
            "{{\"application\": \"digits\", \"targets\": {{\"latency_ms\": {text}}}, \"inputs\": {inputs}}}"
        );
        api.post_raw("/v1/queries", body)
            .await
            .problem(400, "invalid_request");
    }
}

#[tokio::test]
async fn tensors_that_do_not_fit_are_refused() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let tensor = |name: &str, shape: Value, kind: &str, data: Value| json!([{"name": name, "shape": shape, "datatype": kind, "data": data}]);
    let ones = |count: usize| json!(vec![1.0; count]);
    let one = tensor("pixels", json!([1, 64]), "FP32", ones(64));
    let twice = json!([one[0], one[0]]);
    for inputs in [
        tensor("pixels", json!([1, 64]), "FP32", ones(63)),
        tensor("pixels", json!([1, 63]), "FP32", ones(63)),
        tensor("pixels", json!([64]), "FP32", ones(64)),
        tensor("pixels", json!([0, 64]), "FP32", json!([])),
        tensor(
            "pixels",
            json!([1, 64]),
            "INT64",
            json!(vec![16_777_217; 64]),
        ),
        tensor("pixels", json!([1, 64]), "FP33", ones(64)),
        tensor("pixels", json!([1, 64]), "BYTES", json!(vec!["a"; 64])),
        tensor("pixels", json!([1, 64]), "FP32", json!(vec!["a"; 64])),
        tensor("pixels", json!([-1, 64]), "FP32", ones(64)),
        tensor(
            "pixels",
            json!([4_294_967_296_u64, 4_294_967_296_u64]),
            "FP32",
            ones(64),
        ),
        tensor("image", json!([1, 64]), "FP32", ones(64)),
        twice,
        json!([]),
    ] {
        let query = json!({"application": "digits", "inputs": inputs});
        let answer = api.post("/v1/queries", &query).await;
        assert_eq!(answer.status, 400, "{inputs}: {}", answer.text());
        let code = answer.json(400)["code"].clone();
        assert!(
            code == "invalid_tensor" || code == "invalid_request",
            "{inputs}: {code}"
        );
    }
    let query = json!({"application": "digits", "inputs": tensor("pixels", json!([1, 63]), "FP32", ones(63))});
    api.post("/v1/queries", &query)
        .await
        .problem(400, "invalid_tensor");
}

#[tokio::test]
async fn addressees_that_do_not_exist_are_told() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let inputs = digits::Images::load("test").input(0);
    for (name, value, status, code) in [
        ("application", "nobody", 404, "application_not_found"),
        ("model", "nobody", 404, "model_not_found"),
        ("variant", "nobody", 404, "variant_not_found"),
        ("application", "No Body", 400, "invalid_name"),
    ] {
        let query = json!({name: value, "inputs": inputs});
        api.post("/v1/queries", &query).await.problem(status, code);
    }
    let nobody = json!({"inputs": inputs});
    api.post("/v1/queries", &nobody)
        .await
        .problem(400, "invalid_request");
    let both = json!({"application": "digits", "model": "mlp", "inputs": inputs});
    api.post("/v1/queries", &both)
        .await
        .problem(400, "invalid_request");
    api.create_application("empty").await;
    let empty = json!({"application": "empty", "inputs": inputs});
    let answer = api.post("/v1/queries", &empty).await;
    assert!(
        answer.status.is_client_error() || answer.status == 503,
        "{}",
        answer.text()
    );
    assert_eq!(api.delete("/v1/applications/empty").await.status, 204);
}

#[tokio::test]
async fn bodies_that_are_no_queries_are_refused() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    for body in [
        "",
        "{",
        "[]",
        "null",
        "{\"application\": 5, \"inputs\": []}",
        "\u{0}",
    ] {
        api.post_raw("/v1/queries", body)
            .await
            .problem(400, "invalid_request");
    }
    api.post_raw("/v1/queries", [0x1f, 0x8b, 8, 0])
        .await
        .problem(400, "invalid_request");
    api.post_raw("/v1/queries", "[".repeat(100_000))
        .await
        .problem(400, "invalid_request");
    api.get("/v1/queries")
        .await
        .problem(405, "method_not_allowed");
    api.get("/v1/nothing").await.problem(404, "route_not_found");
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused() {
    let cluster = TestCluster::start(Settings {
        set: vec!["limits.max_body_bytes=10000".to_owned()],
        ..Settings::default()
    });
    let api = cluster.api();
    let padding = " ".repeat(20_000);
    api.post_raw("/v1/queries", padding)
        .await
        .problem(413, "too_large");
    api.get("/health/ready").await.json(200);
}

/// The example that the interactive description offers.
#[tokio::test]
async fn the_example_of_the_description_is_answered() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let description = api.get("/openapi.json").await.json(200);
    let of_queries = &description["paths"]["/v1/queries"]["post"]["requestBody"];
    let mut example = of_queries["content"]["application/json"]["example"].clone();
    // The current speed of this machine says nothing about the example.
    example["targets"]["latency_ms"] = Value::Null;
    let answer = api.post("/v1/queries", &example).await.json(200);
    assert_eq!(answer["id"], example["id"], "{answer}");
}
