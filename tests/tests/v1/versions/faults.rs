//! Faults of a version, or faults while versions are switched. Queries that name the model or the application are never
//! affected.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
    time::{Duration, Instant},
};

use sextant_tests::{Upload, chaos::worth::Draw, onnx::HostileModel};

use super::*;

/// A harmless model whose second version ends its engine's process.
async fn crashing() -> TestCluster {
    let set = [
        "variants.engines=ort",
        "variants.max_threads=1",
        "variants.max_batch=4",
        "worker.cores=2",
        "worker.isolation=process",
    ];
    let cluster = TestCluster::start(Settings {
        set: set.map(str::to_owned).to_vec(),
        ..Settings::default()
    });
    let api = cluster.api();
    api.create_application("turns").await;
    for model in [HostileModel::No, HostileModel::Divides] {
        let job = api
            .register(Upload {
                application: "turns",
                name: "model",
                model: model.bytes(),
                validation: HostileModel::RECORDS.into(),
                validation_name: "validation.jsonl",
            })
            .await;
        assert_eq!(job["state"], "succeeded", "{job}");
    }
    cluster
}

async fn divide(api: &Api, what: (&str, &str), largest: f64) -> Answer {
    let query = json!({what.0: what.1, "inputs": [
        {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [largest, -1.0]},
    ]});
    api.post("/v1/queries", &query).await
}

