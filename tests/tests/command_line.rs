//! The command line against a running service: what a user types, and the output.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    os::unix::fs::symlink,
    process::Output,
    thread,
};

use npyz::WriterBuilder;
use serde_json::{Value, json};
use sextant_tests::{Settings, TestCluster, command_behind, digits};

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn document(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).expect("JSON on standard output")
}

fn register(cluster: &TestCluster, model: &str, more: &[&str]) -> Output {
    let file = digits::file(&format!("{model}.onnx"));
    let validation = digits::file("validation.npz");
    let (file, validation) = (file.to_string_lossy(), validation.to_string_lossy());
    let arguments = [
        "register",
        "--application",
        "digits",
        "--name",
        model,
        "--model",
        &file,
        "--validation",
        &validation,
    ];
    cluster.client(&[&arguments, more].concat())
}

#[test]
fn from_a_file_to_an_answer() {
    let cluster = TestCluster::start(Settings::default());
    let registered = register(&cluster, "logistic", &["--metric", "top1"]);
    let text = stdout(&registered);
    assert!(
        text.contains("registered `logistic`") && text.contains("on the frontier"),
        "{text}"
    );
    assert!(
        stderr(&registered).contains("succeeded: publish"),
        "the steps are told"
    );
    let again = document(&register(&cluster, "logistic", &["--json"]));
    assert_eq!(again["job"]["state"], "succeeded");
    let variants = document(&cluster.client(&["variants", "--json", "--all"]));
    let all = variants["variants"].as_array().expect("a list").len();
    let table = stdout(&cluster.client(&["variants", "--application", "digits", "--all"]));
    assert_eq!(table.lines().count(), all + 1, "{table}");
    assert!(stdout(&cluster.client(&["models"])).contains("ready"));
    assert!(stdout(&cluster.client(&["applications"])).contains("pixels FP32[-1,64]"));
    assert!(stdout(&cluster.client(&["workers"])).contains("local"));
    let scaling = document(&cluster.client(&["explain", "scaling", "--json"]));
    assert_eq!(scaling["scaling"]["pools"][0]["up"], 1, "{scaling}");
}

#[test]
fn a_query_reads_numpy_and_json() {
    let cluster = TestCluster::start(Settings::default());
    stdout(&register(&cluster, "logistic", &[]));
    let images = digits::Images::load("test");
    let folder = tempfile::tempdir().expect("a folder");
    let numpy = folder.path().join("image.npy");
    let file = fs::File::create(&numpy).expect("a file");
    let mut writer = npyz::WriteOptions::new()
        .default_dtype()
        .shape(&[64])
        .writer(file)
        .begin_nd()
        .expect("the header is written");
    writer
        .extend(images.pixels(0).iter().copied())
        .expect("the pixels are written");
    writer.finish().expect("the file is complete");
    let text = folder.path().join("image.json");
    fs::write(&text, json!([images.pixels(0)]).to_string()).expect("a file");
    let mut digits_read = Vec::new();
    for (addressee, name, path) in [
        ("--application", "digits", &numpy),
        ("--model", "logistic", &text),
    ] {
        let input = format!("pixels=@{}", path.display());
        let arguments = [
            "query",
            addressee,
            name,
            "--min-accuracy",
            "0.9",
            "--input",
            &input,
        ];
        let shown = stdout(&cluster.client(&arguments));
        assert!(shown.contains("variant   logistic-"), "{shown}");
        let answer =
            document(&cluster.client(&[&arguments[..], &["--json", "--explain"]].concat()));
        assert!(answer["explanation"]["reason"].is_string());
        digits_read.push(digits::digit(&answer["outputs"][0]["data"]) as i64);
    }
    assert_eq!(digits_read, [images.labels[0]; 2]);
}

