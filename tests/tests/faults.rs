//! Power cuts, full disks, a folder in use: nothing is lost, and the service recovers.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};
use sextant_tests::{Api, Settings, TestCluster, digits, until};

fn faults(set: &[&str]) -> Settings {
    Settings {
        set: set.iter().map(|pair| (*pair).to_owned()).collect(),
        faults: true,
        ..Settings::default()
    }
}

/// Waits until a job is running and has committed something.
async fn under_way(api: &Api, id: &str) -> Value {
    until("the job is under way", || async {
        let job = api.job(id).await;
        assert!(job["state"] != "failed", "{job}");
        assert!(
            job["state"] != "succeeded",
            "the job was over before it could be cut: {job}"
        );
        let done = job["progress"]["done"].as_u64().expect("a count");
        (done > 0).then_some(job)
    })
    .await
}

async fn variant_names(api: &Api, model: &str) -> Vec<String> {
    let answer = api
        .get(&format!("/v1/models/{model}/variants"))
        .await
        .json(200);
    let variants = answer["variants"].as_array().expect("a list");
    variants
        .iter()
        .filter_map(|variant| Some(variant["name"].as_str()?.to_owned()))
        .collect()
}

#[tokio::test]
async fn a_registration_survives_power_cuts() {
    let mut cluster = TestCluster::start(faults(&["variants.profile_ms_per_batch=40"]));
    let api = cluster.api();
    api.create_application("digits").await;
    let accepted = api
        .upload(digits::upload("digits", "mlp", "mlp"))
        .await
        .json(202);
    let id = accepted["job"].as_str().expect("a job").to_owned();
    let mut done = 0;
    for _ in 0..2 {
        let job = under_way(&cluster.api(), &id).await;
        let now = job["progress"]["done"].as_u64().expect("a count");
        assert!(now >= done, "a power cut lost steps: {now} after {done}");
        done = now;
        cluster.kill();
        cluster.launch();
    }
    let api = cluster.api();
    let job = api.job_over(&id).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let names = variant_names(&api, "mlp").await;
    let distinct: BTreeSet<&String> = names.iter().collect();
    assert_eq!(distinct.len(), names.len());
    let undisturbed = digits::service(Settings::default()).await;
    assert_eq!(names, variant_names(&undisturbed.api(), "mlp").await);
    let query = json!({"application": "digits", "inputs": digits::Images::load("test").input(0)});
    api.post("/v1/queries", &query).await.json(200);
}

#[tokio::test]
async fn a_job_survives_power_cuts_with_every_record_once() {
    const RECORDS: usize = 10_000;
    let mut cluster = digits::service(faults(&[])).await;
    let api = cluster.api();
    let images = digits::Images::load("test");
    let lines: Vec<String> = (0..images.len())
        .map(|index| format!("{}\n", json!({"inputs": {"pixels": images.pixels(index)}})))
        .collect();
    let input: String = (0..RECORDS)
        .map(|index| &*lines[index % lines.len()])
        .collect();
    api.put("/v1/artefacts/in.jsonl", input).await.json(201);
    let body = json!({
        "id": "cut", "variant": "cnn-small-ort-fp32-all-t1-b8", "chunk": 100,
        "input": "in.jsonl", "output": "out.jsonl"
    });
    api.post("/v1/jobs", &body).await.json(202);
    for _ in 0..2 {
        under_way(&cluster.api(), "cut").await;
        cluster.kill();
        cluster.launch();
    }
    let api = cluster.api();
    let job = api.job_over("cut").await;
    assert_eq!(job["state"], "succeeded", "{job}");
    assert_eq!(job["progress"]["done"], RECORDS);
    let text = api.get("/v1/artefacts/out.jsonl").await.text();
    let answers: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(answers.len(), RECORDS);
    for (index, answer) in answers.iter().enumerate() {
        assert_eq!(answer["index"], index);
        let first = &answers[index % images.len()]["outputs"]["scores"];
        let (this, first) = (
            digits::digit(&answer["outputs"]["scores"]),
            digits::digit(first),
        );
        assert_eq!(
            this, first,
            "record {index} got the answer of another image"
        );
    }
}

#[tokio::test]
async fn what_was_registered_is_served_after_a_restart() {
    let mut cluster = digits::service(Settings::default()).await;
    let query = json!({
        "application": "digits", "targets": {"min_accuracy": 0.9},
        "inputs": digits::Images::load("test").input(0)
    });
    let before = cluster
        .api()
        .get("/v1/applications/digits/variants")
        .await
        .json(200);
    assert!(cluster.stop().success());
    cluster.launch();
    let api = cluster.api();
    api.post("/v1/queries", &query).await.json(200);
    let after = api.get("/v1/applications/digits/variants").await.json(200);
    let names = |answer: &Value| -> Vec<String> {
        let variants = answer["variants"].as_array().expect("a list");
        variants
            .iter()
            .map(|variant| variant["name"].to_string())
            .collect()
    };
    assert_eq!(names(&before), names(&after));
}

