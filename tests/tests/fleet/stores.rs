//! Stores that fail, come back, and come back empty.

use std::process::Output;

use super::*;
use sextant_test_servers::s3::Fault;
use sextant_tests::{Load, command_behind};

#[tokio::test]
async fn redis_restarts_with_its_data_and_without() {
    let mut fleet = fleet().await;
    let load = Load::start(fleet.api(), 4, None).await;
    load.answers(50).await;
    fleet.redis.restart();
    load.answers(100).await;
    fleet.redis.restart_empty();
    load.answers(100).await;
    // The processes that own the lost data write it again.
    until("the workers are known again", || async {
        (workers(&fleet.api()).await.len() == 2).then_some(())
    })
    .await;
    loaded_on(&fleet.api(), &["worker-1", "worker-2"]).await;
    load.answers(100).await;
    let tally = load.stop().await;
    explained(&tally);
    assert!(tally.longest < LONGEST, "{tally:?}");
    assert!(tally.answered * 10 >= tally.sent * 9, "{tally:?}");
}

#[tokio::test]
async fn queries_are_answered_while_redis_is_away() {
    let mut fleet = fleet().await;
    let load = Load::start(fleet.api(), 4, None).await;
    load.answers(50).await;
    fleet.redis.stop();
    load.answers(100).await;
    fleet.redis.cont();
    load.answers(100).await;
    fleet.redis.kill();
    load.answers(100).await;
    fleet.redis.restart();
    load.answers(100).await;
    let tally = load.stop().await;
    explained(&tally);
    assert!(tally.answered * 10 >= tally.sent * 9, "{tally:?}");
}

#[tokio::test]
async fn postgres_restarts_and_a_registration_goes_on() {
    let mut fleet = fleet().await;
    let api = fleet.api();
    let load = Load::start(fleet.api(), 2, None).await;
    let upload = digits::upload("digits", "logistic", "logistic");
    let accepted = api.upload(upload).await.json(202);
    let id = accepted["job"].as_str().expect("a job").to_owned();
    fleet.postgres.restart();
    load.answers(50).await;
    let over = until("the registration has ended", || async {
        // While the registry is unavailable, answers say so.
        let answer = api.get(&format!("/v1/jobs/{id}")).await;
        let job: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        (job["state"] == "succeeded" || job["state"] == "failed").then_some(job)
    })
    .await;
    assert_eq!(over["state"], "succeeded", "{over}");
    let tally = load.stop().await;
    assert_eq!(tally.answered, tally.sent, "{tally:?}");
}

#[tokio::test]
async fn a_worker_loads_from_an_artefact_store_that_stumbles() {
    let mut fleet = fleet().await;
    fleet.kill("worker-1");
    // Every other request is refused, or its answer is cut short or shortened.
    fleet.s3.faults().set(|request| {
        let faults = [
            Fault::SlowDown,
            Fault::Truncate { keep_bytes: 100 },
            Fault::CutResponse { after_bytes: 100 },
        ];
        let number = request.number;
        (number % 2 == 0).then(|| faults[number / 2 % faults.len()])
    });
    fleet.spawn("worker-3", "worker", &[]);
    loaded_on(&fleet.api(), &["worker-3"]).await;
    fleet.kill("worker-2");
    answers(&fleet.api()).await;
    assert!(fleet.s3.faults().injected() > 0, "no fault was injected");
}

#[tokio::test]
async fn a_budget_outlives_the_loss_of_the_metadata() {
    let mut fleet = fleet().await;
    let api = fleet.api();
    let body = json!({"resources": {"budget_per_hour_usd": 0.0}});
    let set = api.patch("/v1/applications/digits", &body).await.json(200);
    assert_eq!(set["resources"]["budget_per_hour_usd"], 0.0);
    let query = json!({"application": "digits", "inputs": digits::Images::load("test").input(0)});
    let refused = || async {
        until("the budget refuses", || async {
            let answer = api.post("/v1/queries", &query).await;
            answer.text().contains("budget_exhausted").then_some(answer)
        })
        .await
        .problem(429, "budget_exhausted");
    };
    refused().await;
    fleet.redis.restart_empty();
    until("the workers are known again", || async {
        // The first request finds a broken connection.
        let there = api.get("/v1/workers").await.status == 200;
        (there && workers(&api).await.len() == 2).then_some(())
    })
    .await;
    refused().await;
    until("the variants are published again", || async {
        let instances = api.get("/v1/instances").await.json(200);
        let all = instances["instances"].as_array().into_iter().flatten();
        (all.filter(|it| is_serving(it)).count() >= 2).then_some(())
    })
    .await;
    let answer = api.post("/v1/queries", &query).await;
    assert!(!answer.status.is_success(), "{}", answer.text());
    let body = json!({"resources": {"budget_per_hour_usd": null}});
    api.patch("/v1/applications/digits", &body).await.json(200);
    answers(&api).await;
}

#[tokio::test]
async fn a_change_without_the_registry_is_acknowledged_with_its_audit_entry() {
    let mut fleet = fleet().await;
    let api = fleet.api();
    fleet.postgres.kill();
    let putting = tokio::spawn({
        let api = api.clone();
        async move { api.put("/v1/artefacts/kept.jsonl", "{}").await }
    });
    // The store has the file, but the client has no answer yet.
    until("the file is stored", || async {
        let answer = api.get("/v1/artefacts/kept.jsonl").await;
        answer.status.is_success().then_some(())
    })
    .await;
    fleet.postgres.start_again();
    let answer = putting.await.expect("an answer");
    assert!(answer.status.is_success(), "{}", answer.text());
    let entries = api.get("/v1/audit?action=artefact.put").await.json(200);
    assert_eq!(entries["entries"][0]["subject"], "kept.jsonl", "{entries}");
}