#[test]
fn a_refusal_has_a_code_and_advice() {
    let cluster = TestCluster::start(Settings::default());
    stdout(&register(&cluster, "logistic", &[]));
    let pixels = format!("pixels={:?}", [1; 64]);
    let arguments = [
        "query",
        "--application",
        "digits",
        "--min-accuracy",
        "1",
        "--input",
        &pixels,
    ];
    let refused = cluster.client(&arguments);
    assert_eq!(refused.status.code(), Some(1));
    let text = stderr(&refused);
    assert!(text.starts_with("error[target_infeasible]: "), "{text}");
    assert!(
        text.contains("closest variants:") && text.contains("logistic-ort-"),
        "{text}"
    );
    let refused = cluster.client(&[&arguments[..], &["--json"]].concat());
    let problem: Value = serde_json::from_str(&stderr(&refused)).expect("JSON");
    assert_eq!(problem["code"], "target_infeasible");
    let effort = cluster.client(&[&arguments[..], &["--best-effort"]].concat());
    assert!(stdout(&effort).contains("targets not met"));
    let other = register(&cluster, "logistic", &["--metric", "exact"]);
    assert_eq!(other.status.code(), Some(2), "{}", stderr(&other));
    let missing = cluster.client(&["variants", "--model", "nobody"]);
    assert!(
        stderr(&missing).starts_with("error[model_not_found]"),
        "{}",
        stderr(&missing)
    );
}

