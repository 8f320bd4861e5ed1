//! Versions in the names that clients of the Open Inference Protocol use.

use serde_json::{Value, json};
use sextant_tests::{Settings, TestCluster, digits, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_version_is_asked_behind_its_name() {
    let cluster = TestCluster::start(Settings::default());
    let api = cluster.api();
    api.create_application("digits").await;
    for file in ["mlp", "logistic"] {
        let job = api.register(digits::upload("digits", "model", file)).await;
        assert_eq!(job["state"], "succeeded", "{job}");
    }
    let images = digits::Images::load("test");
    let body = json!({"inputs": images.input(0)});
    for (path, version, model) in [
        ("model", "1", "model"),
        ("model/versions/1", "1", "model"),
        ("model/versions/2", "2", "model.v2"),
        ("digits:model/versions/2", "2", "model.v2"),
        ("model@2", "2", "model.v2"),
        ("model@2/versions/2", "2", "model.v2"),
        ("model.v2", "2", "model.v2"),
    ] {
        let answer = api.post(&format!("/v2/models/{path}/infer"), &body).await;
        let answer = answer.json(200);
        assert_eq!(
            (&answer["model_version"], &answer["parameters"]["model"]),
            (&json!(version), &json!(model)),
            "{path}"
        );
        for end in ["", "/config", "/ready", "/stats"] {
            let read = api.get(&format!("/v2/models/{path}{end}")).await;
            assert_eq!(read.status, 200, "{path}{end}");
        }
    }
    let metadata = |path: &str| {
        let (api, path) = (api.clone(), format!("/v2/models/{path}"));
        async move { api.get(&path).await.json(200)["versions"].clone() }
    };
    assert_eq!(metadata("model").await, json!(["1", "2"]));
    assert_eq!(metadata("model/versions/2").await, json!(["2"]));
    assert_eq!(metadata("digits").await, json!(["1"]));
    let config = api.get("/v2/models/model/config").await.json(200);
    assert_eq!(config["version_policy"], json!({"all": {}}));
    let stats = api.get("/v2/models/model/stats").await.json(200);
    let stats = stats["model_stats"].as_array().expect("a list");
    let counts: Vec<(&Value, &Value)> = stats
        .iter()
        .map(|it| (&it["version"], &it["inference_count"]))
        .collect();
    assert_eq!(counts, [(&json!("1"), &json!(2)), (&json!("2"), &json!(5))]);
    for path in [
        "model/versions/3",
        "model/versions/02",
        "model/versions/x",
        "model@2/versions/1",
    ] {
        let refused = api.post(&format!("/v2/models/{path}/infer"), &body).await;
        let refused = refused.json(404);
        let said = refused["error"].as_str().expect("why");
        assert!(said.contains("Request for unknown model"), "{path}: {said}");
    }
    let index = api.post("/v2/repository/index", &json!({})).await.json(200);
    let index = index.as_array().expect("a list");
    let of = index.iter().filter(|it| it["name"] == "model");
    let versions: Vec<&Value> = of.map(|it| &it["version"]).collect();
    assert_eq!(versions, [&json!("1"), &json!("2")]);

    // A client's key always gets the same version, as parameter and as header.
    let canary = json!({"stage": "canary", "percent": 50});
    api.patch("/v1/models/model/versions/2", &canary)
        .await
        .json(200);
    let ask = |key: usize| {
        let body = json!({
            "inputs": images.input(0), "parameters": {"slo_sticky": format!("user-{key}")},
        });
        let api = api.clone();
        async move { api.post("/v2/models/model/infer", &body).await.json(200)["model_version"].clone() }
    };
    until("both versions answer", || async {
        let mut seen = std::collections::BTreeSet::new();
        for key in 0..16 {
            seen.insert(ask(key).await.to_string());
        }
        (seen.len() == 2).then_some(())
    })
    .await;
    for key in 0..8 {
        assert_eq!(ask(key).await, ask(key).await, "user-{key}");
    }
}