#[tokio::test]
async fn a_full_disk_fails_a_registration_and_nothing_else() {
    let cluster = digits::service(faults(&[])).await;
    let used: u64 = size(&cluster.data().join("objects"));
    drop(cluster);
    let limit = format!("limits.storage_bytes={}", used + 300_000);
    let cluster = digits::service(faults(&[&limit])).await;
    let api = cluster.api();
    let full = vec![7; 290_000];
    api.put("/v1/artefacts/ballast", full).await.json(201);
    let answer = api
        .upload(digits::upload("digits", "large", "cnn-large"))
        .await;
    answer.problem(507, "storage_full");
    let query = json!({"application": "digits", "inputs": digits::Images::load("test").input(0)});
    api.post("/v1/queries", &query).await.json(200);
    assert_eq!(api.delete("/v1/artefacts/ballast").await.status, 204);
}

fn size(folder: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(folder)
        .expect("the folder can be read")
        .flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => size(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}

#[tokio::test]
async fn a_data_folder_belongs_to_one_process() {
    let cluster = TestCluster::start(Settings::default());
    let data = cluster.data();
    let second = cluster.client(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        &data.to_string_lossy(),
    ]);
    assert_eq!(second.status.code(), Some(1));
    let text = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(text.contains("in use"), "{text}");
    cluster.api().get("/health/ready").await.json(200);
}

#[test]
fn a_port_in_use_is_told_at_once() {
    let cluster = TestCluster::start(Settings::default());
    let address = cluster.address().trim_start_matches("http://").to_owned();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().to_string_lossy().into_owned();
    let second = cluster.client(&["serve", "--listen", &address, "--data-dir", &data]);
    assert_eq!(second.status.code(), Some(1));
    let text = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        text.contains(&address) && text.contains("cannot listen"),
        "{text}"
    );
}

/// The last moment of a job: its output is written, its parts are being removed, and its end is not recorded yet.
#[tokio::test]
async fn a_job_survives_a_power_cut_at_its_end() {
    const RECORDS: usize = 400;
    let mut cluster = digits::service(faults(&["jobs.pause_utilization=1"])).await;
    let record = json!({"inputs": {"pixels": vec![1; digits::PIXELS]}});
    let input = format!("{record}\n").repeat(RECORDS);
    cluster
        .api()
        .put("/v1/artefacts/in.jsonl", input)
        .await
        .json(201);
    let body = json!({
        "id": "end", "model": "logistic", "chunk": 1, "input": "in.jsonl", "output": "out.jsonl"
    });
    cluster.api().post("/v1/jobs", &body).await.json(202);
    let api = cluster.api();
    until("the output is written", || async {
        let output = api
            .send(Method::HEAD, "/v1/artefacts/out.jsonl", None)
            .await;
        (output.status == 200).then_some(())
    })
    .await;
    cluster.kill();
    cluster.launch();
    let api = cluster.api();
    let job = api.job_over("end").await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let output = api.get("/v1/artefacts/out.jsonl").await.text();
    assert_eq!(output.lines().count(), RECORDS);
}

#[tokio::test]
async fn a_data_folder_that_was_removed_makes_the_service_unready_and_blames_no_client() {
    let cluster = digits::service(faults(&[])).await;
    let api = cluster.api();
    digits::warm(&api).await;
    let query = json!({"application": "digits", "inputs": digits::Images::load("test").input(0)});
    api.post("/v1/queries", &query).await.json(200);
    api.put("/v1/artefacts/notes", "kept").await.created();
    std::fs::remove_dir_all(cluster.data()).expect("it can be removed");
    let unready = api.get("/health/ready").await.problem(503, "unavailable");
    let why = unready["detail"].as_str().expect("a reason");
    assert!(why.contains("was removed"), "{why}");
    assert_eq!(api.get("/health/live").await.status, 200);
    // Loaded models go on answering.
    api.post("/v1/queries", &query).await.json(200);
    let registered = api.upload(digits::upload("digits", "another", "mlp")).await;
    registered.problem(503, "unavailable");
    let put = api.put("/v1/artefacts/more", "lost").await;
    put.problem(503, "unavailable");
    let got = api.get("/v1/artefacts/notes").await;
    got.problem(503, "unavailable");
}