#[test]
fn a_registration_that_fails_says_why() {
    let cluster = TestCluster::start(Settings::default());
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("broken.onnx");
    fs::write(&file, "no model").expect("a file");
    let validation = digits::file("validation.npz");
    let failed = cluster.client(&[
        "register",
        "--application",
        "digits",
        "--name",
        "broken",
        "--model",
        &file.to_string_lossy(),
        "--validation",
        &validation.to_string_lossy(),
    ]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(
        stderr(&failed).contains("[invalid_model]"),
        "{}",
        stderr(&failed)
    );
    assert!(stdout(&cluster.client(&["models"])).contains("failed"));
    // The other metric that the refusal may advise is accepted as long as no model was measured with the first.
    let another = register(&cluster, "logistic", &["--metric", "f1"]);
    stdout(&another);
    let told = stderr(&another);
    assert!(
        told.contains("was scored by `top1` and now is by `f1`"),
        "{told}"
    );
    let too_late = register(&cluster, "mlp", &["--metric", "top1"]);
    let told = stderr(&too_late);
    assert_eq!(too_late.status.code(), Some(2), "{told}");
    assert!(
        told.contains("has models, which are scored by `f1`"),
        "{told}"
    );
}

#[test]
fn files_go_in_and_answers_come_out() {
    let cluster = TestCluster::start(Settings::default());
    stdout(&register(&cluster, "logistic", &[]));
    let folder = tempfile::tempdir().expect("a folder");
    let records = folder.path().join("records.jsonl");
    let line = format!("{}\n", json!({"inputs": {"pixels": vec![1; 64]}}));
    fs::write(&records, line.repeat(10)).expect("a file");
    let path = records.to_string_lossy();
    assert!(stdout(&cluster.client(&["artefact", "put", &path, "in/a.jsonl"])).contains("stored"));
    let submitted = cluster.client(&[
        "job",
        "submit",
        "--application",
        "digits",
        "--input",
        "in/a.jsonl",
        "--output",
        "out/a.jsonl",
        "--chunk",
        "3",
        "--wait",
        "--json",
    ]);
    let job = document(&submitted);
    assert_eq!(
        (&job["state"], &job["progress"]["done"]),
        (&json!("succeeded"), &json!(10))
    );
    let id = job["id"].as_str().expect("an id");
    assert!(stdout(&cluster.client(&["job", "show", id])).contains("10/10"));
    assert!(stdout(&cluster.client(&["job", "wait", id])).contains("succeeded"));
    assert!(stdout(&cluster.client(&["job", "list"])).contains(id));
    // More than the service returns without an explicit number.
    for number in 0..100 {
        let output = format!("more/{number}.jsonl");
        let submit = ["job", "submit", "--application", "digits"];
        let files = ["--input", "in/a.jsonl", "--output", &output];
        stdout(&cluster.client(&[submit, files].concat()));
    }
    let listed = document(&cluster.client(&["job", "list", "--json"]));
    let listed = listed["jobs"].as_array().expect("a list");
    assert!(listed.iter().any(|job| job["id"] == id), "the oldest, too");
    assert!(listed.len() > 100, "{}", listed.len());
    assert!(stdout(&cluster.client(&["job", "cancel", id])).contains("succeeded"));
    let answers = stdout(&cluster.client(&["artefact", "get", "out/a.jsonl"]));
    assert_eq!(answers.lines().count(), 10);
    let target = folder.path().join("answers.jsonl");
    stdout(&cluster.client(&["artefact", "get", "out/a.jsonl", &target.to_string_lossy()]));
    assert_eq!(fs::read_to_string(target).expect("a file"), answers);
    // A link to a file that is still to be created.
    let (link, target) = (folder.path().join("link"), folder.path().join("made.jsonl"));
    symlink("made.jsonl", &link).expect("a link");
    stdout(&cluster.client(&["artefact", "get", "out/a.jsonl", &link.to_string_lossy()]));
    assert!(link.is_symlink());
    assert_eq!(fs::read_to_string(target).expect("a file"), answers);
    assert!(stdout(&cluster.client(&["artefact", "list", "out/"])).contains("out/a.jsonl"));
    stdout(&cluster.client(&["artefact", "delete", "out/a.jsonl"]));
    let gone = cluster.client(&["artefact", "get", "out/a.jsonl"]);
    assert!(
        stderr(&gone).starts_with("error[artefact_not_found]"),
        "{}",
        stderr(&gone)
    );
}

#[test]
fn recorded_queries_are_tried_on_what_is_registered() {
    let cluster = TestCluster::start(Settings::default());
    stdout(&register(&cluster, "logistic", &[]));
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (queries, saved) = (path("queries.csv"), path("question.toml"));
    let lines = (0..200).map(|number| format!("{}.{},digits\n", number / 10, number % 10));
    let text = format!("timestamp,application\n{}", lines.collect::<String>());
    fs::write(&queries, text).expect("a file");
    let question = [
        "simulate",
        "--what-if",
        "--registered",
        "--workload",
        &queries,
    ];
    let options = ["--latency-ms", "20,500", "--min-accuracy", "0.9"];
    let rest = ["--policy", "sextant,ilp", "--save", &saved, "--json"];
    let answered = stdout(&cluster.client(&[&question[..], &options, &rest].concat()));
    let value = |metric: &str, cell: &str| {
        let lines = answered.lines().map(serde_json::from_str::<Value>);
        let records = lines.map(|line| line.expect("an object on each line"));
        let mut of = records.filter(|it| {
            let mean = it.get("seed").is_none();
            mean && it["metric"] == metric && it["cell"] == cell && it["policy"] == "sextant"
        });
        of.next().expect("a figure")["value"].as_f64()
    };
    for cell in ["20 ms, accuracy 0.9", "500 ms, accuracy 0.9"] {
        assert_eq!(value("sent_count", cell), Some(200.0), "{answered}");
        assert!(
            value("cost_usd", cell).is_some_and(|cost| cost > 0.0),
            "{answered}"
        );
    }
    let table = stdout(&cluster.client(&[&question[..], &["--policy", "sextant,ilp"]].concat()));
    let rows = table.lines().filter(|line| line.contains("own targets"));
    assert_eq!(rows.count(), 2, "one for each policy: {table}");
    // The service is not needed any more.
    let again = [
        "simulate",
        "--fleet",
        &saved,
        "--policy",
        "sextant,ilp",
        "--json",
    ];
    let again = stdout(&cluster.client(&again));
    assert_eq!(again, answered);
    fs::write(&queries, "timestamp,application\n0,cats\n").expect("a file");
    let unknown = cluster.client(&question);
    assert_eq!(unknown.status.code(), Some(1), "{}", stderr(&unknown));
    assert!(stderr(&unknown).contains("`cats`"), "{}", stderr(&unknown));
}

#[test]
fn files_beside_a_model_are_sent_with_it() {
    let cluster = TestCluster::start(Settings::default());
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("exports");
    let file = |suffix: &str| {
        let file = folder.join(format!("sklearn-external-data.{suffix}"));
        file.to_string_lossy().into_owned()
    };
    let arguments = |model: &str| {
        let (model, validation) = (model.to_owned(), file("npz"));
        ["register", "-a", "beside", "--name", "mlp", "--model"]
            .map(str::to_owned)
            .into_iter()
            .chain([model, "--validation".to_owned(), validation])
            .collect::<Vec<_>>()
    };
    let run = |arguments: &[String]| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        cluster.client(&arguments)
    };
    // Alone in a separate folder, the model lacks these files.
    let elsewhere = tempfile::tempdir().expect("a folder");
    let alone = elsewhere.path().join("model.onnx");
    fs::copy(file("onnx"), &alone).expect("is copied");
    let alone = alone.to_string_lossy().into_owned();
    let refused = stderr(&run(&arguments(&alone)));
    assert!(
        refused.contains("external_data") && refused.contains("--data"),
        "{refused}"
    );
    // A folder with both is a model.
    fs::copy(file("npz"), elsewhere.path().join("validation.npz")).expect("is copied");
    let beside = "sklearn-external-data.onnx.data";
    fs::copy(folder.join(beside), elsewhere.path().join(beside)).expect("is copied");
    let whole = elsewhere.path().to_string_lossy().into_owned();
    let whole = [
        "register", "-a", "beside", "--name", "folder", "--model", &whole,
    ];
    let text = stdout(&cluster.client(&whole));
    assert!(text.contains("registered `folder`"), "{text}");
    let text = stdout(&run(&arguments(&file("onnx"))));
    assert!(text.contains("registered `mlp`"), "{text}");
    assert!(
        text.contains("the data of the files beside the model is put into it"),
        "{text}"
    );
}

