//! `/v2`: the Open Inference Protocol, as clients that do not know Sextant use it.

mod feedback;
mod grpc;
mod memory;
mod versions;

use reqwest::Method;
use serde_json::{Value, json};
use sextant_tests::{
    Settings, TestCluster,
    digits::{self, PIXELS},
    root, until,
};

const LENGTH: &str = "inference-header-content-length";

#[tokio::test]
async fn the_server_introduces_itself() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    assert_eq!(api.get("/v2").await.json(200)["name"], "sextant");
    assert_eq!(api.get("/v2/health/live").await.json(200)["live"], true);
    assert_eq!(api.get("/v2/health/ready").await.json(200)["ready"], true);
    digits::warm(&api).await;
    for name in ["digits", "mlp"] {
        let metadata = api.get(&format!("/v2/models/{name}")).await.json(200);
        assert_eq!(
            (&metadata["name"], &metadata["versions"]),
            (&json!(name), &json!(["1"]))
        );
        let input = json!({"name": "pixels", "datatype": "FP32", "shape": [-1, PIXELS]});
        assert_eq!(metadata["inputs"], json!([input]));
        let path = format!("/v2/models/{name}/config");
        let config = api.get(&path).await.json(200);
        let input = json!({"name": "pixels", "data_type": "TYPE_FP32", "dims": [PIXELS]});
        assert_eq!(config["input"], json!([input]), "{config}");
        assert_eq!(config["output"][0]["dims"], json!([10]), "{config}");
        assert_eq!(config["max_batch_size"], 8, "{config}");
        assert_eq!(
            api.get(&format!("/v2/models/{name}/ready")).await.status,
            200
        );
        assert_eq!(
            api.get(&format!("/v2/models/{name}/versions/1/ready"))
                .await
                .status,
            200
        );
    }
    let index = api.post("/v2/repository/index", &json!({})).await.json(200);
    let index = index.as_array().expect("a list");
    assert!(index.iter().any(|entry| entry["state"] == "READY"));
}

#[tokio::test]
async fn an_image_is_read_by_each_kind_of_name() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let images = digits::Images::load("test");
    for name in ["digits", "cnn-small", "cnn-small-ort-fp32-all-t1-b4"] {
        for path in [
            format!("/v2/models/{name}/infer"),
            format!("/v2/models/{name}/versions/1/infer"),
        ] {
            let request = json!({"id": "42", "inputs": images.input(0)});
            let answer = api.post(&path, &request).await.json(200);
            assert_eq!(
                (&answer["id"], &answer["model_name"]),
                (&json!("42"), &json!(name))
            );
            assert_eq!(answer["outputs"][0]["shape"], json!([1, 10]));
            assert_eq!(
                digits::digit(&answer["outputs"][0]["data"]) as i64,
                images.labels[0]
            );
        }
    }
}

#[tokio::test]
async fn targets_come_as_parameters() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let inputs = digits::Images::load("test").input(0);
    let request = json!({"parameters": {"slo_min_accuracy": 0.9}, "inputs": inputs});
    let answer = api
        .post("/v2/models/digits/infer", &request)
        .await
        .json(200);
    assert_eq!(answer["parameters"]["slo_met"], true);
    let request = json!({"parameters": {"slo_min_accuracy": 1.0}, "inputs": inputs});
    let refused = api.post("/v2/models/digits/infer", &request).await;
    let problem = refused.problem(422, "target_infeasible");
    assert_eq!(problem["error"], problem["detail"]);
    let request = json!({
        "parameters": {"slo_min_accuracy": 1.0, "slo_policy": "best_effort"}, "inputs": inputs
    });
    let answer = api
        .post("/v2/models/digits/infer", &request)
        .await
        .json(200);
    assert_eq!(answer["parameters"]["slo_met"], false);
}

