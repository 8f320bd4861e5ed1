//! `/v1/models`: models as people's libraries export them.

use std::{fs, path::PathBuf};

use reqwest::multipart::{Form, Part};
use serde_json::{Value, json};
use sextant_tests::{
    Api, Settings, TestCluster, digits,
    onnx::{Rows, scaled, shares},
};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("exports")
        .join(name)
}

fn file(name: &str) -> Vec<u8> {
    fs::read(path(name)).expect("the export is there")
}

fn index() -> Value {
    serde_json::from_slice(&file("exports.json")).expect("the index is JSON")
}

/// Sends a registration and returns its job when it has ended.
async fn hand_in(api: &Api, form: Form) -> Value {
    let accepted = api.multipart("/v1/models", form).await.json(202);
    api.job_over(accepted["job"].as_str().expect("a job")).await
}

/// Sends a model an input that it does not accept.
async fn ask_in_vain(api: &Api, model: &str, input: Value) {
    let query = json!({"model": model, "inputs": [input]});
    let refused = api.post("/v1/queries", &query).await;
    refused.problem(400, "invalid_tensor");
}

/// Registers an export for an application of its own and returns the job when it has ended.
pub async fn register(api: &Api, name: &str, (model, outputs): (&str, &[&str])) -> Value {
    let metric = &index()[name]["metric"];
    let body = json!({"name": model, "metric": metric});
    api.post("/v1/applications", &body).await.created();
    let part =
        |suffix: &str| Part::bytes(file(&format!("{name}.{suffix}"))).file_name(name.to_owned());
    let mut form = Form::new()
        .text("name", model.to_owned())
        .text("application", model.to_owned());
    for output in outputs {
        form = form.text("output", (*output).to_owned());
    }
    if fs::exists(path(&format!("{name}.onnx.data"))).is_ok_and(|exists| exists) {
        let data = Part::bytes(file(&format!("{name}.onnx.data")));
        form = form.part("data", data.file_name(format!("{name}.onnx.data")));
    }
    let form = form
        .part("model", part("onnx"))
        .part("validation", part("npz"));
    hand_in(api, form).await
}

/// The measured accuracy in single precision.
async fn accuracy(api: &Api, model: &str) -> f64 {
    let path = format!("/v1/models/{model}/variants");
    let answer = api.get(&path).await.json(200);
    let mut variants = answer["variants"].as_array().expect("a list").iter();
    let single = variants.find(|of| of["precision"] == "fp32" && of["engine"] == "ort");
    single.expect("it runs")["accuracy"]["value"]
        .as_f64()
        .expect("a number")
}

#[tokio::test]
async fn what_libraries_export_registers_and_is_measured_as_they_do() {
    let cluster = TestCluster::start(Settings::default());
    let api = cluster.api();
    let index = index();
    for (name, of) in index.as_object().expect("an object") {
        if of["flags"]
            .as_array()
            .is_some_and(|flags| !flags.is_empty())
        {
            continue;
        }
        let job = register(&api, name, (name, &[])).await;
        assert_eq!(job["state"], "succeeded", "{name}: {job}");
        let (measured, reaches) = (
            accuracy(&api, name).await,
            of["reaches"].as_f64().expect("a number"),
        );
        // The libraries compute in 64 bits.
        let scale = if of["metric"] == "mae" { reaches } else { 1.0 };
        assert!(
            (measured - reaches).abs() <= 0.01 * scale,
            "{name}: {measured} for {reaches}"
        );
        // Only scales that a model computes over a whole batch keep queries apart.
        let apart = apart(&api, name).await;
        assert!(
            apart.iter().all(|it| it.contains("-int8d-")),
            "{name}: {apart:?}"
        );
    }
}

/// The variants of a model that run one query at a time.
async fn apart(api: &Api, model: &str) -> Vec<String> {
    let page = api.get(&format!("/v1/models/{model}")).await.json(200);
    let reasons = page["apart"].as_object().into_iter().flatten();
    let names = reasons.filter_map(|(_, names)| names.as_array());
    let names = names.flatten().filter_map(Value::as_str);
    names.map(str::to_owned).collect()
}

