//! `/v1/models`: registration, from the upload to the measured variants, and refusals.

use serde_json::{Value, json};
use sextant_tests::{Api, Settings, TestCluster, Upload, digits, onnx};

mod refusals;

/// Registers under the upload's own name and returns the code of the failure.
async fn failure(api: &Api, upload: Upload<'_>) -> String {
    let name = upload.name.to_owned();
    let answer = api.upload(upload).await;
    if answer.status.is_client_error() {
        let document: Value = serde_json::from_slice(&answer.body).expect("a problem document");
        return document["code"].as_str().expect("a code").to_owned();
    }
    let accepted = answer.json(202);
    let job = api.job_over(accepted["job"].as_str().expect("a job")).await;
    assert_eq!(job["state"], "failed", "{name}: {job}");
    let model = api.get(&format!("/v1/models/{name}")).await.json(200);
    assert_eq!(model["status"], "failed", "{name}: {model}");
    assert_eq!(model["error"]["code"], job["error"]["code"], "{name}");
    assert!(
        !job["error"]["message"]
            .as_str()
            .expect("a message")
            .is_empty()
    );
    told_by_protocol(
        api,
        &name,
        job["error"]["message"].as_str().expect("a message"),
    )
    .await;
    job["error"]["code"].as_str().expect("a code").to_owned()
}

/// Checks that clients of the protocol learn that a registration has failed, and why.
async fn told_by_protocol(api: &Api, name: &str, why: &str) {
    let index = api.post("/v2/repository/index", &json!({})).await.json(200);
    let mut entries = index.as_array().expect("a list").iter();
    let entry = entries.find(|entry| entry["name"] == name);
    let entry = entry.unwrap_or_else(|| panic!("`{name}` is not in {index}"));
    assert_eq!(entry["state"], "UNAVAILABLE", "{entry}");
    assert!(
        entry["reason"].as_str().is_some_and(|it| it.contains(why)),
        "{entry}"
    );
    let path = format!("/v2/models/{name}/infer");
    let asked = api.post(&path, &json!({"inputs": []})).await;
    let said = asked.json(404)["error"].to_string();
    assert!(said.contains("Request for unknown model"), "{said}");
    assert!(said.contains("its registration failed"), "{said}");
}

#[tokio::test]
async fn every_variant_is_measured() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    for name in digits::MODELS {
        let model = api.get(&format!("/v1/models/{name}")).await.json(200);
        assert_eq!(
            (&model["status"], &model["application"]),
            (&json!("ready"), &json!("digits"))
        );
        let variants = api
            .get(&format!("/v1/models/{name}/variants"))
            .await
            .json(200);
        let variants = variants["variants"].as_array().expect("a list");
        assert!(
            variants.len() >= 8,
            "{name} has {} variants",
            variants.len()
        );
        assert!(
            variants
                .iter()
                .any(|variant| variant["dominated_by"].is_null())
        );
        let precisions: std::collections::BTreeSet<&str> = variants
            .iter()
            .filter_map(|variant| variant["precision"].as_str())
            .collect();
        assert!(
            precisions.contains("fp32") && precisions.contains("int8d"),
            "{precisions:?}"
        );
        variants.iter().for_each(check_measurement);
    }
}

fn check_measurement(variant: &Value) {
    let number = |pointer: &str| {
        let value = variant.pointer(pointer).and_then(Value::as_f64);
        value.unwrap_or_else(|| panic!("`{pointer}` is missing in {variant}"))
    };
    let (lower, value, upper) = (
        number("/accuracy/lower"),
        number("/accuracy/value"),
        number("/accuracy/upper"),
    );
    assert!(
        0.0 < lower && lower <= value && value <= upper && upper <= 1.0,
        "{variant}"
    );
    assert_eq!(number("/accuracy/records"), 397.0);
    let correct = value * 397.0;
    assert!((correct - correct.round()).abs() < 1e-6, "{variant}");
    for pointer in [
        "/load_ms",
        "/saturation_rps",
        "/cost_per_1k_usd",
        "/latency/0/p50_ms",
    ] {
        assert!(number(pointer) > 0.0, "`{pointer}` in {variant}");
    }
    let batches = variant["latency"].as_array().expect("a list");
    let sizes: Vec<u64> = batches
        .iter()
        .filter_map(|batch| batch["batch"].as_u64())
        .collect();
    assert_eq!(sizes.first(), Some(&1));
    assert_eq!(sizes.last(), variant["max_batch"].as_u64().as_ref());
    assert!(sizes.is_sorted());
}

