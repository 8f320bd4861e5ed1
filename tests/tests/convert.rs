//! Models in the formats of Python's libraries, which `sextant register` converts with a Python that their owner names.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};
use sextant_test_servers::cache;
use sextant_tests::{Settings, TestCluster, root, sextant, until};

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

/// A folder with files that the libraries have written.
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

/// Registers a model of the folder under its own name; `more` has further arguments.
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

/// Files that other libraries have written: `tests/saved/make.py`.
fn saved(name: &str) -> String {
    let path = root().join("tests/saved").join(name);
    path.to_string_lossy().into_owned()
}

/// A folder in Hugging Face's format, whose weights nothing reads here.
fn hugging_face(folder: &Path, weights: &str, more: &str) -> String {
    let config = format!(r#"{{"architectures": ["BertForSequenceClassification"]{more}}}"#);
    std::fs::create_dir_all(folder).expect("a folder");
    std::fs::write(folder.join("config.json"), config).expect("is written");
    std::fs::write(folder.join(weights), "").expect("is written");
    folder.to_string_lossy().into_owned()
}

/// The command line with a separate folder for temporary files.
fn client(cluster: &TestCluster, temporary: &Path) -> Command {
    let mut command = Command::new(sextant());
    command.args(["--server", cluster.address()]);
    command.env("TMPDIR", temporary).stdin(Stdio::null());
    command
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder)
        .expect("a folder")
        .next()
        .is_none()
}

#[test]
fn what_is_missing_is_named_before_code_is_run() {
    let (cluster, folder) = (TestCluster::start(Settings::default()), trained());
    let own = python("python-models").to_string_lossy().into_owned();
    let bare = python("python").to_string_lossy().into_owned();
    let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let safe = hugging_face(&folder.path().join("safe"), "model.safetensors", "");
    let pickled = hugging_face(&folder.path().join("pickled"), "pytorch_model.bin", "");
    let code = r#", "auto_map": {"AutoModel": "own.Own"}"#;
    let code = hugging_face(&folder.path().join("code"), "model.safetensors", code);
    let trusted = ["--python", &bare, "--trust"];
    let cases: [(String, &[&str], &str, &str); 17] = [
        (at("linear.pkl"), &[], "python_needed", "skl2onnx"),
        (
            at("linear.pkl"),
            &["--python", &own],
            "trust_needed",
            "--trust",
        ),
        (
            at("linear.pkl"),
            &trusted,
            "package_missing",
            "-m pip install scikit-learn",
        ),
        (
            at("list.pkl"),
            &["--python", &own, "--trust"],
            "refused",
            "builtins.list",
        ),
        (
            at("damaged.pkl"),
            &["--python", &own, "--trust"],
            "failed",
            "broke",
        ),
        (saved("script.pt"), &[], "python_needed", "torch and onnx"),
        (
            saved("script.pt"),
            &["--python", &bare],
            "package_missing",
            "-m pip install torch",
        ),
        (
            saved("module.pt"),
            &["--python", &bare],
            "trust_needed",
            "runs the code",
        ),
        (
            saved("program.pt2"),
            &["--python", &bare],
            "trust_needed",
            "pickles",
        ),
        (
            saved("module.pt"),
            &trusted,
            "package_missing",
            "-m pip install torch onnxscript",
        ),
        (
            saved("weights.pt"),
            &trusted,
            "weights_alone",
            "torch.export.save",
        ),
        (
            saved("dense.weights.h5"),
            &trusted,
            "weights_alone",
            "model.save",
        ),
        (
            saved("dense.keras"),
            &["--python", &bare],
            "package_missing",
            "-m pip install keras tensorflow tf2onnx",
        ),
        (
            saved("saved_model"),
            &["--python", &bare],
            "package_missing",
            "-m pip install tensorflow",
        ),
        (
            safe,
            &["--python", &bare],
            "package_missing",
            "transformers",
        ),
        (
            pickled,
            &["--python", &bare],
            "trust_needed",
            "pytorch_model.bin",
        ),
        (code, &["--python", &bare], "trust_needed", "Python files"),
    ];
    for (model, more, code, says) in cases {
        let output = client(&cluster, folder.path())
            .args([
                "register", "-a", "iris", "--name", "other", "--model", &model,
            ])
            .args(["--validation", &at("iris.npz")])
            .args(more)
            .output()
            .expect("the command runs");
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{model}: {said}");
        let code = format!("error[conversion_{code}]");
        assert!(said.contains(&code), "{model}: {said}");
        assert!(said.contains(says), "{model}: {said}");
    }
}