#[tokio::test]
async fn shapes_that_are_not_declared_are_found() {
    let cluster = TestCluster::start(Settings::default());
    let api = cluster.api();
    let job = register(&api, "sklearn-without-shapes", ("diabetes", &[])).await;
    let changes = job["result"]["changes"].to_string();
    assert!(
        changes.contains("[?, 10] is taken from the validation set"),
        "{job}"
    );
    assert!(changes.contains("[?, 1] was found by running it"), "{job}");
    let short = json!({"name": "X", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]});
    ask_in_vain(&api, "diabetes", short).await;
}

#[tokio::test]
async fn a_map_from_class_to_probability_is_answered_as_a_tensor() {
    let cluster = TestCluster::start(Settings::default());
    let api = cluster.api();
    let job = register(&api, "sklearn-class-names", ("flowers", &[])).await;
    assert_eq!(
        job["result"]["scored_output"], "output_probability",
        "{job}"
    );
    let changes = job["result"]["changes"].to_string();
    assert!(
        changes.contains("`output_probability` was a map"),
        "{changes}"
    );
    // NumPy's 64-bit floats are accepted unchanged.
    let query = json!({"model": "flowers", "targets": {"min_accuracy": 0.9}, "inputs": [
        {"name": "X", "shape": [1, 4], "datatype": "FP64", "data": [5.1, 3.5, 1.4, 0.2]},
    ]});
    let answer = api.post("/v1/queries", &query).await.json(200);
    let outputs = answer["outputs"].as_array().expect("a list");
    let names: Vec<&Value> = outputs.iter().map(|output| &output["name"]).collect();
    assert_eq!(names, ["output_label", "output_probability"], "{answer}");
    assert_eq!(outputs[0]["data"], json!(["setosa"]), "{answer}");
    assert_eq!(outputs[1]["shape"], json!([1, 3]), "{answer}");
}

#[tokio::test]
async fn the_most_likely_classes_come_with_their_names() {
    let cluster = TestCluster::start(Settings::default());
    let api = cluster.api();
    let job = register(&api, "sklearn-class-names", ("flowers", &[])).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let model = api.get("/v1/models/flowers").await.json(200);
    assert_eq!(model["scored_output"], "output_probability", "{model}");
    let names = json!(["setosa", "versicolor", "virginica"]);
    assert_eq!(model["classes"], names, "{model}");

    let rows = [5.1, 3.5, 1.4, 0.2, 6.3, 3.3, 6.0, 2.5];
    let input = json!({"name": "X", "shape": [2, 4], "datatype": "FP32", "data": rows});
    let mut query = json!({"application": "flowers", "classification": 2, "inputs": [input]});
    let answer = api.post("/v1/queries", &query).await.json(200);
    let best = |row: usize| &answer["classification"][row][0];
    assert_eq!(best(0)["name"], "setosa", "{answer}");
    assert_eq!(
        (&best(1)["class"], &best(1)["name"]),
        (&json!(2), &json!("virginica")),
        "{answer}"
    );
    let scores = &answer["outputs"][1]["data"];
    assert_eq!(best(0)["score"], scores[0], "{answer}");
    for row in 0..2 {
        let likely = answer["classification"][row].as_array().expect("a list");
        assert_eq!(likely.len(), 2, "{answer}");
        let score = |at: usize| likely[at]["score"].as_f64().expect("a number");
        assert!(score(0) >= score(1), "{answer}");
    }
    query["classification"] = json!(0);
    let refused = api.post("/v1/queries", &query).await;
    refused.problem(400, "invalid_request");

    // Classifications of the Open Inference Protocol have the form `score:position:name`.
    let mut infer = json!({"inputs": [input], "outputs": [
        {"name": "output_probability", "parameters": {"classification": 9}}]});
    let path = "/v2/models/flowers/infer";
    let answer = api.post(path, &infer).await.json(200);
    let output = &answer["outputs"][0];
    assert_eq!(
        (&output["datatype"], &output["shape"]),
        (&json!("BYTES"), &json!([2, 3])),
        "{answer}"
    );
    let first = output["data"][0].as_str().expect("a text");
    assert!(first.ends_with(":0:setosa"), "{first}");
    infer["outputs"][0]["name"] = json!("output_label");
    let refused = api.post(path, &infer).await;
    refused.problem(400, "invalid_tensor");
}