/// Every engine of the service makes variants, and all engines read the model alike.
#[tokio::test]
async fn every_engine_makes_variants() {
    let cluster = TestCluster::start(Settings {
        set: vec![
            "variants.engines=ort,rten".to_owned(),
            "variants.max_threads=2".to_owned(),
            // Nothing is left out, however slow it seems beside another engine.
            "variants.effort=thorough".to_owned(),
            "worker.cores=2".to_owned(),
        ],
        ..Settings::default()
    });
    let api = cluster.api();
    api.create_application("digits").await;
    let job = api.register(digits::upload("digits", "mlp", "mlp")).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let images = digits::Images::load("test");
    for engine in ["ort", "rten"] {
        for threads in [1, 2] {
            let name = format!("mlp-{engine}-fp32-all-t{threads}-b4");
            let variant = api.get(&format!("/v1/variants/{name}")).await.json(200);
            assert_eq!(variant["accuracy"]["records"], 397, "{variant}");
            let query = json!({"variant": name, "inputs": images.input(0)});
            let answer = api.post("/v1/queries", &query).await.json(200);
            let digit = digits::digit(&answer["outputs"][0]["data"]);
            assert_eq!(digit as i64, images.labels[0], "{name}");
        }
    }
}

#[tokio::test]
async fn the_same_upload_twice_is_one_model() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let again = api
        .upload(digits::upload("digits", "logistic", "logistic"))
        .await
        .json(200);
    let model = api.get("/v1/models/logistic").await.json(200);
    assert_eq!(again["job"], model["job"]);
    let other = api
        .upload_with(
            digits::upload("digits", "logistic", "mlp"),
            &[("version", "1")],
        )
        .await;
    let told = other.problem(409, "model_exists")["detail"].to_string();
    assert!(
        told.contains("digits:logistic") && told.contains("another file"),
        "{told}"
    );
}

#[tokio::test]
async fn a_model_comes_from_the_artefact_store_and_goes() {
    let cluster = digits::service(Settings::default()).await;
    let api = cluster.api();
    api.put(
        "/v1/artefacts/in/model.onnx",
        digits::bytes("logistic.onnx"),
    )
    .await
    .json(201);
    api.put("/v1/artefacts/in/set.npz", digits::bytes("validation.npz"))
        .await
        .json(201);
    let body = json!({
        "name": "stored", "application": "digits",
        "model_path": "in/model.onnx", "validation_path": "in/set.npz"
    });
    let accepted = api.post("/v1/registrations", &body).await.json(202);
    let job = api.job_over(accepted["job"].as_str().expect("a job")).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let missing = json!({
        "name": "other", "application": "digits",
        "model_path": "in/none.onnx", "validation_path": "in/set.npz"
    });
    api.post("/v1/registrations", &missing)
        .await
        .problem(404, "artefact_not_found");
    let query = json!({"model": "stored", "inputs": digits::Images::load("test").input(0)});
    api.post("/v1/queries", &query).await.json(200);
    let file = api.get("/v1/models/stored/file").await;
    assert_eq!(file.status, 200);
    assert_eq!(file.body, digits::bytes("logistic.onnx"));
    assert_eq!(api.delete("/v1/models/stored").await.status, 204);
    api.get("/v1/models/stored/file")
        .await
        .problem(404, "model_not_found");
    api.get("/v1/models/stored")
        .await
        .problem(404, "model_not_found");
    api.delete("/v1/models/stored")
        .await
        .problem(404, "model_not_found");
    let left = api.get("/v1/applications/digits/variants").await.json(200);
    let left = left["variants"].as_array().expect("a list");
    assert!(left.iter().all(|variant| variant["model"] != "stored"));
    api.post("/v1/queries", &query)
        .await
        .problem(404, "model_not_found");
}

#[tokio::test]
async fn a_validation_set_may_be_json_lines() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let images = digits::Images::load("validation");
    let lines: String = (0..images.len())
        .map(|index| {
            let record = json!({
                "inputs": {"pixels": images.pixels(index)}, "label": images.labels[index]
            });
            format!("{record}\n")
        })
        .collect();
    let upload = Upload {
        validation: lines.into_bytes(),
        validation_name: "validation.jsonl",
        ..digits::upload("digits", "lines", "logistic")
    };
    let job = api.register(upload).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let accuracy = |name: &'static str| {
        let api = api.clone();
        async move {
            let path = format!("/v1/variants/{name}-ort-fp32-all-t1-b1");
            api.get(&path).await.json(200)["accuracy"]["value"].clone()
        }
    };
    assert_eq!(accuracy("lines").await, accuracy("logistic").await);
}