/// Tensors that travel as bytes in both directions give the same scores.
#[tokio::test]
async fn tensors_may_be_binary() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let images = digits::Images::load("test");
    let path = "/v2/models/mlp-ort-fp32-all-t1-b1/infer";
    let plain = api
        .post(path, &json!({"inputs": images.input(7)}))
        .await
        .json(200);
    let head = json!({
        "inputs": [{
            "name": "pixels", "shape": [1, PIXELS], "datatype": "FP32",
            "parameters": {"binary_data_size": 4 * PIXELS}
        }],
        "outputs": [{"name": "scores", "parameters": {"binary_data": true}}]
    })
    .to_string();
    let pixels: Vec<u8> = images
        .pixels(7)
        .iter()
        .flat_map(|pixel| pixel.to_le_bytes())
        .collect();
    let body = [head.as_bytes(), &pixels].concat();
    let headers = [(LENGTH, head.len().to_string())];
    let answer = api
        .send_with(Method::POST, path, &headers, body.clone())
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let length: usize = answer.headers[LENGTH]
        .to_str()
        .ok()
        .and_then(|text| text.parse().ok())
        .expect("a length");
    let document: Value = serde_json::from_slice(&answer.body[..length]).expect("JSON");
    assert_eq!(document["outputs"][0]["parameters"]["binary_data_size"], 40);
    let scores_as_bytes = answer.body[length..].to_vec();
    let scores: Vec<f64> = answer.body[length..]
        .chunks_exact(4)
        .map(|bytes| f64::from(f32::from_le_bytes(bytes.try_into().expect("four bytes"))))
        .collect();
    let expected: Vec<f64> = plain["outputs"][0]["data"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(Value::as_f64)
        .map(|score| f64::from(score as f32))
        .collect();
    assert_eq!(scores, expected);
    let raw = [(LENGTH, "0".to_owned())];
    let answer = api
        .send_with(Method::POST, path, &raw, pixels.clone())
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.body[answer.body.len() - 40..], scores_as_bytes);
    let cut = pixels[..pixels.len() - 4].to_vec();
    let answer = api.send_with(Method::POST, path, &raw, cut).await;
    answer.problem(400, "invalid_tensor");
    for wrong in ["99999", "x", "-1"] {
        let headers = [(LENGTH, wrong.to_owned())];
        let answer = api
            .send_with(Method::POST, path, &headers, body.clone())
            .await;
        answer.problem(400, "invalid_request");
    }
    let surplus = [&body[..], &[0; 4]].concat();
    let answer = api.send_with(Method::POST, path, &headers, surplus).await;
    answer.problem(400, "invalid_tensor");
}

#[tokio::test]
async fn refusals_carry_the_error_member() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let inputs = digits::Images::load("test").input(0);
    let request = json!({"inputs": inputs});
    for path in ["/v2/models/nobody/infer", "/v2/models/mlp/versions/2/infer"] {
        let problem = api
            .post(path, &request)
            .await
            .problem(404, "model_not_found");
        assert!(problem["error"].is_string(), "{problem}");
    }
    let short = json!({"inputs": [
        {"name": "pixels", "shape": [1, 64], "datatype": "FP32", "data": [1.0]}
    ]});
    let problem = api
        .post("/v2/models/mlp/infer", &short)
        .await
        .problem(400, "invalid_tensor");
    assert!(problem["error"].is_string(), "{problem}");
    let unwanted = json!({"inputs": inputs, "outputs": [{"name": "nothing"}]});
    let answer = api.post("/v2/models/mlp/infer", &unwanted).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
}

/// Most of six models of the same shape are dominated, and no variant is loaded before its first query.
#[tokio::test]
async fn every_model_is_ready_and_answers_its_first_query() {
    let set = [
        "worker.devices=emulated:1",
        "variants.engines=emulated",
        "variants.max_batch=2",
        "autoscaler.warm_memory_share=0",
    ];
    let cluster = TestCluster::start(Settings {
        set: set.map(str::to_owned).to_vec(),
        ..Settings::default()
    });
    let api = cluster.api();
    api.create_application("digits").await;
    let names = ["k1", "k2", "k3", "k4", "k5", "k6"];
    for name in names {
        let upload = digits::upload("digits", name, "logistic");
        let job = api.register(upload).await;
        assert_eq!(job["state"], "succeeded", "{job}");
    }
    let inputs = digits::Images::load("test").input(0);
    for name in names {
        let known = || async {
            let metadata = api.get(&format!("/v2/models/{name}")).await;
            (metadata.status == 200).then_some(())
        };
        until(&format!("`{name}` is published"), known).await;
        let ready = api.get(&format!("/v2/models/{name}/ready")).await;
        assert_eq!(ready.json(200)["ready"], true);
        let query = json!({"model": name, "inputs": inputs});
        let answer = api.post("/v1/queries", &query).await.json(200);
        assert_eq!(answer["model"], name);
    }
}

#[tokio::test]
async fn statistics_count_rows_and_runs_whatever_a_query_came_by() {
    let cluster = digits::with_mlp(&[]).await;
    let api = cluster.api();
    let mut inputs = digits::Images::load("test").input(0);
    let one = inputs[0]["data"].as_array().expect("numbers").clone();
    let data: Vec<Value> = std::iter::repeat_n(one, 8).flatten().collect();
    (inputs[0]["shape"][0], inputs[0]["data"]) = (json!(8), json!(data));
    let counts = async || {
        let stats = api.get("/v2/models/mlp/stats").await.json(200);
        let stats = stats["model_stats"][0].clone();
        let of = |count: &Value| count.as_u64().expect("a number");
        [
            of(&stats["inference_count"]),
            of(&stats["execution_count"]),
            of(&stats["inference_stats"]["success"]["count"]),
        ]
    };
    for (path, body) in [
        ("/v2/models/mlp/infer", json!({"inputs": inputs})),
        ("/v1/queries", json!({"model": "mlp", "inputs": inputs})),
    ] {
        let before = counts().await;
        for _ in 0..5 {
            api.post(path, &body).await.json(200);
        }
        let after = counts().await;
        let counted: Vec<u64> = after.iter().zip(before).map(|(it, was)| it - was).collect();
        assert_eq!(counted, [40, 5, 5], "{path}");
    }
}

