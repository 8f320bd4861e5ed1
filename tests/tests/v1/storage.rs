//! `/v1/storage`: what uses how much space, and what is freed.

use std::{fs, process::Output};

use reqwest::multipart::{Form, Part};
use serde_json::{Value, json};
use sextant_tests::{Api, Settings, TestCluster, command_behind, digits, files, until};

/// Bytes of a file in a form that is refused.
const REFUSED_BYTES: usize = 140_000;

/// Bytes that the store may hold.
const LIMIT_BYTES: u64 = 3_000_000;

/// The numbers of objects and bytes in the folder of the store.
fn stored(cluster: &TestCluster) -> (u64, u64) {
    let objects = cluster.data().join("objects");
    let found = ["blobs", "files"].map(|kind| files(&objects.join(kind)));
    let found = found.concat();
    let sizes = found.iter().filter_map(|file| file.metadata().ok());
    (found.len() as u64, sizes.map(|it| it.len()).sum())
}

fn bytes_of(usage: &Value, kind: &str) -> u64 {
    let uses = usage["uses"].as_array().expect("a list").iter();
    let of_kind = uses.filter(|used| used["kind"] == kind);
    of_kind.filter_map(|used| used["bytes"].as_u64()).sum()
}

/// The output of the command line as JSON.
fn command(cluster: &TestCluster, arguments: &[&str]) -> Value {
    let output = cluster.client(&[&["--json", "storage"], arguments].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("a document")
}

/// Sends a form that is refused, because after its file it has a field that no form has.
async fn send_refused(api: &Api, number: u8) {
    let mut content = vec![0; REFUSED_BYTES];
    content[0] = number;
    let form = Form::new()
        .text("name", "refused")
        .text("application", "digits")
        .part("model", Part::bytes(content).file_name("model.onnx"))
        .text("unknown", "field");
    let refused = api.multipart("/v1/models", form).await;
    refused.problem(400, "invalid_request");
}

#[tokio::test]
async fn what_refused_uploads_left_is_given_back() {
    let mut cluster = TestCluster::start(Settings {
        set: vec![format!("limits.storage_bytes={LIMIT_BYTES}")],
        ..Settings::default()
    });
    cluster.api().create_application("digits").await;
    let job = cluster
        .api()
        .register(digits::upload("digits", "logistic", "logistic"))
        .await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let (before, _) = stored(&cluster);
    for number in 0..30 {
        send_refused(&cluster.api(), number).await;
    }
    assert_eq!(stored(&cluster).0, before, "the files are removed at once");
    // The name is taken by other content, and the model of that name needs the same validation set.
    let taken = digits::upload("digits", "logistic", "mlp");
    let taken = cluster.api().upload_with(taken, &[("version", "1")]).await;
    taken.problem(409, "model_exists");
    let api = cluster.api();
    let query = json!({"model": "logistic", "inputs": digits::Images::load("test").input(0)});
    api.post("/v1/queries", &query).await.json(200);
    // The files of a deleted model stay for a while, because the next registration might be about to use them.
    assert_eq!(api.delete("/v1/models/logistic").await.status, 204);
    for _ in 0..2 {
        let usage = command(&cluster, &[]);
        assert!(bytes_of(&usage, "unreferenced") > 0, "{usage}");
        assert_eq!(usage["limit_bytes"], LIMIT_BYTES);
        let young = command(&cluster, &["sweep"]);
        assert_eq!(young["bytes"], 0, "the files are younger than the grace");
        assert!(cluster.stop().success());
        cluster.launch();
    }
    let freed = command(&cluster, &["sweep", "--grace", "0"]);
    assert!(freed["blobs"]["objects"].as_u64() >= Some(2), "{freed}");
    // The limit counts what is stored now.
    assert_eq!(stored(&cluster), (0, 0));
    let api = cluster.api();
    let whole = vec![0; LIMIT_BYTES as usize - 200_000];
    api.put("/v1/artefacts/a", whole).await.json(201);
    assert_eq!(api.delete("/v1/artefacts/a").await.status, 204);
    let job = api.register(digits::upload("digits", "mlp", "mlp")).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let audit = api.get("/v1/audit?action=storage.sweep").await.json(200);
    assert_eq!(
        audit["entries"].as_array().map(Vec::len),
        Some(3),
        "{audit}"
    );
}

/// Renames the files of the registry.
fn move_registry(cluster: &TestCluster, from: &str, to: &str) {
    for end in ["", "-wal", "-shm"] {
        let name = |name: &str| cluster.data().join(format!("{name}{end}"));
        // The files beside the first one do not always exist.
        fs::rename(name(from), name(to)).ok();
    }
}

#[tokio::test]
async fn a_service_without_its_registry_keeps_its_hands_off_the_store() {
    let settings = Settings {
        set: ["storage.sweep_every_s=1", "storage.grace_s=0"]
            .map(str::to_owned)
            .to_vec(),
        ..Settings::default()
    };
    let mut cluster = digits::service(settings).await;
    let api = cluster.api();
    api.put("/v1/artefacts/mine", "12345").await.json(201);
    let all = stored(&cluster);
    assert!(all.0 > 4, "{all:?}");
    assert!(cluster.stop().success());
    move_registry(&cluster, "registry.sqlite", "away");
    cluster.launch();
    let api = cluster.api();
    let health = api.get("/health/ready").await.json(200);
    let warned = health["warnings"][0].to_string();
    assert!(warned.contains("sextant restore"), "{health}");
    api.create_application("digits").await;
    let refused = api.upload(digits::upload("digits", "mlp", "mlp")).await;
    refused.problem(409, "store_mismatch");
    let refused = api.put("/v1/artefacts/mine", "54321").await;
    refused.problem(409, "store_mismatch");
    let refused = api.delete("/v1/artefacts/mine").await;
    refused.problem(409, "store_mismatch");
    let swept = cluster.client(&["storage", "sweep", "--grace", "0"]);
    let told = String::from_utf8_lossy(&swept.stderr).into_owned();
    assert!(
        !swept.status.success() && told.contains("store_mismatch"),
        "{told}"
    );
    assert_eq!(stored(&cluster), all);
    // The registry is moved back, and everything is as before.
    assert!(cluster.stop().success());
    move_registry(&cluster, "registry.sqlite", "new");
    move_registry(&cluster, "away", "registry.sqlite");
    cluster.launch();
    let api = cluster.api();
    let health = api.get("/health/ready").await.json(200);
    assert_eq!(health, json!({"status": "ready"}));
    let query = json!({"model": "mlp", "inputs": digits::Images::load("test").input(0)});
    api.post("/v1/queries", &query).await.json(200);
    assert_eq!(stored(&cluster), all);
    // The new registry adopts the stored files.
    assert!(cluster.stop().success());
    move_registry(&cluster, "registry.sqlite", "away");
    cluster.launch();
    assert!(cluster.client(&["storage", "adopt"]).status.success());
    let api = cluster.api();
    assert_eq!(
        api.get("/health/ready").await.json(200),
        json!({"status": "ready"})
    );
    until("files that it does not name are swept", || async {
        (stored(&cluster).0 == 1).then_some(())
    })
    .await;
    assert_eq!(api.get("/v1/artefacts/mine").await.text(), "12345");
}

/// Outputs of every model for the first test images, without the members that differ from query to query.
async fn answers(api: &Api) -> Vec<Value> {
    let mut all = Vec::new();
    for model in digits::MODELS {
        for image in 0..4 {
            let inputs = digits::Images::load("test").input(image);
            let query = json!({"model": model, "inputs": inputs});
            let answer = api.post("/v1/queries", &query).await.json(200);
            all.push(answer["outputs"].clone());
        }
    }
    all
}

/// The members of every variant that do not change while it serves.
async fn known(api: &Api) -> Vec<Value> {
    let all = api.get("/v1/variants?limit=1000").await.json(200);
    let all = all["variants"].as_array().expect("a list").iter();
    let kept = ["name", "artefact", "accuracy", "latency", "load_ms"];
    all.map(|variant| kept.map(|member| variant[member].clone()).into())
        .collect()
}

/// Runs the command line without a server.
fn alone(arguments: &[&str]) -> Output {
    let mut command = command_behind(&[]);
    command.args(arguments).output().expect("it can be started")
}

#[tokio::test]
async fn a_backup_is_restored_into_an_empty_machine_that_answers_alike() {
    let cluster = digits::service(Settings::default()).await;
    let api = cluster.api();
    api.put("/v1/artefacts/a/mine", "12345").await.json(201);
    let labels = (0..10)
        .map(|digit| format!("digit {digit}\n"))
        .collect::<String>();
    api.put("/v1/artefacts/a/labels", labels).await.json(201);
    let pipeline = json!({"name": "named", "steps": [
        {"name": "classify", "application": "digits"},
        {"name": "label", "top_k": {"labels_file": "a/labels"}, "inputs": {"scores": "classify.scores"}}
    ]});
    api.post("/v1/pipelines", &pipeline).await.json(201);
    let before = answers(&api).await;
    let variants = known(&api).await;
    let folder = tempfile::tempdir().expect("a folder");
    let to = folder.path().join("backup").display().to_string();
    // The service runs meanwhile.
    let data = cluster.data().display().to_string();
    let output = alone(&["--json", "backup", &to, "--data-dir", &data]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    assert!(told.is_empty(), "{told}");
    let told: Value = serde_json::from_slice(&output.stdout).expect("a document");
    assert_eq!((&told["files"], &told["missing"]), (&json!(2), &json!([])));
    let again = alone(&["--json", "backup", &to, "--data-dir", &data]);
    let refused: Value = serde_json::from_slice(&again.stderr).expect("a document");
    assert_eq!(refused["code"], "not_empty", "{refused}");
    // A backup is not restored over existing data.
    let over = alone(&["restore", &to, "--data-dir", &data]);
    let refused = String::from_utf8_lossy(&over.stderr).into_owned();
    assert!(
        !over.status.success() && refused.contains("in use"),
        "{refused}"
    );
    let mut empty = TestCluster::start(Settings::default());
    assert!(empty.stop().success());
    let other = empty.data().display().to_string();
    let restored = alone(&["restore", &to, "--data-dir", &other]);
    let told = String::from_utf8_lossy(&restored.stderr).into_owned();
    assert!(restored.status.success(), "{told}");
    let over = alone(&["--json", "restore", &to, "--data-dir", &other]);
    let told = String::from_utf8_lossy(&over.stderr).into_owned();
    assert!(told.contains("not_empty"), "{told}");
    empty.launch();
    let api = empty.api();
    let after = answers(&api).await;
    let differ = after
        .iter()
        .zip(&before)
        .filter(|(one, other)| one != other);
    // `cargo xtask bench trust` reads this line.
    println!(
        "\n{}",
        json!({"metric": "restore_differences", "value": differ.count()})
    );
    assert_eq!(after, before);
    assert_eq!(known(&api).await, variants);
    assert_eq!(api.get("/v1/artefacts/a/mine").await.text(), "12345");
    let swept = command(&empty, &["sweep", "--grace", "0"]);
    assert_eq!(swept["blobs"]["objects"], 0, "{swept}");
    assert_eq!(answers(&api).await, before);
    let query = json!({"application": "named", "inputs": digits::Images::load("test").input(0)});
    let named = until("the restored pipeline answers", || async {
        let answer = api.post("/v1/queries", &query).await;
        answer.status.is_success().then(|| answer.json(200))
    })
    .await;
    assert_eq!(named["outputs"][0]["data"][0], "digit 5", "{named}");
}

#[tokio::test]
async fn what_a_killed_process_left_is_swept_by_the_next() {
    let mut cluster = digits::service(Settings::default()).await;
    let api = cluster.api();
    let pixels = digits::Images::load("test").pixels(0).to_vec();
    let record = json!({"inputs": {"pixels": pixels}}).to_string();
    api.put("/v1/artefacts/in.jsonl", record).await.json(201);
    let body = json!({"model": "logistic", "input": "in.jsonl", "output": "out.jsonl"});
    let queued = api.post("/v1/jobs", &body).await.json(202);
    let id = queued["id"].as_str().expect("an id");
    let job = api.job_over(id).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let folder = cluster
        .data()
        .join("objects/files/out.jsonl.parts")
        .join(id);
    until("the job has removed its parts", || async {
        files(&folder).is_empty().then_some(())
    })
    .await;
    cluster.kill();
    // The files are as if the service had been killed between the end of the job and the removal of its parts.
    fs::create_dir_all(&folder).expect("a folder");
    for name in ["plan-1.json", "claim-1.json", "00000000-1.part"] {
        fs::write(folder.join(name), "left").expect("written");
    }
    fs::write(folder.join("mine.txt"), "a user's").expect("written");
    cluster.launch();
    until("the parts are swept", || async {
        (files(&folder).len() == 1).then_some(())
    })
    .await;
    let api = cluster.api();
    assert_eq!(api.get("/v1/artefacts/out.jsonl").await.status, 200);
    let own = format!("/v1/artefacts/out.jsonl.parts/{id}/mine.txt");
    assert_eq!(api.get(&own).await.text(), "a user's");
}

#[tokio::test]
async fn what_ended_long_ago_is_forgotten() {
    let cluster = TestCluster::start(Settings {
        set: [
            "storage.sweep_every_s=1",
            "storage.grace_s=0",
            "storage.keep_ended_jobs_s=1",
            "storage.keep_failed_models_s=1",
        ]
        .map(str::to_owned)
        .to_vec(),
        ..Settings::default()
    });
    let api = cluster.api();
    api.create_application("digits").await;
    let mut upload = digits::upload("digits", "broken", "mlp");
    upload.model = b"no model".to_vec();
    let accepted = api.upload(upload).await.json(202);
    let id = accepted["job"].as_str().expect("an id");
    until("the failed model and its job are forgotten", || async {
        let (model, job) = ("/v1/models/broken".to_owned(), format!("/v1/jobs/{id}"));
        let gone = api.get(&model).await.status == 404 && api.get(&job).await.status == 404;
        gone.then_some(())
    })
    .await;
    until("the model's files are swept", || async {
        (stored(&cluster) == (0, 0)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_figures_are_those_of_the_folder() {
    let cluster = digits::service(Settings::default()).await;
    let api = cluster.api();
    let input = digits::input(&json!(digits::Images::load("test").pixels(0)));
    let query = json!({"model": "mlp", "inputs": input});
    api.post("/v1/queries", &query).await.json(200);
    api.put("/v1/artefacts/mine", "12345").await.json(201);
    let usage = command(&cluster, &[]);
    let shown = (usage["objects"].as_u64(), usage["bytes"].as_u64());
    let (objects, bytes) = stored(&cluster);
    assert_eq!(shown, (Some(objects), Some(bytes)));
    let uses = usage["uses"].as_array().expect("a list").iter();
    let sum: u64 = uses.filter_map(|used| used["bytes"].as_u64()).sum();
    assert_eq!(sum, bytes);
    let models = digits::MODELS.map(|model| digits::bytes(&format!("{model}.onnx")).len() as u64);
    assert_eq!(bytes_of(&usage, "model"), models.iter().sum::<u64>());
    // The models share the validation set.
    let validation = digits::bytes("validation.npz").len() as u64;
    assert_eq!(bytes_of(&usage, "validation"), validation);
    assert!(bytes_of(&usage, "variant") > 0, "{usage}");
    assert_eq!(bytes_of(&usage, "file"), 5);
    assert_eq!(bytes_of(&usage, "unreferenced"), 0);
    let table = cluster.client(&["storage"]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    let row = table
        .lines()
        .find(|line| line.starts_with("model") && line.contains("mlp"));
    assert!(row.is_some_and(|row| row.contains("digits")), "{table}");
    let metrics = api.get("/metrics").await.text();
    assert!(metrics.contains(r#"model="mlp""#), "{metrics}");
    for model in digits::MODELS {
        assert_eq!(api.delete(&format!("/v1/models/{model}")).await.status, 204);
    }
    assert_eq!(api.delete("/v1/applications/digits").await.status, 204);
    let freed = command(&cluster, &["sweep", "--grace", "0"]);
    assert_eq!(freed["bytes"], bytes - 5);
    assert_eq!(stored(&cluster), (1, 5));
    let metrics = api.get("/metrics").await.text();
    assert!(!metrics.contains(r#"model="mlp""#), "{metrics}");
}