/// A model without labels by mistake ranks above no other: its agreement with itself is not accuracy.
#[tokio::test]
async fn agreement_meets_no_accuracy() {
    let cluster = TestCluster::start(Settings::default());
    let api = cluster.api();
    api.create_application("agrees").await;
    let labelled = digits::upload("agrees", "labelled", "logistic");
    assert_eq!(api.register(labelled).await["state"], "succeeded");
    let images = digits::Images::load("validation");
    let record = |at| format!("{}\n", json!({"inputs": {"pixels": images.pixels(at)}}));
    let unlabelled = || Upload {
        validation: (0..images.len())
            .map(record)
            .collect::<String>()
            .into_bytes(),
        validation_name: "validation.jsonl",
        ..digits::upload("agrees", "agrees", "logistic")
    };
    let job = api.register(unlabelled()).await;
    assert_eq!(job["result"]["measures"], "agreement", "{job}");
    let query = |targets: Value| json!({"application": "agrees", "targets": targets, "inputs": images.input(0)});
    let best = json!({"min_accuracy": 0.99});
    let problem = api.post("/v1/queries", &query(best)).await;
    let problem = problem.problem(422, "target_infeasible");
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(detail.contains("measured, sure of"), "{detail}");
    let named = json!({"model": "agrees", "inputs": images.input(0)});
    let answer = api.post("/v1/queries", &named).await.json(200);
    assert_eq!(answer["targets_met"], true, "{answer}");
    let share = json!({"min_relative_accuracy": 0.99});
    let answer = api.post("/v1/queries", &query(share)).await.json(200);
    assert_eq!(answer["targets_met"], true, "{answer}");
    let variants = api.get("/v1/models/agrees/variants").await.json(200);
    let kinds = variants["variants"].as_array().expect("a list").iter();
    assert!(
        kinds
            .map(|it| &it["accuracy"]["kind"])
            .all(|it| it == "agreement")
    );
    let frontier = api.get("/v1/models/labelled/variants").await.json(200);
    let frontier = frontier["variants"].as_array().expect("a list").iter();
    assert!(frontier.into_iter().any(|it| it["dominated_by"].is_null()));
}

#[tokio::test]
async fn another_name_under_the_same_application_is_the_applications() {
    let cluster = digits::service(Settings::default()).await;
    let model = onnx::Model {
        input: "image",
        ..onnx::Model::default()
    };
    let record = json!({"inputs": {"image": vec![1.0; digits::PIXELS]}, "label": 1});
    let upload = Upload {
        model: model.bytes(),
        validation: format!("{record}\n").repeat(10).into_bytes(),
        validation_name: "validation.jsonl",
        ..digits::upload("digits", "other-name", "logistic")
    };
    let api = cluster.api();
    let job = api.register(upload).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let input = digits::Images::load("test").input(0);
    let query = json!({"model": "other-name", "inputs": input});
    api.post("/v1/queries", &query).await.json(200);
}

/// A model of [`onnx::HostileModel`] with a name of its own.
fn hostile(name: &str, model: onnx::HostileModel) -> Upload<'_> {
    Upload {
        application: name,
        name,
        model: model.bytes(),
        validation: onnx::HostileModel::RECORDS.into(),
        validation_name: "validation.jsonl",
    }
}

#[tokio::test]
async fn a_model_that_is_hard_on_an_engine_fails_alone() {
    let cluster = TestCluster::start(Settings {
        set: vec![
            "variants.engines=ort,rten".to_owned(),
            "variants.max_threads=1".to_owned(),
            // The deep one is read within this time on any processor.
            "variants.longest_step_ms=10000".to_owned(),
            "variants.memory_bytes=3221225472".to_owned(),
        ],
        ..Settings::default()
    });
    let api = cluster.api();
    for name in ["endless", "deep", "huge", "good"] {
        api.create_application(name).await;
    }
    let endless = hostile("endless", onnx::HostileModel::Endless);
    assert_eq!(failure(&api, endless).await, "time_exceeded");
    // This is a gigabyte more than the limit and less than the machine has.
    let huge = hostile("huge", onnx::HostileModel::Huge(4 << 30));
    assert_eq!(failure(&api, huge).await, "memory_exceeded");
    // An engine that recurses by the depth of the graph has enough stack for it.
    let deep = api
        .register(hostile("deep", onnx::HostileModel::Chain(6000)))
        .await;
    assert_eq!(deep["state"], "succeeded", "{deep}");
    let good = api.register(hostile("good", onnx::HostileModel::No)).await;
    assert_eq!(good["state"], "succeeded", "{good}");
    for name in ["deep", "good"] {
        let query = json!({"application": name, "inputs": [
            {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [3.0, -1.0]},
        ]});
        let answer = api.post("/v1/queries", &query).await.json(200);
        assert_eq!(
            answer["outputs"][0]["data"],
            json!([3.0, 0.0]),
            "{name}: {answer}"
        );
    }
}

#[tokio::test]
async fn a_registration_that_never_ends_can_be_cancelled_and_the_next_one_proceeds() {
    let cluster = TestCluster::start(Settings {
        set: vec![
            "variants.engines=ort".to_owned(),
            "variants.max_threads=1".to_owned(),
        ],
        ..Settings::default()
    });
    let api = cluster.api();
    for name in ["endless", "good"] {
        api.create_application(name).await;
    }
    let accepted = api
        .upload(hostile("endless", onnx::HostileModel::Endless))
        .await
        .json(202);
    let job = accepted["job"].as_str().expect("a job").to_owned();
    sextant_tests::until("an engine runs the model", || async {
        let step = api.job(&job).await["step"].clone();
        let runs = ["inspect", "generate:int8s", "measure:ort-fp32-basic-t1"];
        step.as_str()
            .is_some_and(|step| runs.contains(&step))
            .then_some(())
    })
    .await;
    assert!(
        api.delete(&format!("/v1/jobs/{job}"))
            .await
            .status
            .is_success()
    );
    let good = api.register(hostile("good", onnx::HostileModel::No)).await;
    assert_eq!(good["state"], "succeeded", "{good}");
}
