//! `/v1/models` with models whose weights are mapped instead of read.

use std::fs;

use serde_json::json;
use sextant_tests::{Settings, TestCluster, digits};

/// Folders of models in the artefact store.
fn folders(cluster: &TestCluster) -> usize {
    let scratch = cluster.data().join("objects/scratch");
    fs::read_dir(scratch).map_or(0, Iterator::count)
}

#[tokio::test]
async fn a_mapped_model_is_measured_and_answers_as_any_other() {
    for isolation in ["none", "process"] {
        let mut cluster = TestCluster::start(Settings {
            set: vec![
                "limits.map_model_bytes=1".to_owned(),
                "variants.engines=ort,openvino".to_owned(),
                format!("worker.isolation={isolation}"),
            ],
            ..Settings::default()
        });
        let api = cluster.api();
        api.create_application("digits").await;
        let job = api.register(digits::upload("digits", "mlp", "mlp")).await;
        assert_eq!(job["state"], "succeeded", "{job}");
        let answer = api.get("/v1/models/mlp/variants").await.json(200);
        let variants = answer["variants"].as_array().expect("a list");
        for engine in ["ort", "openvino"] {
            assert!(variants.iter().any(|it| it["engine"] == engine), "{answer}");
        }
        let images = digits::Images::load("test");
        for variant in variants {
            for at in 0..3 {
                let query = json!({"variant": variant["name"], "inputs": images.input(at)});
                let answer = api.post("/v1/queries", &query).await.json(200);
                let digit = digits::digit(&answer["outputs"][0]["data"]);
                assert_eq!(digit as i64, images.labels[at], "{variant}");
            }
        }
        // The next start removes what a killed service left.
        assert!(folders(&cluster) > 0);
        cluster.kill();
        assert!(folders(&cluster) > 0);
        cluster.launch();
        let query = json!({"model": "mlp", "inputs": images.input(0)});
        cluster.api().post("/v1/queries", &query).await.json(200);
        cluster.stop();
        assert_eq!(folders(&cluster), 0);
    }
}