#[tokio::test]
async fn classes_are_named_by_whoever_registers() {
    let cluster = TestCluster::start(Settings::default());
    let api = cluster.api();
    api.create_application("digits").await;
    let form = |name: &str, classes: &str| {
        Form::new()
            .text("name", name.to_owned())
            .text("application", "digits")
            .text("classes", classes.to_owned())
            .part("model", Part::bytes(digits::bytes("mlp.onnx")))
            .part("validation", Part::bytes(digits::bytes("validation.npz")))
    };
    let ten = "zero\none\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n";
    for refused in ["", "one\n\ntwo", "one\ntwo\none"] {
        let answer = api.multipart("/v1/models", form("mlp", refused)).await;
        answer.problem(400, "invalid_request");
    }
    let accepted = api
        .multipart("/v1/models", form("two", "one\ntwo"))
        .await
        .json(202);
    let job = api.job_over(accepted["job"].as_str().expect("a job")).await;
    assert_eq!(job["error"]["code"], "invalid_request", "{job}");
    let message = job["error"]["message"].as_str().expect("a message");
    assert!(
        message.contains("names `2` classes") && message.contains("`10` columns"),
        "{message}"
    );
    let accepted = api
        .multipart("/v1/models", form("mlp", ten))
        .await
        .json(202);
    let job = api.job_over(accepted["job"].as_str().expect("a job")).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let model = api.get("/v1/models/mlp").await.json(200);
    assert_eq!(model["classes"][7], "seven", "{model}");
}

#[tokio::test]
async fn an_output_that_keeps_a_model_from_batches_is_named_and_can_be_left_out() {
    let cluster = TestCluster::start(Settings::default());
    let api = cluster.api();
    let job = register(&api, "sklearn-qda", ("whole", &[])).await;
    assert_eq!(job["error"]["code"], "invalid_validation_set", "{job}");
    let message = job["error"]["message"].as_str().expect("a message");
    assert!(
        message.contains("`--output output_probability`"),
        "{message}"
    );
    let job = register(&api, "sklearn-qda", ("part", &["output_probability"])).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let model = api.get("/v1/models/part").await.json(200);
    assert_eq!(model["outputs"], json!(["output_probability"]), "{model}");
    let job = register(&api, "sklearn-qda", ("other", &["probability"])).await;
    assert_eq!(job["error"]["code"], "invalid_model", "{job}");
    let message = job["error"]["message"].as_str().expect("a message");
    assert!(
        message.contains("`output_label`, `output_probability`"),
        "{message}"
    );
}

#[tokio::test]
async fn elements_that_the_models_type_cannot_hold_are_refused() {
    let cluster = TestCluster::start(Settings::default());
    let api = cluster.api();
    let job = register(&api, "sklearn-linear-regressor", ("line", &[])).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let ask = async |data_type: &str, value: Value| {
        let query = json!({"model": "line", "inputs": [
            {"name": "X", "shape": [1, 10], "datatype": data_type, "data": vec![value; 10]},
        ]});
        api.post("/v1/queries", &query).await
    };
    ask("INT32", json!(3)).await.json(200);
    ask("FP64", json!(0.1)).await.json(200);
    let refused = ask("FP64", json!(1e300)).await.json(400);
    assert_eq!(refused["code"], "invalid_tensor", "{refused}");
    let refused = ask("INT32", json!(16_777_217)).await.json(400);
    let detail = refused["detail"].as_str().expect("a detail");
    assert!(
        detail.contains("`16777217` is not exact in FP32"),
        "{detail}"
    );
    let refused = ask("BYTES", json!("3")).await.json(400);
    assert_eq!(refused["code"], "invalid_tensor", "{refused}");
}

/// Registers a model without labels for an application of its own and returns the job when it has ended.
async fn register_unlabelled(api: &Api, name: &str, model: Vec<u8>, records: String) -> Value {
    let body = json!({"name": name, "metric": "mae"});
    api.post("/v1/applications", &body).await.created();
    let job = try_unlabelled(api, (name, name), model, records).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    job
}

/// Registers a model without labels for an application and returns the job when it has ended.
async fn try_unlabelled(
    api: &Api,
    (application, name): (&str, &str),
    model: Vec<u8>,
    records: String,
) -> Value {
    hand_in(api, unlabelled((application, name), model, records)).await
}

fn unlabelled((application, name): (&str, &str), model: Vec<u8>, records: String) -> Form {
    let part = |bytes: Vec<u8>, file: &'static str| Part::bytes(bytes).file_name(file);
    Form::new()
        .text("name", name.to_owned())
        .text("application", application.to_owned())
        .text("labels", "none")
        .part("model", part(model, "model.onnx"))
        .part("validation", part(records.into_bytes(), "validation.jsonl"))
}

