//! Stores that go away, come back, and come back empty.

use super::*;
use sextant_test_servers::s3::Fault;
use sextant_tests::Load;

#[tokio::test]
async fn redis_restarts_with_its_data_and_without() {
    let mut fleet = fleet().await;
    let load = Load::start(fleet.api(), 4, None).await;
    load.answers(50).await;
    fleet.redis.restart();
    load.answers(100).await;
    fleet.redis.restart_empty();
    load.answers(100).await;
    // What it lost is written again by those whom it concerns.
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
    let over = until("the registration is over", || async {
        // While the registry is away, it is said so.
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
    assert!(fleet.s3.faults().injected() > 0, "nothing went wrong");
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
        // The first one to ask finds a broken connection.
        let there = api.get("/v1/workers").await.status == 200;
        (there && workers(&api).await.len() == 2).then_some(())
    })
    .await;
    refused().await;
    until("the variants are published again", || async {
        let instances = api.get("/v1/instances").await.json(200);
        let all = instances["instances"].as_array().into_iter().flatten();
        (all.filter(|it| it["state"] == "active").count() >= 2).then_some(())
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
    // The store has it; who sent it is not told yet.
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

/// Workers map large models where their caches have them, whatever the bucket is.
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

/// A front end shows its metrics when they matter most.
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
