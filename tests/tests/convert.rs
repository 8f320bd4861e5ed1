//! Models as Python's libraries keep them: pickles, which `sextant register` converts in a Python that their owner names.

use std::{path::PathBuf, process::Command, process::Output};

use serde_json::{Value, json};
use sextant_test_servers::cache;
use sextant_tests::{Settings, TestCluster, root};

/// A Python of the cache.
fn python(environment: &str) -> PathBuf {
    let python = cache().expect("a home folder").join(environment);
    let python = python.join("bin/python3");
    assert!(
        python.is_file(),
        "`{environment}` is missing: run `cargo xtask provision`"
    );
    python
}

/// A folder with what the libraries have written.
fn trained() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new(python("python-models"))
        .arg(root().join("tests/convert/train.py"))
        .arg(folder.path())
        .output()
        .expect("Python runs");
    assert!(output.status.success(), "{output:?}");
    folder
}

/// Registers a model of the folder under its own name; `more` are further arguments.
fn register(
    cluster: &TestCluster,
    folder: &tempfile::TempDir,
    (model, validation): (&str, &str),
    more: &[&str],
) -> Output {
    let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let name = model.split('.').next().unwrap_or(model);
    let application = validation.split('.').next().unwrap_or(validation);
    let (model, validation) = (at(model), at(validation));
    let arguments = [
        "register",
        "-a",
        application,
        "--name",
        name,
        "--model",
        &model,
    ];
    cluster.client(&[&arguments[..], &["--validation", &validation], more].concat())
}

fn said(output: &Output) -> String {
    let said = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test]
async fn pickled_models_are_converted_and_answer() {
    let (cluster, folder) = (TestCluster::start(Settings::default()), trained());
    let own = python("python-models").to_string_lossy().into_owned();
    let trusted = ["--python", &own, "--trust"];
    for (model, validation, type_of) in [
        ("linear.pkl", "iris.npz", "LogisticRegression"),
        ("pipeline.joblib", "iris.npz", "Pipeline"),
        ("boosted.pkl", "iris.npz", "LGBMClassifier"),
        ("table.pkl", "table.csv", "Pipeline"),
    ] {
        let output = register(&cluster, &folder, (model, validation), &trusted);
        let said = said(&output);
        assert!(output.status.success(), "{model}: {said}");
        assert!(
            said.contains(&format!("a {type_of} of ")),
            "{model}: {said}"
        );
    }
    let row =
        json!({"name": "X", "shape": [1, 4], "datatype": "FP32", "data": [5.1, 3.5, 1.4, 0.2]});
    for model in ["linear", "pipeline", "boosted"] {
        let query = json!({"model": model, "inputs": [row]});
        let answer = cluster.api().post("/v1/queries", &query).await.json(200);
        let outputs = answer["outputs"].as_array().expect("a list");
        let is_label = |output: &&Value| output["datatype"] == "INT64";
        let label = outputs.iter().find(is_label).expect("a label");
        assert_eq!(label["data"], json!([0]), "{answer}");
    }
    let column = |name: &str, datatype: &str, value: Value| json!({"name": name, "shape": [1, 1], "datatype": datatype, "data": [value]});
    let inputs = [
        column("colour", "BYTES", json!("red")),
        column("size", "FP32", json!(6.0)),
    ];
    let query = json!({"model": "table", "inputs": inputs});
    cluster.api().post("/v1/queries", &query).await.json(200);
}

#[test]
fn what_is_missing_is_named_before_code_is_run() {
    let (cluster, folder) = (TestCluster::start(Settings::default()), trained());
    let own = python("python-models").to_string_lossy().into_owned();
    let bare = python("python").to_string_lossy().into_owned();
    let iris = |model| (model, "iris.npz");
    for (model, more, says) in [
        (iris("linear.pkl"), vec![], "--python"),
        (iris("linear.pkl"), vec!["--python", &own], "--trust"),
        (
            iris("linear.pkl"),
            vec!["--python", &bare, "--trust"],
            "pip install scikit-learn",
        ),
        (
            iris("list.pkl"),
            vec!["--python", &own, "--trust"],
            "builtins.list",
        ),
        (
            iris("iris.npz.pkl"),
            vec!["--python", &own, "--trust"],
            "cannot be loaded",
        ),
    ] {
        let output = register(&cluster, &folder, model, &more);
        let said = said(&output);
        assert!(!output.status.success(), "{said}");
        assert!(said.contains(says), "{said}");
    }
}