/// A model with a data file as long as that of a large one: unwritten parts take no room on the disk.
fn a_large_copy(folder: &std::path::Path, name: &str) -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("a folder");
    for name in [name.to_owned(), format!("{name}.data")] {
        fs::copy(folder.join(&name), copy.path().join(&name)).expect("is copied");
    }
    let data = copy.path().join(format!("{name}.data"));
    let data = fs::OpenOptions::new().write(true).open(data);
    let data = data.expect("it is there");
    data.set_len(600 << 20).expect("it grows");
    copy
}

#[test]
fn a_file_is_inspected_without_a_server() {
    let cluster = TestCluster::start(Settings::default());
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("exports");
    let inspect = |name: &str, more: &[&str]| {
        let file = folder.join(name).to_string_lossy().into_owned();
        cluster.client(&[&["--json", "inspect", &file], more].concat())
    };
    let flowers = document(&inspect("sklearn-class-names.onnx", &[]));
    assert_eq!(flowers["scored_output"], "output_probability");
    assert_eq!(
        flowers["classes"],
        json!(["setosa", "versicolor", "virginica"])
    );
    assert_eq!(flowers["batched"], true);
    let engines = flowers["engines"].as_array().expect("a list");
    let runs = |name: &str| {
        let engine = engines.iter().find(|engine| engine["name"] == name);
        engine.map(|engine| (engine["runs"] == true, engine["reason"].is_string()))
    };
    assert_eq!(runs("ort"), Some((true, false)), "{engines:?}");
    assert_eq!(runs("rten"), Some((false, true)), "{engines:?}");
    let several = stderr(&inspect("", &[]));
    assert!(several.contains("several ONNX files"), "{several}");
    let exact = document(&inspect("sklearn-class-names.onnx", &["--metric", "exact"]));
    assert_eq!(exact["scored_output"], "output_label");
    let trees = document(&inspect("lightgbm.onnx", &[]));
    assert_eq!(
        (&trees["batched"], &trees["may_be_batched"]),
        (&json!(false), &json!(true))
    );
    let beside = document(&inspect("sklearn-external-data.onnx", &[]));
    assert!(beside["weights_bytes"].as_u64() > Some(1000), "{beside}");
    let large = a_large_copy(&folder, "sklearn-external-data.onnx");
    let file = large.path().join("sklearn-external-data.onnx");
    let large = document(&cluster.client(&["--json", "inspect", &file.to_string_lossy()]));
    for key in [
        "inputs",
        "outputs",
        "weights_bytes",
        "batched",
        "scored_output",
    ] {
        assert_eq!(large[key], beside[key], "{key}");
    }
    // No tensor is so large that it stays in its file, so engines can be asked.
    assert_eq!(large["engines"], beside["engines"]);
    let wrong = inspect("sklearn-qda.onnx", &["--output", "none"]);
    assert!(
        stderr(&wrong).contains("`output_label`, `output_probability`"),
        "{}",
        stderr(&wrong)
    );
    assert_eq!(wrong.status.code(), Some(2));
    let missing = stderr(&inspect("README.md", &[]));
    assert!(missing.contains("invalid_model"), "{missing}");
    let shapeless = document(&inspect(
        "sklearn-without-shapes.onnx",
        &["--metric", "mae"],
    ));
    assert_eq!(shapeless["inputs"][0]["shape"], Value::Null, "{shapeless}");
    let changes = shapeless["changes"].to_string();
    assert!(
        changes.contains("taken from the validation set"),
        "{changes}"
    );
}

