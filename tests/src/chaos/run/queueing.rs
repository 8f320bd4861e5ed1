//! Registrations of an application that has many, the first of which takes long, beside the only one of another
//! application.

use std::time::{Duration, Instant};

use reqwest::{
    Method,
    multipart::{Form, Part},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Stage, client, pace::Patience};
use crate::{
    chaos::{history::Event, plan::Setting},
    onnx,
};

/// Longest time of the others, and of the only one.
const PATIENCE: Duration = Duration::from_secs(25);
/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The application with many registrations.
const CROWD: &str = "crowd";
/// The application with one.
const LONE: &str = "lone";
/// Time of the long model for each row, and for each batch, milliseconds.
const LONG_MS: u64 = 300;
const SHORT_MS: u64 = 1;
/// Number of registrations after the long one.
const BEHIND: usize = 3;

/// Registers all of them. Only in the setting with one process, which registers one model at a time.
pub async fn queue(stage: &Stage) -> Result<(), String> {
    if stage.plan.setting != Setting::One {
        return Ok(());
    }
    for application in [CROWD, LONE] {
        let body = json!({"name": application, "metric": "top1"});
        done(stage, (Method::POST, "/v1/applications"), Some(body)).await?;
    }
    let long = register(stage, (CROWD, "crowd-long"), LONG_MS).await?;
    until(stage, |it| it["step"] != "", &long).await?;
    let mut others = Vec::new();
    for number in 0..BEHIND {
        let name = format!("crowd-{number}");
        others.push(register(stage, (CROWD, &name), SHORT_MS).await?);
    }
    let begun = Instant::now();
    let lone = register(stage, (LONE, LONE), SHORT_MS).await?;
    let ended = until(stage, is_over, &lone).await?;
    let waited_ms = begun.elapsed().as_millis() as u64;
    let mut passed_by = 0;
    for job in &others {
        passed_by += usize::from(is_over(&job_of(stage, job).await?));
    }
    stage.history.note(Event::Queued {
        state: ended["state"].as_str().unwrap_or_default().to_owned(),
        waited_ms,
        passed_by,
    });
    clear(stage, &long, &others).await
}

/// Cancels the long registration if it has not ended, waits for the others, and removes all models.
async fn clear(stage: &Stage, long: &str, others: &[String]) -> Result<(), String> {
    let path = format!("/v1/jobs/{long}");
    done(stage, (Method::DELETE, &path), None).await?;
    for job in others {
        until(stage, is_over, job).await?;
    }
    let behind = (0..BEHIND).map(|number| format!("crowd-{number}"));
    for name in behind.chain([LONE.to_owned(), "crowd-long".to_owned()]) {
        let path = format!("/v1/models/{name}");
        done(stage, (Method::DELETE, &path), None).await?;
    }
    Ok(())
}

/// The job that registers a model with this time for a row.
async fn register(
    stage: &Stage,
    (application, name): (&str, &str),
    row_ms: u64,
) -> Result<String, String> {
    let metadata = vec![
        ("sextant.alpha_ms", row_ms.to_string()),
        ("sextant.beta_ms", row_ms.to_string()),
        ("sextant.load_ms", "5".to_owned()),
        ("name", name.to_owned()),
    ];
    let model = onnx::Model {
        metadata,
        ..onnx::Model::default()
    };
    let part = |bytes: Vec<u8>, file: &str| Part::bytes(bytes).file_name(file.to_owned());
    let form = Form::new()
        .text("name", name.to_owned())
        .text("application", application.to_owned())
        .part("model", part(model.bytes(), "model.onnx"))
        .part(
            "validation",
            part(client::validation(stage.plan.seed), "validation.jsonl"),
        );
    let reply = client::upload(stage, &stage.plan.front_ends()[0], form).await?;
    let job = reply.json()["job"].as_str().map(str::to_owned);
    job.ok_or_else(|| format!("the registration of `{name}`: {}", reply.say()))
}

async fn job_of(stage: &Stage, job: &str) -> Result<Value, String> {
    done(stage, (Method::GET, &format!("/v1/jobs/{job}")), None).await
}

fn is_over(job: &Value) -> bool {
    let state = job["state"].as_str().unwrap_or_default();
    matches!(state, "succeeded" | "failed" | "cancelled")
}

/// The job's document when the condition holds, or its last document when the patience is over.
async fn until(stage: &Stage, is_so: fn(&Value) -> bool, job: &str) -> Result<Value, String> {
    let mut patience = Patience::new(PATIENCE);
    loop {
        let found = job_of(stage, job).await?;
        if is_so(&found) || patience.is_over(stage) {
            return Ok(found);
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn done(
    stage: &Stage,
    (method, path): (Method, &str),
    body: Option<Value>,
) -> Result<Value, String> {
    let front_end = &stage.plan.front_ends()[0];
    let body = body.map(|body| body.to_string().into_bytes());
    let reply = client::send(stage, front_end, (method.clone(), path), body).await?;
    match reply.is_success() {
        true => Ok(reply.json()),
        false => Err(format!("`{method} {path}`: {}", reply.say())),
    }
}
