//! Registrations that are made to do harm: broken, lying, huge or endless files.
//!
//! Entry points: [`cases`] lists them. [`survive_all`] registers one after the other with one service and returns the
//! results.

use std::time::Instant;

use reqwest::multipart::{Form, Part};
use serde_json::{Value, json};

use crate::{Answer, Api, Settings, TestCluster, Upload, onnx::HostileModel, until};

mod models;
mod sets;

/// One registration.
pub struct Case {
    /// What is wrong with it.
    pub name: &'static str,
    model: Vec<u8>,
    validation: Vec<u8>,
    validation_name: &'static str,
    /// A file beside the model, and its name in the model's tensors.
    data: Option<(&'static str, Vec<u8>)>,
}

/// How one registration ended.
#[derive(Debug)]
pub struct Ending {
    /// What was wrong with it.
    pub name: &'static str,
    /// The code of its refusal or failure, or `succeeded`; `no code` if there is none.
    pub code: String,
    /// How long it took, seconds.
    pub seconds: f64,
}

/// The result of all registrations.
#[derive(Debug)]
pub struct Survival {
    /// Number of registrations.
    pub tried: usize,
    /// Names and codes of the registrations that did not end as they should.
    pub wrong: Vec<(&'static str, String)>,
    /// How often the service had to be restarted.
    pub restarts: usize,
}

/// The growth of the service during one registration.
#[derive(Debug)]
pub struct Growth {
    /// The name of the case.
    pub name: &'static str,
    /// The state in which it ended.
    pub state: String,
    /// The error, if it failed.
    pub error: Value,
    /// Peak memory of the service above its memory before, bytes.
    pub bytes: u64,
}

/// Number of registrations between two good ones.
const GOOD_EVERY: usize = 10;

/// Codes that no registration may end with, whatever its files contain.
const WRONG: [&str; 2] = ["internal", "no code"];

/// All cases.
pub fn cases() -> Vec<Case> {
    let mut cases = models::cases();
    cases.extend(sets::cases());
    cases
}

/// Registers every case with one service, and after each ten a good model, which must then answer.
pub async fn survive_all(say: impl Fn(&Ending)) -> Survival {
    let mut cluster = TestCluster::start(Settings {
        set: [
            "variants.engines=ort,rten",
            "variants.max_threads=1",
            "variants.max_batch=4",
            "variants.longest_step_ms=3000",
            "variants.memory_bytes=3221225472",
        ]
        .map(str::to_owned)
        .into(),
        ..Settings::default()
    });
    let cases = cases();
    let mut survival = Survival {
        tried: cases.len(),
        wrong: Vec::new(),
        restarts: 0,
    };
    for (index, case) in cases.into_iter().enumerate() {
        let (name, api) = (case.name, cluster.api());
        let task = tokio::spawn(async move { try_one(&api, &case, index).await });
        let ending = match task.await {
            Ok(ending) => ending,
            // The client cannot continue: the service is gone.
            Err(_) => {
                cluster.kill();
                cluster.launch();
                survival.restarts += 1;
                Ending {
                    name,
                    code: "no code".to_owned(),
                    seconds: 0.0,
                }
            }
        };
        say(&ending);
        if WRONG.contains(&ending.code.as_str()) {
            survival.wrong.push((name, ending.code));
        }
    }
    survival
}

/// Registers files that would expand to much memory, and a large good one, and returns how much of the service's memory
/// each took.
pub async fn growths() -> Vec<Growth> {
    const RECORDS: usize = 3000;
    let good = Case {
        validation: sets::spacious(RECORDS),
        ..Case::model("a-hundred-and-eighty-megabytes", HostileModel::No.bytes())
    };
    let lies = |case: &Case| case.name.contains("say-they-are");
    let cases = sets::large().into_iter().filter(|case| !lies(case));
    let cases = cases.chain([models::many_nodes(), models::one_file_for_all(), good]);
    growths_of(cases, &[]).await
}

/// The same for models only, whose files are mapped.
pub async fn growths_of_mapped() -> Vec<Growth> {
    let cases = [models::many_nodes(), models::one_file_for_all()];
    growths_of(cases.into_iter(), &["limits.map_model_bytes=1"]).await
}

async fn growths_of(cases: impl Iterator<Item = Case>, set: &[&str]) -> Vec<Growth> {
    let usual = [
        "variants.engines=ort",
        "variants.max_threads=1",
        "variants.max_batch=4",
        "variants.memory_bytes=3221225472",
    ];
    let set = usual.iter().chain(set).map(|pair| (*pair).to_owned());
    let cluster = TestCluster::start(Settings {
        set: set.collect(),
        ..Settings::default()
    });
    let api = cluster.api();
    good_one_answers(&api, "good").await;
    let mut growths = Vec::new();
    for case in cases {
        api.create_application(case.name).await;
        let before = cluster.forget_peak();
        let accepted = case.send(&api).await.json(202);
        let job = accepted["job"].as_str().expect("the id of a job");
        let job = api.job_over(job).await;
        growths.push(Growth {
            name: case.name,
            state: job["state"].as_str().unwrap_or_default().to_owned(),
            error: job["error"].clone(),
            bytes: cluster.peak_bytes().saturating_sub(before),
        });
    }
    growths
}

/// Seconds until a good model is ready that is registered while one of another application never ends, with the default
/// limits.
pub async fn wait_behind_endless() -> f64 {
    let cluster = TestCluster::start(Settings::default());
    let api = cluster.api();
    let endless = Case::model("endless", HostileModel::Endless.bytes());
    api.create_application(endless.name).await;
    let accepted = api.upload(endless.upload(endless.name)).await.json(202);
    let job = accepted["job"].as_str().expect("a job");
    until("the endless one runs", || async {
        (api.job(job).await["state"] == "running").then_some(())
    })
    .await;
    let started = Instant::now();
    good_one_answers(&api, "good").await;
    let seconds = started.elapsed().as_secs_f64();
    let job = api.job(job).await;
    assert_eq!(job["state"], "running", "{job}");
    seconds
}

async fn try_one(api: &Api, case: &Case, index: usize) -> Ending {
    let started = Instant::now();
    let code = register(api, case).await;
    let seconds = started.elapsed().as_secs_f64();
    if index % GOOD_EVERY == GOOD_EVERY - 1 {
        let name = format!("good-{index}");
        good_one_answers(api, &name).await;
    }
    Ending {
        name: case.name,
        code,
        seconds,
    }
}

async fn good_one_answers(api: &Api, name: &str) {
    let good = Case::model("good", HostileModel::No.bytes());
    api.create_application(name).await;
    let job = api.register(good.upload(name)).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let query = json!({"application": name, "inputs": [
        {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [3.0, -1.0]},
    ]});
    let answer = api.post("/v1/queries", &query).await.json(200);
    assert_eq!(answer["outputs"][0]["data"], json!([3.0, 0.0]), "{answer}");
}

async fn register(api: &Api, case: &Case) -> String {
    api.create_application(case.name).await;
    let accepted = case.send(api).await;
    let said: Value = serde_json::from_slice(&accepted.body).expect("every answer is JSON");
    let code = |value: &Value| value.as_str().unwrap_or("no code").to_owned();
    let Some(job) = said["job"].as_str() else {
        return code(&said["code"]);
    };
    let job = api.job_over(job).await;
    match job["state"].as_str() {
        Some("succeeded") => "succeeded".to_owned(),
        _ => code(&job["error"]["code"]),
    }
}

// === impl Case ===

impl Case {
    fn upload<'a>(&'a self, name: &'a str) -> Upload<'a> {
        Upload {
            application: name,
            name,
            model: self.model.clone(),
            validation: self.validation.clone(),
            validation_name: self.validation_name,
        }
    }

    /// Sends it with an application of the same name.
    async fn send(&self, api: &Api) -> Answer {
        let Some((name, data)) = &self.data else {
            return api.upload(self.upload(self.name)).await;
        };
        let part =
            |bytes: &[u8], name: &str| Part::bytes(bytes.to_vec()).file_name(name.to_owned());
        let form = Form::new()
            .text("name", self.name)
            .text("application", self.name)
            .part("model", part(&self.model, "model.onnx"))
            .part("data", part(data, name))
            .part("validation", part(&self.validation, self.validation_name));
        api.multipart("/v1/models", form).await
    }

    /// A bad model with a good validation set.
    fn model(name: &'static str, model: Vec<u8>) -> Self {
        Self {
            name,
            model,
            validation: HostileModel::RECORDS.into(),
            validation_name: "validation.jsonl",
            data: None,
        }
    }

    /// A good model with a bad validation set.
    fn set(name: &'static str, file: &'static str, validation: Vec<u8>) -> Self {
        Self {
            name,
            model: HostileModel::No.bytes(),
            validation,
            validation_name: file,
            data: None,
        }
    }
}
