//! Offline jobs: submitted amid the faults by a client that does not give up, and read in the end.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{sleep, sleep_until},
};

use super::{Stage, artefacts, client};
use crate::chaos::{Plan, history::Event, worth};

/// How long a client goes on with what it was refused.
const PATIENCE: Duration = Duration::from_secs(150);
/// Time between two attempts.
const AGAIN: Duration = Duration::from_millis(200);
/// Records of a chunk: few, so that jobs are cut in the middle.
const CHUNK: u64 = 20;

/// Submits the plan's jobs at their times.
pub fn submit(stage: &Arc<Stage>, begun: Instant) -> JoinSet<Result<(), String>> {
    let mut jobs = JoinSet::new();
    for (number, job) in stage.plan.jobs.iter().enumerate() {
        let at = begun + Duration::from_millis(job.at_ms);
        let stage = Arc::clone(stage);
        jobs.spawn(async move {
            sleep_until(at.into()).await;
            submit_one(&stage, number).await
        });
    }
    jobs
}

async fn submit_one(stage: &Stage, number: usize) -> Result<(), String> {
    let job = &stage.plan.jobs[number];
    let line = |index| {
        let record = Plan::record_number(number, index);
        let pixels = worth::inputs(stage.plan.seed, record);
        format!("{}\n", json!({"inputs": {"pixels": pixels}}))
    };
    let input: String = (0..job.records).map(line).collect();
    let file = format!("in/{}.jsonl", job.name);
    let to = (Method::PUT, &*format!("/v1/artefacts/{file}"));
    insist(stage, to, Some(input.into_bytes())).await?;
    artefacts::changed(stage, "artefact.put", &file);
    let model = &stage.plan.applications[job.application].name;
    let body = json!({
        "id": job.name, "model": model, "chunk": CHUNK, "input": file, "output": output(&job.name)
    });
    let body = body.to_string().into_bytes();
    insist(stage, (Method::POST, "/v1/jobs"), Some(body)).await?;
    artefacts::changed(stage, "job.create", &job.name);
    stage.history.note(Event::Submitted { job: number });
    Ok(())
}

/// Waits for the end of every job and notes what it wrote.
pub async fn finish(
    stage: &Stage,
    mut submitted: JoinSet<Result<(), String>>,
) -> Result<(), String> {
    while let Some(ended) = submitted.join_next().await {
        ended.map_err(super::said)??;
    }
    for (number, job) in stage.plan.jobs.iter().enumerate() {
        let Some(over) = over(stage, &job.name).await? else {
            continue;
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let state = text(&over["state"]);
        let has_succeeded = state == "succeeded";
        stage.history.note(Event::JobOver {
            job: number,
            state,
            code: text(&over["error"]["code"]),
        });
        if has_succeeded {
            read(stage, number, &job.name).await?;
        }
    }
    Ok(())
}

/// The job's last document; none where it does not end.
async fn over(stage: &Stage, name: &str) -> Result<Option<Value>, String> {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        let path = format!("/v1/jobs/{name}");
        let job = insist(stage, (Method::GET, &path), None).await?.json();
        if matches!(
            job["state"].as_str(),
            Some("succeeded" | "failed" | "cancelled")
        ) {
            return Ok(Some(job));
        }
        sleep(AGAIN).await;
    }
    Ok(None)
}

async fn read(stage: &Stage, number: usize, name: &str) -> Result<(), String> {
    let path = format!("/v1/artefacts/{}", output(name));
    let reply = insist(stage, (Method::GET, &path), None).await?;
    for line in String::from_utf8_lossy(&reply.body).lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_default();
        stage.history.note(Event::Record {
            job: number,
            index: line["index"].as_u64().unwrap_or(u64::MAX),
            scores: client::scores(&line["outputs"]["scores"]),
        });
    }
    Ok(())
}

fn output(name: &str) -> String {
    format!("out/{name}.jsonl")
}

/// Asks again and again until it is not refused.
async fn insist(
    stage: &Stage,
    (method, path): (Method, &str),
    body: Option<Vec<u8>>,
) -> Result<client::Reply, String> {
    let until = Instant::now() + PATIENCE;
    let front_ends = stage.plan.front_ends();
    let mut last = String::new();
    for front_end in front_ends.iter().cycle() {
        if Instant::now() > until {
            break;
        }
        match client::send(stage, front_end, (method.clone(), path), body.clone()).await {
            Ok(reply) if reply.is_success() => return Ok(reply),
            Ok(reply) => last = reply.say(),
            Err(cause) => last = cause,
        }
        sleep(AGAIN).await;
    }
    Err(format!("{method} {path}: {last}"))
}