#[test]
fn the_onnx_file_can_be_kept_and_nothing_else_is() {
    let (cluster, folder) = (TestCluster::start(Settings::default()), trained());
    let temporary = tempfile::tempdir().expect("a folder");
    let own = python("python-models");
    let kept = folder.path().join("kept.onnx");
    let (model, validation) = (
        folder.path().join("linear.pkl"),
        folder.path().join("iris.npz"),
    );
    let mut command = client(&cluster, temporary.path());
    command.args(["register", "-a", "iris", "--name", "linear", "--trust"]);
    command.arg("--model").arg(&model).arg("--python").arg(&own);
    command
        .arg("--validation")
        .arg(validation)
        .arg("--keep-onnx")
        .arg(&kept);
    let output = command.output().expect("the command runs");
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    let begins = format!("converting {} with skl2onnx ", model.display());
    assert!(said.contains(&begins), "{said}");
    assert!(said.contains(&format!("in {} ..", own.display())), "{said}");
    let inspected = cluster.client(&["inspect", &kept.to_string_lossy()]);
    assert!(inspected.status.success(), "{inspected:?}");
    assert!(is_empty(temporary.path()), "something was left behind");
}

#[tokio::test]
async fn an_interruption_ends_the_conversion_and_leaves_nothing() {
    let (cluster, folder) = (TestCluster::start(Settings::default()), trained());
    let temporary = tempfile::tempdir().expect("a folder");
    let mut command = client(&cluster, temporary.path());
    command.args(["register", "-a", "iris", "--name", "slow", "--trust"]);
    command.args(["--model", "slow.pkl", "--validation", "iris.npz"]);
    command.arg("--python").arg(python("python-models"));
    command.current_dir(folder.path()).stderr(Stdio::piped());
    let child = command.spawn().expect("the command runs");
    let begun = folder.path().join("begun");
    let loads = until("the pickle is loaded", || async {
        let id = std::fs::read_to_string(&begun).ok()?;
        id.parse::<i32>().ok().and_then(Pid::from_raw)
    });
    let loads = loads.await;
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    kill_process(id.expect("an id"), Signal::INT).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    let said = said(&output);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("error[conversion_interrupted]"), "{said}");
    until("the process that converts is gone", || async {
        test_kill_process(loads).is_err().then_some(())
    })
    .await;
    assert!(is_empty(temporary.path()), "something was left behind");
}

#[test]
fn a_layer_of_code_is_seen_however_its_name_is_escaped() {
    let script = r#"
import json, sys
sys.path.insert(0, sys.argv[1])
from convert import keras_and_tensorflow as keras
layers = '{"config": {"layers": [{"class_name": "Dense"}, {"class_name": "\\u004cambda", "config": {}}]}}'
assert keras.has_code(json.loads(layers))
assert keras.has_code({"config": {"activation": {"class_name": "__lambda__"}}})
assert not keras.has_code({"config": {"name": "Lambda", "layers": [{"class_name": "Dense"}]}})
"#;
    let output = Command::new(python("python-models"))
        .args(["-c", script])
        .arg(root().join("server/src/cli/register"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("Python runs");
    assert!(output.status.success(), "{}", said(&output));
}
