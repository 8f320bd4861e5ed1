//! Queries that are hard on an engine: each gets a coded answer, and no other query is affected.

use serde_json::{Value, json};
use sextant_tests::{Answer, Api, Settings, TestCluster, Upload, onnx, until};

/// A service with one or two variants of each model, whose runs may take three seconds. Good runs take less, even on a
/// busy machine where their process is started first.
fn service(set: &[&str]) -> TestCluster {
    let common = [
        "variants.engines=ort",
        "variants.max_threads=1",
        "variants.max_batch=4",
        "worker.cores=2",
        "worker.stuck_batch_ms=3000",
    ];
    let set = common.iter().chain(set);
    TestCluster::start(Settings {
        set: set.map(|pair| (*pair).to_owned()).collect(),
        ..Settings::default()
    })
}

/// Registers a model under an application of its own name.
async fn register(api: &Api, name: &str, model: onnx::HostileModel) {
    api.create_application(name).await;
    let upload = Upload {
        application: name,
        name,
        model: model.bytes(),
        validation: onnx::HostileModel::RECORDS.into(),
        validation_name: "validation.jsonl",
    };
    let job = api.register(upload).await;
    assert_eq!(job["state"], "succeeded", "{job}");
}

async fn ask(api: &Api, application: &str, largest: f64) -> Answer {
    let query = json!({"application": application, "inputs": [
        {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [largest, -1.0]},
    ]});
    api.post("/v1/queries", &query).await
}

/// The outputs of a harmless query.
async fn answered(api: &Api, application: &str) -> Value {
    ask(api, application, 3.0).await.json(200)["outputs"][0]["data"].clone()
}

/// Threads that run batches.
fn executors(cluster: &TestCluster) -> usize {
    let threads = cluster.threads().into_iter();
    threads
        .filter(|(_, name)| name.starts_with("sextant-exec"))
        .count()
}

#[tokio::test]
async fn a_query_that_never_ends_is_ended_and_costs_nobody_else() {
    let cluster = service(&[]);
    let api = cluster.api();
    register(&api, "turns", onnx::HostileModel::Turns).await;
    register(&api, "good", onnx::HostileModel::No).await;
    assert_eq!(answered(&api, "turns").await, json!([3.0, 0.0]));
    assert_eq!(answered(&api, "good").await, json!([3.0, 0.0]));
    let before = executors(&cluster);
    for _ in 0..4 {
        let endless = ask(&api, "turns", 1e18);
        let beside = async {
            for _ in 0..5 {
                assert_eq!(answered(&api, "good").await, json!([3.0, 0.0]));
            }
        };
        let (endless, ()) = tokio::join!(endless, beside);
        endless.problem(400, "time_exceeded");
        assert_eq!(answered(&api, "turns").await, json!([3.0, 0.0]));
    }
    assert_eq!(executors(&cluster), before, "a thread was left behind");
    until("no thread computes any more", || async {
        let busy = cluster.busy_threads();
        let busy = busy.iter().any(|name| name.starts_with("sextant-exec"));
        (!busy).then_some(())
    })
    .await;
}

/// A service in which the engine of each model has a process of its own that may take 1 GB.
fn isolated() -> TestCluster {
    service(&[
        "worker.isolation=process",
        "worker.process_memory_bytes=1073741824",
    ])
}

#[tokio::test]
async fn a_query_that_takes_too_much_memory_is_answered_and_costs_nobody_else() {
    let cluster = isolated();
    let api = cluster.api();
    register(&api, "room", onnx::HostileModel::Room).await;
    register(&api, "good", onnx::HostileModel::No).await;
    assert_eq!(answered(&api, "room").await, json!([4.0, 0.0]));
    assert_eq!(answered(&api, "good").await, json!([3.0, 0.0]));
    // 100 MB is within the limit, 8 GB and more are not.
    ask(&api, "room", 25e6).await.json(200);
    for floats in [2e9, 1e12, 4e18] {
        let harmful = ask(&api, "room", floats);
        let beside = async {
            for _ in 0..5 {
                assert_eq!(answered(&api, "good").await, json!([3.0, 0.0]));
            }
        };
        let (harmful, ()) = tokio::join!(harmful, beside);
        harmful.problem(400, "memory_exceeded");
        assert_eq!(answered(&api, "room").await, json!([4.0, 0.0]));
    }
}

#[tokio::test]
async fn an_isolated_query_that_never_ends_is_ended_with_its_process() {
    let cluster = isolated();
    let api = cluster.api();
    register(&api, "turns", onnx::HostileModel::Turns).await;
    register(&api, "good", onnx::HostileModel::No).await;
    assert_eq!(answered(&api, "turns").await, json!([3.0, 0.0]));
    assert_eq!(answered(&api, "good").await, json!([3.0, 0.0]));
    let [first, other] = cluster.children("host")[..] else {
        panic!("each artefact has a process");
    };
    let endless = ask(&api, "turns", 1e18).await;
    endless.problem(400, "time_exceeded");
    assert_eq!(answered(&api, "turns").await, json!([3.0, 0.0]));
    assert_eq!(answered(&api, "good").await, json!([3.0, 0.0]));
    let now = cluster.children("host");
    assert_eq!(now.len(), 2, "{now:?}");
    assert!(
        !(now.contains(&first) && now.contains(&other)),
        "one process is new"
    );
}

#[tokio::test]
async fn processes_that_are_killed_under_load_lose_no_query() {
    let cluster = isolated();
    let api = cluster.api();
    register(&api, "good", onnx::HostileModel::No).await;
    assert_eq!(answered(&api, "good").await, json!([3.0, 0.0]));
    let asking = (0..4).map(|_| async {
        for _ in 0..200 {
            let answer = ask(&api, "good", 3.0).await;
            // Each query has one outcome: it is answered, or told to try again.
            match answer.status.as_u16() {
                503 => drop(answer.problem(503, "unavailable")),
                _ => assert_eq!(answer.json(200)["outputs"][0]["data"], json!([3.0, 0.0])),
            }
        }
    });
    let killing = async {
        for _ in 0..5 {
            let before = cluster.children("host");
            before
                .iter()
                .for_each(|process| cluster.kill_child(*process));
            until("another process serves", || async {
                answered_or_none(&api, "good").await?;
                let now = cluster.children("host");
                (!now.is_empty() && now != before).then_some(())
            })
            .await;
        }
    };
    tokio::join!(futures::future::join_all(asking), killing);
    assert_eq!(answered(&api, "good").await, json!([3.0, 0.0]));
}

async fn answered_or_none(api: &Api, application: &str) -> Option<()> {
    let answer = ask(api, application, 3.0).await;
    (answer.status == 200).then_some(())
}

#[tokio::test]
async fn inputs_that_would_take_more_memory_than_there_is_are_refused_before_they_run() {
    let cluster = service(&["variants.memory_bytes=1073741824"]);
    let api = cluster.api();
    register(&api, "square", onnx::HostileModel::Square).await;
    let ask = async |length: usize| {
        let query = json!({"application": "square", "inputs": [
            {"name": "x", "shape": [1, length], "datatype": "FP32", "data": vec![1.0; length]},
        ]});
        api.post("/v1/queries", &query).await
    };
    let answer = ask(512).await.json(200);
    assert_eq!(answer["outputs"][0]["data"], json!([1.0, -1.0]), "{answer}");
    // Its run would need 1.6 TB.
    let problem = ask(640_000).await.problem(400, "invalid_tensor");
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("too long"), "{problem}");
    let answer = ask(2).await.json(200);
    assert_eq!(answer["outputs"][0]["data"], json!([1.0, -1.0]), "{answer}");
}