/// Workers map large models from their caches, even if the bucket is unavailable.
#[tokio::test]
async fn mapped_models_come_from_the_caches_before_the_bucket() {
    let fleet = Fleet::start(FleetSettings {
        set: vec!["limits.map_model_bytes=1".to_owned()],
        ..FleetSettings::default()
    });
    let api = fleet.api();
    learn(&api).await;
    let workers = ["worker-1", "worker-2"];
    loaded_on(&api, &workers).await;
    for worker in workers {
        let scratch = fleet.folder_of(worker).join("cache/scratch");
        let folders = std::fs::read_dir(&scratch).map_or(0, Iterator::count);
        assert!(folders > 0, "nothing in `{}`", scratch.display());
    }
}

/// A front end shows its metrics even while a store is unavailable.
#[tokio::test]
async fn metrics_say_which_store_is_away() {
    let mut fleet = Fleet::over_stores(FleetSettings::default());
    fleet.spawn("api", "api", &[]);
    let api = fleet.api();
    let say = async |store: &str, up: u8| {
        let line = format!("sextant_store_up{{store=\"{store}\"}} {up}\n");
        until("the metrics say so", || async {
            let metrics = api.get("/metrics").await;
            assert!(metrics.status.is_success(), "{}", metrics.text());
            metrics.text().contains(&line).then_some(())
        })
        .await;
    };
    for store in ["metadata", "registry", "objects"] {
        say(store, 1).await;
    }
    fleet.postgres.kill();
    say("registry", 0).await;
    say("metadata", 1).await;
    fleet.postgres.start_again();
    say("registry", 1).await;
    fleet.redis.kill();
    say("metadata", 0).await;
    fleet.redis.restart();
    say("metadata", 1).await;
    fleet.s3.kill();
    say("objects", 0).await;
    fleet.s3.restart();
    say("objects", 1).await;
}

/// All roles in one process.
const ALL: &str = "api,dispatcher,autoscaler,variant-gen,worker";

/// The command line over the stores of a fleet, with another registry and a folder of the bucket.
fn over(fleet: &Fleet, arguments: &[&str], (registry, folder): (&str, &str)) -> Output {
    let data = tempfile::tempdir().expect("a folder");
    let settings = [
        format!("registry.url={registry}"),
        format!("objects.url=s3://{}{folder}", fleet.s3.bucket()),
        format!("objects.endpoint={}", fleet.s3.endpoint()),
    ];
    let mut command = command_behind(&[]);
    command.args(arguments).arg("--data-dir").arg(data.path());
    for setting in &settings {
        command.args(["--set", setting]);
    }
    command
        .env("AWS_ACCESS_KEY_ID", fleet.s3.access_key())
        .env("AWS_SECRET_ACCESS_KEY", fleet.s3.secret_key())
        .output()
        .expect("it can be started")
}

fn done(output: &Output) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
}

#[tokio::test]
async fn a_fleet_over_another_database_leaves_the_bucket_alone() {
    let mut fleet = Fleet::over_stores(FleetSettings::default());
    fleet.spawn("api", ALL, &[]);
    learn(&fleet.api()).await;
    let file = fleet.api().get("/v1/models/mlp/file").await.body;
    fleet.stop("api");
    let other = format!("registry.url={}", fleet.postgres.database("other"));
    let sweeps = ["storage.sweep_every_s=1", "storage.grace_s=0", &other];
    fleet.spawn("strange", ALL, &sweeps);
    let api = fleet.api_of("strange");
    api.create_application("digits").await;
    let refused = api.upload(digits::upload("digits", "mlp", "mlp")).await;
    refused.problem(409, "store_mismatch");
    let swept = api.post("/v1/storage/sweep", &json!({"grace_s": 0})).await;
    swept.problem(409, "store_mismatch");
    let health = api.get("/health/ready").await.json(200);
    assert!(health["warnings"][0].is_string(), "{health}");
    fleet.stop("strange");
    fleet.launch("api");
    answers(&fleet.api()).await;
    let kept = fleet.api().get("/v1/models/mlp/file").await.body;
    assert!(kept == file, "the model's file is there");
}

#[tokio::test]
async fn a_backup_of_a_fleet_is_restored_into_an_empty_one_that_answers_alike() {
    let mut fleet = Fleet::over_stores(FleetSettings::default());
    fleet.spawn("api", ALL, &[]);
    learn(&fleet.api()).await;
    let before = answers(&fleet.api()).await["outputs"].clone();
    let folder = tempfile::tempdir().expect("a folder");
    let backup = folder.path().join("backup").display().to_string();
    let own = fleet.postgres.url();
    // The service runs meanwhile.
    done(&over(&fleet, &["backup", &backup], (&own, "")));
    let other = fleet.postgres.database("restored");
    let refused = over(&fleet, &["restore", &backup], (&other, ""));
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(told.contains("error[not_empty]"), "{told}");
    done(&over(&fleet, &["restore", &backup], (&other, "/restored")));
    fleet.stop("api");
    let objects = format!("objects.url=s3://{}/restored", fleet.s3.bucket());
    let registry = format!("registry.url={other}");
    fleet.spawn("restored", ALL, &[&registry, &objects]);
    let after = answers(&fleet.api_of("restored")).await["outputs"].clone();
    assert_eq!(after, before);
}
