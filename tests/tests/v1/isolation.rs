//! Whose models run in processes of their own: by who registered them, and by what an administrator says.

use serde_json::{Value, json};
use sextant_tests::{Api, Settings, TestCluster, Upload, onnx, until};

const ADMIN: &str = "an-administrators-key-for-tests";

/// A service with keys, its administrator, and a key that registers and asks, with its id.
async fn service(set: &[&str]) -> (TestCluster, Api, (Api, String)) {
    let admin_key = format!("auth.admin_key={ADMIN}");
    let common = [
        "variants.engines=ort",
        "variants.max_batch=4",
        "auth.mode=keys",
        &admin_key,
    ];
    let cluster = TestCluster::start(Settings {
        set: common
            .iter()
            .chain(set)
            .map(|it| (*it).to_owned())
            .collect(),
        ..Settings::default()
    });
    let admin = cluster.api().with_key(ADMIN);
    let key = json!({"name": "team", "scopes": ["register", "query"]});
    let key = admin.post("/v1/keys", &key).await.created();
    let text = |of: &Value| of.as_str().expect("a text").to_owned();
    let team = cluster.api().with_key(&text(&key["secret"]));
    (cluster, admin, (team, text(&key["key"]["id"])))
}

/// Registers a model under an application of its own name; its document.
async fn register(api: &Api, name: &str) -> Value {
    api.create_application(name).await;
    let upload = Upload {
        application: name,
        name,
        model: onnx::Hostile::No.bytes(),
        validation: onnx::Hostile::RECORDS.into(),
        validation_name: "validation.jsonl",
    };
    let job = api.register(upload).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    api.get(&format!("/v1/models/{name}")).await.json(200)
}

/// Loads a model again, has it answer and tells how many processes there are for engines.
async fn processes(cluster: &TestCluster, api: &Api, name: &str) -> usize {
    for act in ["unload", "load"] {
        let path = format!("/v2/repository/models/{name}/{act}");
        let done = api.post(&path, &json!({})).await;
        assert!(done.status.is_success(), "{}", done.text());
    }
    let query = json!({"application": name, "inputs": [
        {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [3.0, -1.0]},
    ]});
    let answer = api.post("/v1/queries", &query).await.json(200);
    assert_eq!(answer["outputs"][0]["data"], json!([3.0, 0.0]));
    cluster.children("host").len()
}

/// Waits until there are so many of them: a change takes a moment to reach the worker.
async fn becomes(cluster: &TestCluster, api: &Api, (name, count): (&str, usize)) {
    until("the model runs where it is to", || async {
        (processes(cluster, api, name).await == count).then_some(())
    })
    .await;
}

#[tokio::test]
async fn models_of_keys_are_isolated_unless_an_administrator_says_otherwise() {
    let (cluster, admin, (team, id)) = service(&["worker.isolation=keys"]).await;
    let ours = register(&admin, "ours").await;
    assert_eq!(
        ours["registered_by"],
        json!({"name": "administrator", "administrator": true})
    );
    assert_eq!(processes(&cluster, &admin, "ours").await, 0);
    let theirs = register(&team, "theirs").await;
    assert_eq!(
        theirs["registered_by"],
        json!({"name": id, "administrator": false})
    );
    assert_eq!(processes(&cluster, &team, "theirs").await, 1);
    // Whoever registers does not decide.
    let here = json!({"resources": {"isolation": "worker"}});
    let refused = team.patch("/v1/applications/theirs", &here).await;
    refused.problem(403, "forbidden");
    let changed = admin.patch("/v1/applications/theirs", &here).await;
    assert_eq!(changed.json(200)["resources"], here["resources"]);
    becomes(&cluster, &team, ("theirs", 0)).await;
    let apart = json!({"resources": {"isolation": "process"}});
    let changed = admin.patch("/v1/applications/ours", &apart).await;
    assert_eq!(changed.json(200)["resources"], apart["resources"]);
    becomes(&cluster, &admin, ("ours", 1)).await;
    // Taken back.
    let usual = json!({"resources": {"isolation": null}});
    admin.patch("/v1/applications/ours", &usual).await.json(200);
    becomes(&cluster, &admin, ("ours", 0)).await;
}

#[tokio::test]
async fn an_application_may_be_isolated_where_workers_isolate_nothing() {
    let (cluster, admin, (team, _)) = service(&["worker.isolation=none"]).await;
    register(&team, "theirs").await;
    assert_eq!(processes(&cluster, &team, "theirs").await, 0);
    let apart = json!({"resources": {"isolation": "process"}});
    admin
        .patch("/v1/applications/theirs", &apart)
        .await
        .json(200);
    becomes(&cluster, &team, ("theirs", 1)).await;
    let wrong = json!({"resources": {"isolation": "none"}});
    let refused = admin.patch("/v1/applications/theirs", &wrong).await;
    refused.problem(400, "invalid_request");
}
