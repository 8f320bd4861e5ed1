//! Resources are created, changed, followed, retried and removed with the command line.

use std::{fs, process::Output};

use serde_json::{Value, json};
use sextant_tests::{Settings, TestCluster, Upload, digits};

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn document(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).expect("JSON on standard output")
}

#[test]
fn an_application_is_created_changed_and_deleted() {
    let cluster = TestCluster::start(Settings::default());
    let run =
        |arguments: &[&str]| cluster.client(&[&["--json", "application"], arguments].concat());
    let created = document(&run(&[
        "create",
        "digits",
        "--latency-ms",
        "50",
        "--preset",
        "fast:latency_ms=5,min_accuracy=0.9",
    ]));
    assert_eq!(created["default_targets"], json!({"latency_ms": 50.0}));
    let fast = json!({"latency_ms": 5.0, "min_accuracy": 0.9});
    assert_eq!(created["presets"], json!({"fast": fast}));
    let changed = document(&run(&[
        "set",
        "digits",
        "--latency-ms",
        "none",
        "--min-accuracy",
        "0.8",
        "--description",
        "written by hand",
        "--remove-preset",
        "fast",
    ]));
    assert_eq!(changed["default_targets"], json!({"min_accuracy": 0.8}));
    assert!(changed.get("presets").is_none(), "{changed}");
    assert_eq!(changed["description"], "written by hand");
    assert_eq!(document(&run(&["get", "digits"])), changed);
    assert_eq!(
        document(&run(&["delete", "digits"])),
        json!({"deleted": "digits"})
    );
    let gone = run(&["get", "digits"]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(
        stderr(&gone).contains("application_not_found"),
        "{}",
        stderr(&gone)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_named_and_its_failed_records_can_fail_the_command() {
    let cluster = digits::with_mlp(&[]).await;
    let api = cluster.api();
    let good = json!({"pixels": digits::Images::load("test").pixels(0)});
    let records = format!("{good}\n{{\"pixels\": [1, 2]}}\n{good}\n");
    api.put("/v1/artefacts/in.jsonl", records).await;
    let submit = |more: &[&str]| {
        let arguments = [
            "job",
            "submit",
            "-a",
            "digits",
            "--input",
            "in.jsonl",
            "--output",
            "out.jsonl",
            "--wait",
        ];
        cluster.client(&[&arguments[..], more].concat())
    };
    let tolerant = submit(&[]);
    let text = stdout(&tolerant);
    assert!(text.contains("state     succeeded"), "{text}");
    assert!(text.contains("failed    1"), "{text}");
    let id = text
        .lines()
        .find_map(|line| line.strip_prefix("job "))
        .expect("the job is named")
        .trim();
    assert!(
        stderr(&tolerant).contains(&format!("job `{id}`")),
        "{}",
        stderr(&tolerant)
    );
    let strict = submit(&["--fail-on-errors"]);
    assert_eq!(strict.status.code(), Some(1));
    assert!(
        stderr(&strict).contains("could not answer `1`"),
        "{}",
        stderr(&strict)
    );
    // The only event of a job that has ended is its end.
    let events = api.get(&format!("/v1/jobs/{id}/events")).await;
    assert_eq!(events.headers["content-type"], "text/event-stream");
    let text = events.text();
    let data = text.lines().find_map(|line| line.strip_prefix("data: "));
    let told: Value = serde_json::from_str(data.expect("an event")).expect("JSON");
    assert_eq!(
        (&told["id"], &told["state"]),
        (&json!(id), &json!("succeeded"))
    );
    let deleted = stdout(&cluster.client(&["job", "delete", id]));
    assert!(deleted.contains("is deleted"), "{deleted}");
    api.get(&format!("/v1/jobs/{id}"))
        .await
        .problem(404, "job_not_found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_is_explained_retried_and_deleted() {
    let cluster = digits::with_mlp(&[]).await;
    let api = cluster.api();
    let query = json!({
        "id": "why", "application": "digits", "explain": true, "targets": {"latency_ms": 10000.0},
        "inputs": digits::Images::load("test").input(0)
    });
    let answer = api.post("/v1/queries", &query).await.json(200);
    let kept = api.get("/v1/queries/why").await.json(200);
    assert_eq!(kept["variant"], answer["variant"]);
    assert_eq!(kept["explanation"], answer["explanation"]);
    let us = |name: &str| kept["budget"][name].as_f64().expect("a number");
    let stages = [
        "read_us",
        "load_us",
        "queue_us",
        "run_us",
        "return_us",
        "write_us",
    ];
    let sum: f64 = stages.into_iter().map(us).sum();
    assert!(
        (sum - us("total_us")).abs() <= 1e-3 * us("total_us"),
        "{kept}"
    );
    assert!(us("run_us") > 0.0, "{kept}");

    // The test needs one vector for each row; the scores of a digit serve as such.
    let rows = json!({"model": "digits", "input": [vec![1; 64], vec![2; 64]]});
    let vectors = api.post("/v1/embeddings", &rows).await.json(200);
    let lengths = vectors["data"].as_array().expect("a list").iter();
    let lengths: Vec<usize> = lengths
        .map(|one| one["embedding"].as_array().expect("numbers").len())
        .collect();
    assert_eq!(lengths, [10, 10]);

    // A registration fails, and is tried again from the uploaded files.
    let upload = Upload {
        application: "digits",
        name: "broken",
        model: digits::bytes("mlp.onnx"),
        validation: b"{\"pixels\": [1], \"label\": 1}\n".to_vec(),
        validation_name: "validation.jsonl",
    };
    let job = api.register(upload).await;
    assert_eq!(job["state"], "failed", "{job}");
    let again = cluster.client(&["--json", "register", "--name", "broken", "--retry"]);
    assert_eq!(again.status.code(), Some(1));
    let listed = api.get("/v1/jobs?model=broken").await.json(200);
    let jobs = listed["jobs"].as_array().expect("a list");
    assert_eq!(jobs.len(), 2, "{listed}");
    assert!(jobs.iter().all(|job| job["state"] == "failed"), "{listed}");

    for name in ["broken", "mlp"] {
        let deleted = stdout(&cluster.client(&["model", "delete", name]));
        assert!(deleted.contains("is deleted"), "{deleted}");
    }
    let none = stdout(&cluster.client(&["models"]));
    assert!(none.contains("no models"), "{none}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_query_leaves_one_line_that_names_it() {
    let cluster = digits::with_mlp(&[]).await;
    let query = json!({
        "application": "digits", "targets": {"min_accuracy": 1.0},
        "inputs": digits::Images::load("test").input(0)
    });
    let headers = [("x-request-id", "order-7".to_owned())];
    let body = query.to_string().into_bytes();
    let refused = cluster
        .api()
        .send_with(reqwest::Method::POST, "/v1/queries", &headers, body)
        .await;
    let problem = refused.problem(422, "target_infeasible");
    assert_eq!(problem["request_id"], "order-7");
    let detail = problem["detail"].as_str().expect("text");
    assert!(detail.contains("best accuracy here: 0.9"), "{detail}");
    let closest = problem["closest"].as_array().expect("a list");
    assert!(
        closest
            .iter()
            .all(|one| one["misses"] == json!(["accuracy"])),
        "{problem}"
    );
    let log = cluster.log();
    let lines: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("order-7"))
        .collect();
    assert_eq!(lines.len(), 1, "{log}");
    for part in ["INFO", "query failed", "digits", "target_infeasible"] {
        assert!(lines[0].contains(part), "{}", lines[0]);
    }
    let metrics = cluster.api().get("/metrics").await.text();
    for series in [
        "sextant_requests_total{route=\"/v1/queries\",method=\"POST\",status=\"422\"} 1",
        "sextant_build_info{version=",
        "process_resident_memory_bytes ",
        "process_cpu_seconds_total ",
    ] {
        assert!(metrics.contains(series), "{series}: {metrics}");
    }
}

#[test]
fn mistakes_on_the_command_line_are_told_in_its_words() {
    let cluster = TestCluster::start(Settings::default());
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing.onnx").display().to_string();
    let register = [
        "register",
        "-a",
        "digits",
        "--name",
        "m",
        "--model",
        &missing,
        "--validation",
        &missing,
    ];
    let refused = cluster.client(&register);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        stderr(&refused).contains("there is no file"),
        "{}",
        stderr(&refused)
    );
    let refused = cluster.client(&["--json", "register", "--name", "m"]);
    assert_eq!(refused.status.code(), Some(2));
    let problem: Value = serde_json::from_str(&stderr(&refused)).expect("JSON");
    assert!(
        problem["detail"]
            .as_str()
            .expect("text")
            .contains("--model"),
        "{problem}"
    );
    let script = stdout(&cluster.client(&["completions", "bash"]));
    assert!(script.contains("--fail-on-errors"), "{script}");
    let config = folder.path().join("sextant.toml");
    fs::write(&config, "[log]\nlevel = \"chatty\"\n").expect("a file");
    let config = config.display().to_string();
    let refused = cluster.client(&["serve", "--config", &config, "--listen", "127.0.0.1:0"]);
    assert!(!refused.status.success());
    assert!(
        stderr(&refused).contains("`chatty` is no level"),
        "{}",
        stderr(&refused)
    );
}
