//! `/health`, `/metrics`, `/openapi.json`, `/docs`: the pages that operators and tools read.

use std::collections::BTreeSet;

use rustix::process::Signal;
use serde_json::json;
use sextant_tests::{Api, Process, Settings, TestCluster, command_behind, digits, until};

#[tokio::test]
async fn a_running_service_is_live_and_ready() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    assert_eq!(api.get("/health/live").await.json(200)["status"], "live");
    assert_eq!(api.get("/health/ready").await.json(200)["status"], "ready");
}

#[tokio::test]
async fn the_engines_libraries_use_the_allocator_of_the_program() {
    let cluster = digits::shared().await;
    let query = json!({"model": "mlp", "inputs": digits::Images::load("test").input(0)});
    cluster.api().post("/v1/queries", &query).await.json(200);
    assert!(!cluster.has_heap());
}

#[tokio::test]
async fn metrics_count_queries() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let query = json!({"model": "mlp", "inputs": digits::Images::load("test").input(0)});
    api.post("/v1/queries", &query).await.json(200);
    let metrics = api.get("/metrics").await;
    assert_eq!(metrics.status, 200);
    let text = metrics.text();
    let counted = text
        .lines()
        .any(|line| line.starts_with("sextant_") && !line.ends_with(" 0"));
    assert!(counted, "{text}");
}

#[tokio::test]
async fn the_interface_describes_itself() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let document = api.get("/openapi.json").await.json(200);
    for path in [
        "/v1/applications",
        "/v1/models",
        "/v1/queries",
        "/v1/jobs",
        "/health/ready",
    ] {
        assert!(
            document["paths"][path].is_object(),
            "`{path}` is not described"
        );
    }
    let page = api.get("/docs/").await;
    assert_eq!(page.status, 200, "{}", page.text());
    let error = api.get("/docs/errors/target_infeasible").await;
    assert_eq!(error.status, 200);
    assert!(error.text().contains("target_infeasible"));
}

#[tokio::test]
async fn the_worker_and_its_instances_are_listed() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let workers = api.get("/v1/workers").await.json(200);
    let workers = workers["workers"].as_array().expect("a list");
    assert_eq!(workers.len(), 1);
    assert!(workers[0]["cores"].as_u64().is_some_and(|cores| cores >= 1));
    let query = json!({
        "variant": "mlp-ort-fp32-all-t1-b8", "inputs": digits::Images::load("test").input(0)
    });
    api.post("/v1/queries", &query).await.json(200);
    let instances = api.get("/v1/instances").await.json(200);
    let loaded = instances["instances"]
        .as_array()
        .expect("a list")
        .iter()
        .any(|instance| {
            instance["variant"] == "mlp-ort-fp32-all-t1-b8" && instance["state"] == "active"
        });
    assert!(loaded, "{instances}");
}

#[tokio::test]
async fn metrics_are_those_that_the_page_lists() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    // A metric appears once it has a value.
    let query = json!({"model": "mlp", "inputs": digits::Images::load("test").input(0)});
    api.post("/v1/queries", &query).await.json(200);
    let nobody = json!({"application": "nobody", "inputs": []});
    api.post("/v1/queries", &nobody)
        .await
        .problem(404, "application_not_found");
    api.post("/v1/feedback", &json!({"token": "none", "label": 1}))
        .await
        .problem(400, "invalid_feedback");
    let text = api.get("/metrics").await.text();
    let kinds = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let shown: BTreeSet<String> = kinds.map(|(name, _)| name.to_owned()).collect();
    let page = include_str!("../../docs/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let listed: BTreeSet<String> = rows
        .filter_map(|row| Some(row.split_once('`')?.0.to_owned()))
        // These are metrics of processes without a front end.
        .filter(|name| name != "sextant_ready")
        .collect();
    assert_eq!(shown, listed);
}

/// Idle connections: more than there are file descriptors, before and after the service has raised its limit.
#[tokio::test]
async fn silent_connections_shut_nobody_out() {
    for limits in ["-Sn 256", "-n 256"] {
        let script = format!("ulimit {limits} && exec \"$0\" \"$@\"");
        let settings = Settings {
            wrap: vec!["sh".to_owned(), "-c".to_owned(), script],
            ..Settings::default()
        };
        let cluster = TestCluster::start(settings);
        let address = cluster.address().trim_start_matches("http://");
        let mut silent = Vec::new();
        for _ in 0..300 {
            let connected = tokio::net::TcpStream::connect(address).await;
            silent.push(connected.expect("a connection"));
        }
        let api = cluster.api();
        assert_eq!(api.get("/health/ready").await.status, 200, "{limits}");
        drop(silent);
    }
}

/// The reader of standard error is gone: log lines are dropped, and nothing else changes.
#[tokio::test]
async fn a_closed_standard_error_changes_nothing() {
    let script = "exec \"$0\" \"$@\" 2> >(exec true)".to_owned();
    let settings = Settings {
        wrap: vec!["bash".to_owned(), "-c".to_owned(), script],
        set: vec![
            "variants.engines=ort".to_owned(),
            "variants.max_threads=1".to_owned(),
            "log.level=debug".to_owned(),
        ],
        ..Settings::default()
    };
    let mut cluster = TestCluster::start(settings);
    let api = cluster.api();
    api.create_application("digits").await;
    let job = api.register(digits::upload("digits", "mlp", "mlp")).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    assert_eq!(api.get("/health/ready").await.status, 200);
    assert!(cluster.stop().success());
}

/// A service that is told to stop would continue for ten minutes here.
#[tokio::test]
async fn an_interrupt_ends_a_service_that_is_stopping() {
    for first in [Signal::INT, Signal::TERM] {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        let mut command = command_behind(&[]);
        command
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(["--set", "limits.shutdown_delay_ms=600000", "--data-dir"])
            .arg(folder.path().join("data"));
        let process = Process::start(command, &log);
        let api = Api::new(process.address());
        process.signal(first);
        until("it is stopping", || async {
            (api.get("/health/ready").await.status == 503).then_some(())
        })
        .await;
        // Those who may tell it twice send this one.
        process.signal(Signal::TERM);
        assert_eq!(api.get("/health/live").await.status, 200);
        process.signal(Signal::INT);
        assert_eq!(process.ended().code(), Some(130), "{first:?}");
        let log = std::fs::read_to_string(log).expect("a log");
        assert!(log.contains("interrupted while stopping"), "{log}");
    }
}