#[tokio::test]
async fn statistics_count_what_was_answered_by_each_kind_of_name() {
    let cluster = digits::with_mlp(&[]).await;
    let api = cluster.api();
    let images = digits::Images::load("test");
    let count = |stats: &Value| {
        let stats = &stats["model_stats"][0];
        let of = |name: &str| stats["inference_stats"][name]["count"].as_u64();
        assert_eq!(of("success"), of("queue"), "{stats}");
        (
            of("success").expect("a number"),
            stats["inference_count"].as_u64().expect("a number"),
        )
    };
    let path = |name: &str| format!("/v2/models/{name}/stats");
    let before = api.get(&path("mlp")).await.json(200);
    assert_eq!(count(&before), (0, 0), "{before}");
    assert_eq!(before["model_stats"][0]["name"], "mlp");
    let mut variant = String::new();
    for index in 0..3 {
        let body = json!({"inputs": images.input(index)});
        let answer = api.post("/v2/models/mlp/infer", &body).await.json(200);
        variant = answer["parameters"]["variant"]
            .as_str()
            .expect("a name")
            .to_owned();
    }
    for name in ["mlp", "digits"] {
        let stats = api.get(&path(name)).await.json(200);
        assert_eq!(count(&stats), (3, 3), "{name}: {stats}");
        let last = stats["model_stats"][0]["last_inference"].as_u64();
        assert!(last > Some(0), "{stats}");
        let compute = &stats["model_stats"][0]["inference_stats"]["compute_infer"];
        assert!(compute["ns"].as_u64() > Some(0), "{stats}");
        // Queries are sent one after the other, so that none shares a batch.
        let sizes = &stats["model_stats"][0]["batch_stats"];
        assert_eq!(sizes[0]["batch_size"], 1, "{stats}");
        assert_eq!(sizes[0]["compute_infer"]["count"], 3, "{stats}");
    }
    let wrong =
        json!({"inputs": [{"name": "pixels", "shape": [1, 1], "datatype": "FP32", "data": [0]}]});
    api.post("/v2/models/digits/infer", &wrong).await.json(400);
    for (name, failures) in [("digits", 1), ("mlp", 0)] {
        let stats = api.get(&path(name)).await.json(200);
        let failed = &stats["model_stats"][0]["inference_stats"]["fail"];
        assert_eq!(failed["count"], failures, "{name}: {stats}");
    }
    let all = api.get("/v2/models/stats").await.json(200);
    let names: Vec<&Value> = all["model_stats"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|of| &of["name"])
        .collect();
    assert!(names.contains(&&json!(variant)), "{all}");
    let sum: u64 = (0..names.len())
        .map(|at| {
            all["model_stats"][at]["inference_count"]
                .as_u64()
                .expect("a number")
        })
        .sum();
    assert_eq!(sum, 3, "{all}");
    api.get(&path("nobody"))
        .await
        .problem(404, "model_not_found");
}

#[tokio::test]
async fn a_pipeline_that_decodes_pictures_is_loaded_with_what_it_asks() {
    // No model is loaded before a query needs it.
    let set = [
        "worker.devices=emulated:1",
        "variants.engines=emulated",
        "variants.max_batch=2",
        "autoscaler.warm_memory_share=0",
        "autoscaler.idle_unload_s=3600",
    ];
    let cluster = digits::with_mlp(&set).await;
    let api = cluster.api();
    until("`mlp` is published", || async {
        let found = api.get("/v2/models/mlp").await;
        (found.status == 200).then_some(())
    })
    .await;
    let path = root().join("examples/pipelines/photos.yaml");
    let definition = Some(std::fs::read(path).expect("the example is there"));
    let registered = api.send_bytes(
        Method::POST,
        "/v1/pipelines",
        "application/yaml",
        definition,
    );
    registered.await.json(201);
    let loaded = || async {
        let ready = json!({"ready": true});
        let index = api.post("/v2/repository/index", &ready).await.json(200);
        let entries = index.as_array().expect("a list").iter();
        let names = entries.filter_map(|it| it["name"].as_str());
        let variants = names.filter(|name| name.starts_with("mlp-"));
        variants.count()
    };
    assert_eq!(loaded().await, 0);
    let load = "/v2/repository/models/photos/load";
    assert_eq!(api.post(load, &json!({})).await.status, 200);
    assert!(loaded().await > 0, "the model of its step is loaded");
    let unload = "/v2/repository/models/photos/unload";
    assert_eq!(api.post(unload, &json!({})).await.status, 200);
}
