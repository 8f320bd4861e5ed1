//! A disk that is really full for a while: acknowledged data remains, refusals say why, and the service continues when
//! there is room again.

use reqwest::Method;
use serde_json::json;
use sextant_tests::{Settings, TestCluster, Upload, digits, onnx, until};

/// A service whose data lies on a disk of its own, with the application `digits`, a model and a running job of some
/// seconds; `None` if this machine lets nobody mount a disk.
async fn service_on_a_disk() -> Option<TestCluster> {
    const RECORDS: usize = 1500;
    let cluster = TestCluster::start(Settings {
        disk_bytes: Some(48 << 20),
        set: ["variants.engines=emulated", "worker.cores=1"]
            .map(str::to_owned)
            .to_vec(),
        faults: true,
        ..Settings::default()
    });
    if let Err(reason) = cluster.disk() {
        eprintln!("skipped: this machine lets nobody mount a disk: {reason}");
        return None;
    }
    let api = cluster.api();
    api.create_application("digits").await;
    let job = api.register(model("first")).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let record = json!({"inputs": {"pixels": vec![1; digits::PIXELS]}});
    let input = format!("{record}\n").repeat(RECORDS);
    api.put("/v1/artefacts/in.jsonl", input).await.json(201);
    let body = json!({
        "id": "long", "model": "first", "chunk": 5, "input": "in.jsonl", "output": "out.jsonl"
    });
    api.post("/v1/jobs", &body).await.json(202);
    until("the job is under way", || async {
        let done = api.job("long").await["progress"]["done"].as_u64();
        (done > Some(0)).then_some(())
    })
    .await;
    Some(cluster)
}

/// A model that takes some milliseconds a row; no two names have the same file.
fn model(name: &str) -> Upload<'_> {
    let metadata = [("sextant.alpha_ms", "4"), ("name", name)];
    let metadata = metadata
        .map(|(key, value)| (key, value.to_owned()))
        .to_vec();
    let line = format!(
        "{}\n",
        json!({"inputs": {"pixels": vec![1; digits::PIXELS]}, "label": 0})
    );
    Upload {
        application: "digits",
        name,
        model: onnx::Model {
            metadata,
            ..onnx::Model::default()
        }
        .bytes(),
        validation: line.repeat(8).into_bytes(),
        validation_name: "validation.jsonl",
    }
}

#[tokio::test]
async fn a_disk_that_fills_up_costs_nothing_that_was_acknowledged() {
    let Some(cluster) = service_on_a_disk().await else {
        return;
    };
    let (api, disk) = (cluster.api(), cluster.disk().expect("it is there"));
    let weight = json!({"resources": {"weight": 2.0}});
    let query = json!({"model": "first", "inputs": digits::input(&json!(vec![1; digits::PIXELS]))});
    let accepted = api.upload(model("second")).await.json(202);
    disk.fill().expect("the disk can be filled");
    // A file of the registry may have one free page.
    until("changes are refused", || async {
        let refused = api.patch("/v1/applications/digits", &weight).await;
        (!refused.status.is_success()).then(|| refused.problem(507, "storage_full"))
    })
    .await;
    let put = api.put("/v1/artefacts/late", vec![0; 300_000]).await;
    put.problem(507, "storage_full");
    api.upload(model("third"))
        .await
        .problem(507, "storage_full");
    api.post("/v1/queries", &query).await.json(200);
    api.get("/health/ready").await.json(200);
    // An operator finds the reason: once in the log, although jobs go on trying, and in the metrics.
    let log = cluster.log();
    let lines = log
        .lines()
        .filter(|it| it.contains("artefact store is full"));
    let lines: Vec<&str> = lines.collect();
    assert!((1..=3).contains(&lines.len()), "{lines:?}");
    assert!(lines[0].contains("free_bytes"), "{lines:?}");
    let room = async |room: &str| -> u64 {
        let metrics = api.get("/metrics").await.text();
        let series = format!("sextant_artefact_store_bytes{{room=\"{room}\"}} ");
        let value = metrics.lines().find_map(|line| line.strip_prefix(&series));
        value.expect("it is shown").parse().expect("a number")
    };
    assert!(room("free").await < 300_000);
    assert!(room("stored").await > 0);
    disk.empty();
    until("changes are made", || async {
        let made = api.patch("/v1/applications/digits", &weight).await;
        made.status.is_success().then_some(())
    })
    .await;
    for id in ["long", accepted["job"].as_str().expect("a job")] {
        let job = api.job_over(id).await;
        assert_eq!(job["state"], "succeeded", "{job}");
    }
    let output = api.get("/v1/artefacts/out.jsonl").await.text();
    let input = api.get("/v1/artefacts/in.jsonl").await.text();
    assert_eq!(output.lines().count(), input.lines().count());
    let job = api.register(model("third")).await;
    assert_eq!(job["state"], "succeeded", "{job}");
}

#[tokio::test]
async fn what_makes_room_on_a_full_disk_is_in_the_audit_record() {
    let Some(cluster) = service_on_a_disk().await else {
        return;
    };
    let (api, disk) = (cluster.api(), cluster.disk().expect("it is there"));
    api.put("/v1/artefacts/large", vec![0; 300_000])
        .await
        .json(201);
    disk.fill().expect("the disk can be filled");
    let weight = json!({"resources": {"weight": 2.0}});
    until("the registry is full", || async {
        let refused = api.patch("/v1/applications/digits", &weight).await;
        (refused.status == 507).then_some(())
    })
    .await;
    // Its room is taken at once, so the entry must wait.
    let (deleted, ()) = tokio::join!(api.delete("/v1/artefacts/large"), async {
        until("it is gone", || async {
            let found = api.send(Method::HEAD, "/v1/artefacts/large", None).await;
            disk.fill().expect("the disk can be filled");
            (found.status == 404).then_some(())
        })
        .await;
        disk.empty();
    });
    assert_eq!(deleted.status, 204);
    let entries = api.get("/v1/audit?action=artefact.delete").await.json(200);
    assert_eq!(entries["entries"][0]["subject"], "large", "{entries}");
}
