//! Models that a persistent client registers during the faults, and asks at the end.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use reqwest::{
    Method, StatusCode,
    multipart::{Form, Part},
};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use super::{Stage, artefacts, client, faults, pace::Patience};
use crate::{
    chaos::{
        history::Event,
        plan::{Kind, LATE, Setting},
        worth,
    },
    digits, onnx,
};

/// Time for which a client repeats a refused request, and waits for the end of a registration.
const PATIENCE: Duration = Duration::from_secs(150);
/// Time between two attempts.
const AGAIN: Duration = Duration::from_millis(200);
/// Time for which the metadata store is away during a registration: longer than it takes to measure an emulated model.
const AWAY: Duration = Duration::from_secs(4);

/// Sends the plan's registrations at their times, except those that come after the load.
pub fn submit(stage: &Arc<Stage>, begun: Instant) -> JoinSet<Result<(), String>> {
    let times = stage.plan.registrations.iter().map_while(|it| it.at_ms);
    super::at(begun, times, |number| submit_one(Arc::clone(stage), number))
}

async fn submit_one(stage: Arc<Stage>, number: usize) -> Result<(), String> {
    let stage = &*stage;
    let name = &stage.plan.registrations[number].name;
    let mut patience = Patience::new(PATIENCE);
    let front_ends = stage.plan.front_ends();
    let mut last = String::new();
    for front_end in front_ends.iter().cycle() {
        if patience.is_over(stage) {
            break;
        }
        match client::upload(stage, front_end, form(stage, name)).await {
            Ok(reply) if reply.is_success() => {
                artefacts::changed(stage, "model.create", name);
                stage.history.note(Event::Registered {
                    registration: number,
                });
                return Ok(());
            }
            // An earlier attempt was accepted, and its answer was lost.
            Ok(reply) if reply.status == StatusCode::CONFLICT.as_u16() && !last.is_empty() => {
                stage.history.note(Event::Registered {
                    registration: number,
                });
                return Ok(());
            }
            Ok(reply) => {
                client::refused(stage, "POST /v1/models", &reply);
                last = reply.say();
            }
            Err(cause) => last = cause,
        }
        sleep(AGAIN).await;
    }
    Err(format!("the registration of `{name}`: {last}"))
}

fn form(stage: &Stage, name: &str) -> Form {
    let part = |bytes: Vec<u8>, file: &str| Part::bytes(bytes).file_name(file.to_owned());
    // A separate file, so that nothing of it is in the store already.
    let metadata = vec![
        ("sextant.alpha_ms", "3".to_owned()),
        ("sextant.beta_ms", "3".to_owned()),
        ("sextant.load_ms", "20".to_owned()),
        ("name", name.to_owned()),
    ];
    let model = onnx::Model {
        metadata,
        ..onnx::Model::default()
    };
    let validation = client::validation(stage.plan.seed);
    Form::new()
        .text("name", name.to_owned())
        .text("application", LATE)
        .part("model", part(model.bytes(), "model.onnx"))
        .part("validation", part(validation, "validation.jsonl"))
}

/// Sends the registrations that come after the load, waits for the end of all, and asks the registered models.
pub async fn finish(
    stage: &Arc<Stage>,
    mut submitted: JoinSet<Result<(), String>>,
) -> Result<(), String> {
    while let Some(ended) = submitted.join_next().await {
        ended.map_err(super::said)??;
    }
    let all = stage.plan.registrations.iter().enumerate();
    for (number, _) in all.filter(|(_, registration)| registration.at_ms.is_none()) {
        submit_one(Arc::clone(stage), number).await?;
    }
    cut_metadata(stage).await?;
    for (number, registration) in stage.plan.registrations.iter().enumerate() {
        let Some((state, code)) = over(stage, &registration.name).await? else {
            continue;
        };
        let scores = match &*state {
            "ready" => ask(stage, &registration.name).await?,
            _ => Vec::new(),
        };
        stage.history.note(Event::RegistrationOver {
            registration: number,
            state,
            code,
            scores,
        });
    }
    Ok(())
}

/// Ends the metadata store like a power cut, so that variants that are measured meanwhile cannot be published, and
/// starts it again after a while.
async fn cut_metadata(stage: &Arc<Stage>) -> Result<(), String> {
    if stage.plan.setting == Setting::One {
        return Ok(());
    }
    faults::once(stage, Kind::RedisKilled, AWAY).await
}

/// State and code of a model whose registration has ended; `None` if it does not end.
async fn over(stage: &Stage, name: &str) -> Result<Option<(String, String)>, String> {
    let front_end = &stage.plan.front_ends()[0];
    let mut patience = Patience::new(PATIENCE);
    while !patience.is_over(stage) {
        let path = format!("/v1/models/{name}");
        let reply = client::send(stage, front_end, (Method::GET, &path), None).await?;
        if reply.status == StatusCode::NOT_FOUND.as_u16() {
            return Ok(Some(("missing".to_owned(), String::new())));
        }
        let model = reply.json();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let state = text(&model["status"]);
        if matches!(&*state, "ready" | "failed") {
            return Ok(Some((state, text(&model["error"]["code"]))));
        }
        sleep(AGAIN).await;
    }
    Ok(None)
}

/// A model's answer to the inputs of number 0, as soon as it answers.
async fn ask(stage: &Stage, name: &str) -> Result<Vec<f32>, String> {
    let front_end = &stage.plan.front_ends()[0];
    let inputs = digits::input(&json!(worth::inputs(stage.plan.seed, 0)));
    let body = json!({"model": name, "inputs": inputs}).to_string();
    let mut patience = Patience::new(PATIENCE);
    loop {
        let body = Some(body.clone().into_bytes());
        let reply = client::send(stage, front_end, (Method::POST, "/v1/queries"), body).await?;
        if reply.is_success() {
            return Ok(client::scores(&reply.json()["outputs"][0]["data"]));
        }
        if patience.is_over(stage) {
            return Err(format!("model `{name}`: {}", reply.say()));
        }
        sleep(AGAIN).await;
    }
}
