//! Which models run in processes of their own. It depends on who registered them and on what an administrator sets,
//! also while they are loaded.

use serde_json::{Value, json};
use sextant_tests::{Answer, Api, Settings, TestCluster, Upload, hog, onnx, until};

const ADMIN: &str = "an-administrators-key-for-tests";

/// The models' answer to the query.
const ANSWER: [f64; 2] = [3.0, 0.0];

/// A service with keys, and a key that registers and sends queries.
struct Bed {
    cluster: TestCluster,
    secret: String,
    id: String,
}

impl Bed {
    async fn start(isolation: &str) -> Self {
        Self::start_with(isolation, &[]).await
    }

    async fn start_with(isolation: &str, more: &[String]) -> Self {
        let set = [
            "variants.engines=ort".to_owned(),
            "variants.max_batch=4".to_owned(),
            "auth.mode=keys".to_owned(),
            format!("auth.admin_key={ADMIN}"),
            format!("worker.isolation={isolation}"),
        ];
        let cluster = TestCluster::start(Settings {
            set: [&set[..], more].concat(),
            ..Settings::default()
        });
        let key = json!({"name": "team", "scopes": ["register", "query"]});
        let admin = cluster.api().with_key(ADMIN);
        let made = admin.post("/v1/keys", &key).await.created();
        let text = |of: &Value| of.as_str().expect("a text").to_owned();
        Self {
            cluster,
            secret: text(&made["secret"]),
            id: text(&made["key"]["id"]),
        }
    }

    fn admin(&self) -> Api {
        self.cluster.api().with_key(ADMIN)
    }

    fn team(&self) -> Api {
        self.cluster.api().with_key(&self.secret)
    }

    /// Waits until `processes` processes run engines; the models answer all the time.
    async fn becomes(&self, processes: usize, models: &[&str]) {
        let team = self.team();
        until("engines run where they should", || async {
            for model in models {
                let answer = answer(&team, model).await.json(200);
                assert_eq!(answer["outputs"][0]["data"], json!(ANSWER));
            }
            (self.cluster.children("host").len() == processes).then_some(())
        })
        .await;
    }

    /// Waits until an engine runs in a process and all threads of this process keep to a core.
    async fn keeps_to(&self, core: usize) {
        until("the process of an engine keeps to its core", || async {
            let processes = self.cluster.children("host").into_iter();
            let threads = processes.map(|process| hog::cores_of_threads(process, ""));
            let threads = threads.collect::<Vec<_>>().concat();
            let is_kept = !threads.is_empty() && threads.iter().all(|cores| *cores == [core]);
            is_kept.then_some(())
        })
        .await;
    }
}

/// Registers a model under an application of its own name and returns its document.
async fn register(api: &Api, name: &str) -> Value {
    api.create_application(name).await;
    let upload = Upload {
        application: name,
        name,
        model: onnx::HostileModel::No.bytes(),
        validation: onnx::HostileModel::RECORDS.into(),
        validation_name: "validation.jsonl",
    };
    let job = api.register(upload).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    ask(api, name).await;
    api.get(&format!("/v1/models/{name}")).await.json(200)
}

/// Waits until a model answers.
async fn ask(api: &Api, name: &str) {
    let answered = until("the model is loaded", || async {
        let answered = answer(api, name).await;
        answered.status.is_success().then_some(answered)
    })
    .await;
    assert_eq!(answered.json(200)["outputs"][0]["data"], json!(ANSWER));
}

async fn answer(api: &Api, name: &str) -> Answer {
    let query = json!({"application": name, "inputs": [
        {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [3.0, -1.0]},
    ]});
    api.post("/v1/queries", &query).await
}

/// Sets the isolation of an application's models.
async fn say(api: &Api, application: &str, isolation: Value) {
    let path = format!("/v1/applications/{application}");
    let change = json!({"resources": {"isolation": isolation}});
    let changed = api.patch(&path, &change).await.json(200);
    assert_eq!(changed["resources"]["isolation"], isolation, "{changed}");
}

#[tokio::test]
async fn models_of_keys_are_isolated_unless_an_administrator_says_otherwise() {
    let bed = Bed::start("keys").await;
    let ours = register(&bed.admin(), "ours").await;
    let by = json!({"name": "administrator", "administrator": true});
    assert_eq!(ours["registered_by"], by);
    assert_eq!(bed.cluster.children("host").len(), 0);
    let theirs = register(&bed.team(), "theirs").await;
    let by = json!({"name": bed.id, "administrator": false});
    assert_eq!(theirs["registered_by"], by);
    assert_eq!(bed.cluster.children("host").len(), 1);
    // A key that registers models does not decide about isolation.
    let here = json!({"resources": {"isolation": "worker"}});
    let refused = bed.team().patch("/v1/applications/theirs", &here).await;
    refused.problem(403, "forbidden");
    say(&bed.admin(), "theirs", json!("worker")).await;
    bed.becomes(0, &["ours", "theirs"]).await;
    say(&bed.admin(), "ours", json!("process")).await;
    bed.becomes(1, &["ours", "theirs"]).await;
    // Without these settings the state is as before.
    say(&bed.admin(), "ours", Value::Null).await;
    say(&bed.admin(), "theirs", Value::Null).await;
    bed.becomes(1, &["ours", "theirs"]).await;
}

#[tokio::test]
async fn an_application_may_be_isolated_where_workers_isolate_nothing() {
    let bed = Bed::start("none").await;
    register(&bed.team(), "theirs").await;
    assert_eq!(bed.cluster.children("host").len(), 0);
    say(&bed.admin(), "theirs", json!("process")).await;
    bed.becomes(1, &["theirs"]).await;
    let wrong = json!({"resources": {"isolation": "none"}});
    let refused = bed.admin().patch("/v1/applications/theirs", &wrong).await;
    refused.problem(400, "invalid_request");
}

#[tokio::test]
async fn processes_keep_to_the_cores_of_their_worker() {
    let core = *hog::cores().last().expect("a core");
    let bed = Bed::start_with("process", &[format!("worker.pin={core}")]).await;
    register(&bed.team(), "kept").await;
    bed.keeps_to(core).await;
    // A process that replaces it keeps to the core as well.
    for process in bed.cluster.children("host") {
        bed.cluster.kill_child(process);
    }
    ask(&bed.team(), "kept").await;
    bed.keeps_to(core).await;
}