#[test]
fn an_engine_that_a_model_crashes_is_reported() {
    let cluster = TestCluster::start(Settings::default());
    // OpenVINO divides by zero while it loads this.
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/hostile/col2im.onnx");
    let inspected = document(&cluster.client(&["--json", "inspect", file]));
    let engines = inspected["engines"].as_array().expect("a list");
    let openvino = engines.iter().find(|engine| engine["name"] == "openvino");
    let openvino = openvino.expect("it is usual");
    assert_eq!(openvino["runs"], false, "{openvino}");
    let reason = openvino["reason"].as_str().expect("a text");
    assert!(reason.contains("process ended by signal"), "{reason}");
}

#[test]
fn a_download_that_breaks_leaves_what_was_there() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let target = folder.path().join("answers.jsonl");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let server = thread::spawn(move || {
        for _ in 0..2 {
            let (stream, _) = listener.accept().expect("a client");
            let head = BufReader::new(&stream).lines();
            let mut head = head.map(|line| line.expect("a line"));
            assert!(head.any(|line| line.is_empty()), "the head ends");
            let half = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nhalf of it";
            (&stream).write_all(half).expect("it is sent");
        }
    });
    let get = || {
        let mut command = command_behind(&[]);
        command.args(["--server", &format!("http://{address}"), "artefact", "get"]);
        let broken = command.arg("out/a.jsonl").arg(&target).output();
        let broken = broken.expect("the binary can be started");
        assert!(!broken.status.success(), "half a file is no file");
    };
    get();
    let mut left = fs::read_dir(folder.path()).expect("a folder");
    assert!(left.next().is_none(), "nothing is left of it");
    fs::write(&target, "before").expect("it is written");
    get();
    assert_eq!(fs::read_to_string(&target).expect("a file"), "before");
    let left = fs::read_dir(folder.path()).expect("a folder");
    assert_eq!(left.count(), 1);
    server.join().expect("two clients came");
}