/// The counts of a version that is tried.
async fn trial(api: &Api, version: u64) -> Option<Value> {
    let trials = api.get("/v1/models/model/trials").await.json(200);
    let mut trials = trials["trials"].as_array().expect("a list").iter();
    trials.find(|it| it["version"] == version).cloned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_crashes_its_engine_costs_no_query() {
    let cluster = crashing().await;
    let api = cluster.api();
    until("a query for version 2 reports the crash", || async {
        let lost = divide(&api, ("model", "model@2"), HostileModel::CRASHES).await;
        (lost.status == 500).then(|| lost.problem(500, "engine_failed"))
    })
    .await;
    for tried in [
        json!({"stage": "shadow"}),
        json!({"stage": "canary", "percent": 60}),
    ] {
        let before = trial(&api, 2).await;
        let before = before.map_or(0, |it| it["errors"].as_u64().unwrap_or_default());
        api.patch("/v1/models/model/versions/2", &tried)
            .await
            .json(200);
        until("the version has crashed its engine again", || async {
            for _ in 0..8 {
                let answer = divide(&api, ("application", "turns"), HostileModel::CRASHES).await;
                let answer = answer.json(200);
                assert_eq!(answer["version"], 1, "{answer}");
                assert_eq!(answer["outputs"][0]["data"], json!([7.0, 0.0]), "{answer}");
                // Either version answers harmless queries, and the current one does while the other is unavailable.
                let answer = divide(&api, ("application", "turns"), 3.0).await.json(200);
                assert_eq!(answer["outputs"][0]["data"], json!([3.0, 0.0]), "{answer}");
            }
            let errors = trial(&api, 2).await?["errors"].as_u64()?;
            (errors > before + 1).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_with_another_signature_is_refused_with_what_differs() {
    let cluster = service().await;
    let api = cluster.api();
    let accepted = api
        .upload(Upload {
            application: "digits",
            name: "model",
            model: HostileModel::No.bytes(),
            validation: HostileModel::RECORDS.into(),
            validation_name: "validation.jsonl",
        })
        .await;
    let error = match accepted.status.as_u16() {
        202 => {
            let accepted = accepted.json(202);
            let job = api.job_over(accepted["job"].as_str().expect("a job")).await;
            assert_eq!(job["state"], "failed", "{job}");
            job["error"].clone()
        }
        _ => accepted.problem(400, "signature_mismatch"),
    };
    assert_eq!(error["code"], "signature_mismatch", "{error}");
    let told = error.to_string();
    // The message names both signatures by name and shape, so that readers can tell them apart.
    for part in ["`x: FP32 [?, 2]`", "`pixels: FP32 [?, 64]`"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let versions = api.get("/v1/models/model/versions").await.json(200);
    assert_eq!(versions["current"], 1, "{versions}");
    assert_eq!(answers(&api, ("model", "model")).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_who_switch_at_once_one_wins_and_the_other_is_told() {
    let cluster = service().await;
    let api = cluster.api();
    next(&api, "logistic", &[]).await;
    next(&api, "cnn-small", &[]).await;
    act(&api, 2, "promotion", 1).await.json(200);
    let mut current = 2;
    for round in 0..10 {
        let other = if current == 3 { 2 } else { 3 };
        let (promoted, rolled_back) = tokio::join!(
            act(&api, other, "promotion", current),
            act(&api, current, "rollback", current),
        );
        let won = [&promoted, &rolled_back].map(|it| it.status == 200);
        assert_eq!(won.iter().filter(|won| **won).count(), 1, "round {round}");
        let now = match won[0] {
            true => {
                rolled_back.problem(409, "version_conflict");
                promoted.json(200)
            }
            false => {
                promoted.problem(409, "version_conflict");
                rolled_back.json(200)
            }
        };
        let stages = stages(&api).await;
        let at = stages.iter().filter(|it| *it == "current").count();
        assert_eq!(at, 1, "round {round}: {stages:?}");
        current = now["current"].as_u64().expect("a version") as u32;
        if current == 1 {
            act(&api, 2, "promotion", 1).await.json(200);
            current = 2;
        }
    }
    await_version(&api, ("model", "model"), current.into()).await;
}

/// Feedback that was acknowledged, by token.
#[derive(Default)]
struct AcknowledgedFeedback(BTreeMap<String, usize>);

impl AcknowledgedFeedback {
    /// Sends a query and labels the answer with its own class. Both requests have to succeed.
    async fn give(&mut self, api: &Api, image: usize) {
        let query = json!({
            "application": "digits", "inputs": digits::Images::load("test").input(image),
        });
        let answer = api.post("/v1/queries", &query).await.json(200);
        let label = digits::digit(&answer["outputs"][0]["data"]);
        let token = answer["feedback_token"].as_str().expect("a token");
        let item = json!({"token": token, "label": label});
        let taken = api.post("/v1/feedback", &item).await.json(200);
        assert_eq!(taken["accepted"], 1, "{taken}");
        self.0.insert(token.to_owned(), label);
    }

    /// Posts all feedback again: what is kept is reported as repeated.
    async fn check(&self, api: &Api) {
        let items = self
            .0
            .iter()
            .map(|(token, label)| json!({"token": token, "label": label}));
        let items: Vec<Value> = items.collect();
        let taken = api.post("/v1/feedback", &json!(items)).await.json(200);
        assert_eq!(taken["repeated"], self.0.len(), "{taken}");
        let exported = api.get("/v1/applications/digits/feedback").await.text();
        let queries: BTreeSet<&str> = exported.lines().collect();
        assert!(queries.len() >= self.0.len(), "{exported}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_at_any_moment_of_a_switch_leaves_one_current_version() {
    const SEED: u64 = 44;
    const MOMENTS: u32 = 20;
    println!("seed {SEED}");
    let mut random = Draw::new(SEED, 0);
    let mut cluster = service().await;
    next(&cluster.api(), "logistic", &[]).await;
    let body = json!({"feedback": {}});
    let api = cluster.api();
    api.patch("/v1/applications/digits", &body).await.json(200);
    until("answers have tokens", || async {
        let answer = ask(&api, ("application", "digits"), 0).await.json(200);
        answer["feedback_token"].is_string().then_some(())
    })
    .await;
    let mut given = AcknowledgedFeedback::default();
    // The time of a switch. Moments are drawn from all of it and from a little time after it.
    let begun = Instant::now();
    act(&api, 2, "promotion", 1).await.json(200);
    let longest = begun.elapsed().mul_f64(1.5).max(Duration::from_millis(4));
    for _ in 0..MOMENTS {
        let api = cluster.api();
        given.give(&api, random.within(0..32) as usize).await;
        let current = api.get("/v1/models/model/versions").await.json(200)["current"].clone();
        let (path, body) = match random.unit() < 0.5 {
            true => (format!("{current}/rollback"), json!({"current": current})),
            false => {
                let other = if current == 1 { 2 } else { 1 };
                (format!("{other}/promotion"), json!({"current": current}))
            }
        };
        let path = format!("/v1/models/model/versions/{path}");
        // The process is killed before, while or after the call is answered.
        let moment = longest.mul_f64(random.unit());
        let switching = api.post(&path, &body);
        drop(tokio::time::timeout(moment, switching).await);
        cluster.kill();
        cluster.launch();
        let stages = stages(&cluster.api()).await;
        let current = stages.iter().filter(|it| *it == "current").count();
        assert_eq!(current, 1, "{stages:?}");
    }
    let api = cluster.api();
    given.check(&api).await;
    let versions = api.get("/v1/models/model/versions").await.json(200);
    let current = versions["current"].as_u64().expect("a version");
    await_version(&api, ("model", "model"), current).await;
}

/// Changes the registry behind the service's back.
fn change_registry(cluster: &TestCluster, statement: &str) {
    const RUN: &str = "import sqlite3, sys\n\
        registry = sqlite3.connect(sys.argv[1], timeout=60)\n\
        registry.execute(sys.argv[2])\n\
        registry.commit()\n";
    let file = cluster.data().join("registry.sqlite");
    let status = Command::new("python3")
        .args(["-c", RUN])
        .arg(file)
        .arg(statement)
        .status()
        .expect("python3 can be started");
    assert!(status.success(), "{statement}");
}

/// An administrator's act and its entry in the audit record are made together or not at all.
#[tokio::test]
async fn what_cannot_be_recorded_is_not_done() {
    let cluster = service_with(Settings {
        faults: true,
        ..Settings::default()
    })
    .await;
    let api = cluster.api();
    next(&api, "logistic", &[]).await;
    let before = stages(&api).await;
    change_registry(&cluster, "alter table audit rename to hidden");
    let canary = json!({"stage": "canary", "percent": 5});
    let version = "/v1/models/model/versions/2";
    for refused in [
        act(&api, 2, "promotion", 1).await,
        api.patch(version, &canary).await,
    ] {
        assert!(refused.status.is_server_error(), "{refused:?}");
        assert_eq!(stages(&api).await, before);
    }
    change_registry(&cluster, "alter table hidden rename to audit");
    act(&api, 2, "promotion", 1).await.json(200);
    act(&api, 2, "rollback", 2).await.json(200);
    let recorded = api.get("/v1/audit?subject=digits:model@2").await.json(200);
    let recorded = recorded["entries"].as_array().expect("a list").iter();
    let recorded: Vec<Value> = recorded
        .map(|it| json!([it["action"], it["actor"], it["detail"]]))
        .collect();
    let promoted = json!({"stage": "current", "percent": null});
    let wanted = [
        json!(["version.rollback", "anonymous", {"current": 1}]),
        json!(["version.promote", "anonymous", promoted]),
    ];
    assert_eq!(recorded, wanted);
}