#[tokio::test]
async fn an_input_that_is_the_same_in_every_query_is_given_once() {
    let cluster = TestCluster::start(Settings::default());
    let api = cluster.api();
    let rows: Vec<[f64; 4]> = (0..24).map(|at| [at.into(), 1.0, 2.0, 3.0]).collect();
    let lines = |inputs: &dyn Fn(&[f64; 4]) -> Value| -> String {
        let line = |row: &[f64; 4]| format!("{}\n", json!({"inputs": inputs(row)}));
        rows.iter().map(line).collect()
    };

    // Without the flag each query is one record, and the job says what could be done about it.
    let whole = lines(&|row| json!({"x": [row], "scale": 2.0}));
    let job = register_unlabelled(&api, "whole", scaled(), whole).await;
    let changes = job["result"]["changes"].to_string();
    assert!(changes.contains("`--constant scale=VALUE`"), "{job}");
    let flat = lines(&|row| json!({"x": row, "scale": 2.0}));
    let job = try_unlabelled(&api, ("whole", "flat"), scaled(), flat).await;
    assert_eq!(job["error"]["code"], "invalid_validation_set", "{job}");
    assert!(
        job.to_string().contains("`--constant scale=VALUE`"),
        "{job}"
    );

    let body = json!({"name": "scaled", "metric": "mae"});
    api.post("/v1/applications", &body).await.created();
    let records = lines(&|row| json!({"x": row}));
    let with = |name: &str, constant: &str| {
        let form = unlabelled(("scaled", name), scaled(), records.clone());
        form.text("constant", constant.to_owned())
    };
    let job = hand_in(&api, with("twice", "scale=2")).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let changes = job["result"]["changes"].to_string();
    assert!(
        changes.contains("input `scale` is `2` in every query"),
        "{job}"
    );
    let model = api.get("/v1/models/twice").await.json(200);
    assert_eq!(model["constants"], json!({"scale": [2.0]}), "{model}");
    let x =
        json!({"name": "x", "shape": [2, 4], "datatype": "FP32", "data": [1, 2, 3, 4, 5, 6, 7, 8]});
    let query = json!({"model": "twice", "inputs": [x]});
    let answer = api.post("/v1/queries", &query).await.json(200);
    let doubled = json!([2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0]);
    assert_eq!(answer["outputs"][0]["data"], doubled, "{answer}");
    let scale = json!({"name": "scale", "shape": [], "datatype": "FP32", "data": [3]});
    let query = json!({"model": "twice", "inputs": [x, scale]});
    api.post("/v1/queries", &query)
        .await
        .problem(400, "invalid_tensor");

    // The same registration again is the same version; another value is another version.
    let again = api.multipart("/v1/models", with("twice", "scale=2")).await;
    again.json(200);
    let other = api.multipart("/v1/models", with("twice", "scale=3")).await;
    assert_eq!(other.json(202)["version"], 2);
    for wrong in ["scale", "scale=two", "=2", "scale=1,NaN"] {
        let refused = api.multipart("/v1/models", with("wrong", wrong)).await;
        refused.problem(400, "invalid_request");
    }
    for (wrong, says) in [
        ("factor=2", "its inputs are `x`, `scale`"),
        ("scale=1,2", "`2` values"),
    ] {
        let job = hand_in(&api, with("wrong", wrong)).await;
        assert_eq!(job["error"]["code"], "invalid_model", "{job}");
        assert!(job.to_string().contains(says), "{job}");
    }
}

/// Sends all queries at once, so that an influence between queries of one batch would show.
async fn ask_together(api: &Api, model: &str, inputs: Vec<Value>) -> Vec<Value> {
    let asked = inputs.into_iter().map(|input| {
        let query = json!({"model": model, "inputs": [input]});
        async move { api.post("/v1/queries", &query).await.json(200) }
    });
    futures::future::join_all(asked).await
}

