//! What happens beside the load: queries that no model accepts, a model that is registered during the faults, and
//! sweeps of the store.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use reqwest::{
    Method,
    multipart::{Form, Part},
};
use serde_json::json;
use tokio::{
    task::JoinHandle,
    time::{sleep, sleep_until},
};

use super::{Stage, artefacts, client, ended, hooks, jobs};
use crate::chaos::{history::Event, plan::Application};

/// Time between two queries that no model accepts.
const MISASK_EVERY: Duration = Duration::from_millis(300);
/// Time between two sweeps.
const SWEEP_EVERY: Duration = Duration::from_millis(2300);
/// Time between two attempts.
const AGAIN: Duration = Duration::from_millis(200);
/// Longest time of the registration, including its waits.
const LEARNING: Duration = Duration::from_secs(90);
/// Longest time until a ready model answers.
const ANSWERING: Duration = Duration::from_secs(30);
/// The application that is registered during the faults, and its model.
const LATE: &str = "late";

/// All of it, running.
pub struct SideLoad {
    late: JoinHandle<Result<(), String>>,
    others: Vec<JoinHandle<Result<(), String>>>,
}

impl SideLoad {
    /// Starts it.
    pub fn start(stage: &Arc<Stage>, begun: Instant) -> Self {
        let is_learning = Arc::<AtomicBool>::default();
        let late = tokio::spawn(learn_late(
            Arc::clone(stage),
            begun,
            Arc::clone(&is_learning),
        ));
        let others = vec![
            tokio::spawn(misask(Arc::clone(stage))),
            tokio::spawn(sweep(Arc::clone(stage), is_learning)),
            tokio::spawn(hooks::listen(Arc::clone(stage))),
        ];
        Self { late, others }
    }

    /// Waits for the end of the registration, and ends the rest.
    pub async fn finish(self) -> Result<(), String> {
        let late = ended(self.late).await;
        self.others.iter().for_each(JoinHandle::abort);
        late.map_or(Ok(()), Err)
    }
}

/// Sends queries with inputs that are too short.
async fn misask(stage: Arc<Stage>) -> Result<(), String> {
    let front_ends = stage.plan.front_ends();
    for number in 0usize.. {
        sleep(MISASK_EVERY).await;
        let application = &stage.plan.applications[number % stage.plan.applications.len()];
        let inputs =
            [json!({"name": "pixels", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]})];
        let body = json!({"application": application.name, "inputs": inputs});
        let to = (Method::POST, "/v1/queries");
        let front_end = &front_ends[number % front_ends.len()];
        let reply = client::send(&stage, front_end, to, Some(body.to_string().into_bytes())).await;
        if let Ok(reply) = reply {
            stage.history.note(Event::Misasked {
                status: reply.status,
                code: reply.json()["code"].as_str().unwrap_or("").to_owned(),
            });
        }
    }
    Ok(())
}

/// Sweeps the store without grace, except while an upload is on its way.
async fn sweep(stage: Arc<Stage>, is_learning: Arc<AtomicBool>) -> Result<(), String> {
    let front_ends = stage.plan.front_ends();
    for front_end in front_ends.iter().cycle() {
        sleep(SWEEP_EVERY).await;
        if !is_learning.load(Ordering::Relaxed) && swept(&stage, front_end).await {
            artefacts::changed(&stage, "storage.sweep", "storage");
        }
    }
    Ok(())
}

/// Whether a sweep was carried out.
pub async fn swept(stage: &Stage, front_end: &str) -> bool {
    let body = json!({"grace_s": 0}).to_string().into_bytes();
    let to = (Method::POST, "/v1/storage/sweep");
    let reply = client::send(stage, front_end, to, Some(body)).await;
    reply.is_ok_and(|reply| reply.is_success())
}

async fn learn_late(
    stage: Arc<Stage>,
    begun: Instant,
    is_learning: Arc<AtomicBool>,
) -> Result<(), String> {
    sleep_until((begun + Duration::from_millis(stage.plan.length_ms / 3)).into()).await;
    is_learning.store(true, Ordering::Relaxed);
    let (mut state, code) = learn(&stage).await?;
    is_learning.store(false, Ordering::Relaxed);
    if state == "ready" && !is_answered(&stage).await {
        state = "unanswered".to_owned();
    }
    stage.history.note(Event::Learnt {
        model: LATE.to_owned(),
        state,
        code,
    });
    Ok(())
}

/// Registers the model, and waits for the result.
async fn learn(stage: &Stage) -> Result<(String, String), String> {
    let until = Instant::now() + LEARNING;
    let front_ends = stage.plan.front_ends();
    let mut uploaded = false;
    for front_end in front_ends.iter().cycle() {
        if Instant::now() > until {
            break;
        }
        if !uploaded {
            uploaded = create(stage, front_end).await && upload(stage, front_end).await;
        } else {
            let path = format!("/v1/models/{LATE}");
            let model = jobs::insist(stage, (Method::GET, &path), None)
                .await?
                .json();
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            let state = text(&model["status"]);
            if state != "registering" {
                return Ok((state, text(&model["error"]["code"])));
            }
        }
        sleep(AGAIN).await;
    }
    Ok(("registering".to_owned(), String::new()))
}

async fn create(stage: &Stage, front_end: &str) -> bool {
    let body = json!({"name": LATE, "metric": "top1"}).to_string();
    let to = (Method::POST, "/v1/applications");
    let reply = client::send(stage, front_end, to, Some(body.into_bytes())).await;
    // An existing one was created by an attempt whose answer was lost.
    reply.is_ok_and(|reply| reply.is_success() || reply.status == 409)
}

async fn upload(stage: &Stage, front_end: &str) -> bool {
    let Some(address) = stage.address(front_end) else {
        return false;
    };
    let part = |bytes: Vec<u8>, name: &str| Part::bytes(bytes).file_name(name.to_owned());
    let validation = client::validation(stage.plan.seed);
    let form = Form::new()
        .text("name", LATE)
        .text("application", LATE)
        .part("model", part(client::model(&late()), "model.onnx"))
        .part("validation", part(validation, "validation.jsonl"));
    let request = stage.http.post(format!("{address}/v1/models"));
    match request.multipart(form).send().await {
        Ok(reply) if reply.status().is_success() => {
            artefacts::changed(stage, "model.create", LATE);
            true
        }
        Ok(reply) => reply.status().as_u16() == 409,
        Err(_) => false,
    }
}

/// Whether every front end answers queries to it.
async fn is_answered(stage: &Stage) -> bool {
    for front_end in stage.plan.front_ends() {
        let until = Instant::now() + ANSWERING;
        loop {
            let body = client::query(stage, &late(), 0);
            let to = (Method::POST, "/v1/queries");
            let reply = client::send(stage, &front_end, to, Some(body)).await;
            if reply.is_ok_and(|reply| reply.is_success()) {
                break;
            }
            if Instant::now() > until {
                return false;
            }
            sleep(AGAIN).await;
        }
    }
    true
}

fn late() -> Application {
    Application {
        name: LATE.to_owned(),
        // It must differ from every model of a plan, so that its file differs.
        alpha_ms: 1,
        beta_ms: 5,
        rate: 0.0,
        latency_ms: None,
        is_modest: true,
    }
}