#[tokio::test]
async fn a_vector_of_any_length_is_one_record() {
    let cluster = TestCluster::start(Settings::default());
    let api = cluster.api();
    let record = |length: usize| {
        let values: Vec<f32> = (0..length).map(|at| at as f32 / 4.0).collect();
        format!("{}\n", json!({"inputs": {"x": values}}))
    };
    let job = register_unlabelled(&api, "shares", shares(), (4..16).map(record).collect()).await;
    let changes = job["result"]["changes"].to_string();
    assert!(changes.contains("a query is one record"), "{job}");
    let input = |length: usize| {
        let data = vec![1.0; length];
        json!({"name": "x", "shape": [length], "datatype": "FP32", "data": data})
    };
    let answers = ask_together(&api, "shares", (1..6).map(input).collect()).await;
    for (answer, length) in answers.into_iter().zip(1..) {
        let shares = answer["outputs"][0]["data"].as_array().expect("a list");
        assert_eq!(shares.len(), length, "{answer}");
        for share in shares {
            let share = share.as_f64().expect("a number");
            assert!((share - 1.0 / length as f64).abs() < 1e-4, "{answer}");
        }
    }

    // Without batches no dimension counts rows.
    let x = json!({"name": "x", "shape": [3], "datatype": "FP32", "data": [1, 3, 2]});
    let y = json!({"name": "y", "parameters": {"classification": 2}});
    let question = json!({"inputs": [x], "outputs": [y]});
    let answer = api.post("/v2/models/shares/infer", &question).await;
    let answer = answer.json(200);
    assert_eq!(answer["outputs"][0]["shape"], json!([2]), "{answer}");
}

#[tokio::test]
async fn records_that_do_not_stay_apart_share_no_batch() {
    let cluster = TestCluster::start(Settings::default());
    let api = cluster.api();
    let row = |at: usize| {
        (0..4)
            .map(|column| (at * 7 + column * 3) as f64 % 5.0 / 4.0)
            .collect()
    };
    let rows: Vec<Vec<f64>> = (0..24).map(row).collect();
    let records: String = rows
        .iter()
        .map(|row| format!("{}\n", json!({"inputs": {"x": row}})))
        .collect();
    for (model, kind) in [("mixed", Rows::Mixed), ("one", Rows::One)] {
        let job = register_unlabelled(&api, model, kind.bytes(), records.clone()).await;
        let changes = job["result"]["changes"].to_string();
        assert!(changes.contains("a query is one record: `y`"), "{job}");
        assert!(!apart(&api, model).await.is_empty(), "its page says so");
        let input =
            |row: &Vec<f64>| json!({"name": "x", "shape": [1, 4], "datatype": "FP32", "data": row});
        let answers = ask_together(&api, model, rows.iter().map(input).collect()).await;
        for answer in answers {
            let shares = answer["outputs"][0]["data"].as_array().expect("a list");
            let sum: f64 = shares.iter().filter_map(Value::as_f64).sum();
            // In a row alone, each element is the whole of its column.
            let alone = if model == "mixed" { 4.0 } else { 1.0 };
            assert!((sum - alone).abs() < 1e-4, "{answer}");
            assert_eq!(answer["timings"]["batch_rows"], 1, "{answer}");
        }
        let both = json!({"name": "x", "shape": [2, 4], "datatype": "FP32", "data": vec![0.5; 8]});
        ask_in_vain(&api, model, both).await;
    }
}

#[tokio::test]
async fn answers_that_are_drawn_at_random_are_no_sign_of_mixed_records() {
    let cluster = TestCluster::start(Settings::default());
    let api = cluster.api();
    let record = |at: usize| format!("{}\n", json!({"inputs": {"x": [at, 1, 2, 3]}}));
    let records: String = (0..24).map(record).collect();
    let job = register_unlabelled(&api, "random", Rows::Random.bytes(), records.clone()).await;
    let changes = job["result"]["changes"].to_string();
    assert!(!changes.contains("one record"), "{job}");
    let query = json!({"model": "random", "inputs": [
        {"name": "x", "shape": [2, 4], "datatype": "FP32", "data": vec![0.5; 8]},
    ]});
    let answer = api.post("/v1/queries", &query).await.json(200);
    assert_eq!(answer["outputs"][0]["shape"], json!([2, 4]), "{answer}");

    // A model that takes no batches does not fit this application, and the error says why it takes none.
    let mixed = ("random", "mixed");
    let job = try_unlabelled(&api, mixed, Rows::Mixed.bytes(), records).await;
    assert_eq!(job["error"]["code"], "signature_mismatch", "{job}");
    assert!(job.to_string().contains("a query is one record"), "{job}");
}
