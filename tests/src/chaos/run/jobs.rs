//! Offline jobs: a persistent client submits them during the faults, and reads them at the end.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use super::{Stage, artefacts, client, faults, hooks, pace::Patience};
use crate::chaos::{
    Plan,
    history::Event,
    plan::{Kind, LONE, Setting},
    worth,
};

/// Time for which a client repeats a refused request.
const PATIENCE: Duration = Duration::from_secs(90);
/// Time between two attempts.
const AGAIN: Duration = Duration::from_millis(200);
/// Longest time until a job has made some progress, before it is cut.
const UNDER_WAY: Duration = Duration::from_secs(8);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Number of attempts to submit a job again.
const REPEATS: usize = 20;
/// Number of records of a chunk: few, so that jobs are cut in the middle.
const CHUNK: u64 = 20;

/// Submits the plan's jobs at their times, except those that come after the load.
pub fn submit(stage: &Arc<Stage>, begun: Instant) -> JoinSet<Result<(), String>> {
    let times = stage.plan.jobs.iter().map_while(|it| it.at_ms);
    super::at(begun, times, |number| submit_one(Arc::clone(stage), number))
}

async fn submit_one(stage: Arc<Stage>, number: usize) -> Result<(), String> {
    let stage = &*stage;
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
    let mut body = json!({
        "id": job.name, "model": model, "chunk": CHUNK, "input": file, "output": output(&job.name),
        "webhook": hooks::address(stage)
    });
    let to = (Method::POST, "/v1/jobs");
    insist(stage, to.clone(), Some(body.to_string().into_bytes())).await?;
    artefacts::changed(stage, "job.create", &job.name);
    stage.history.note(Event::Submitted { job: number });
    repeat(stage, number, (to.clone(), &body), true).await;
    body["chunk"] = json!(CHUNK + 1);
    repeat(stage, number, (to, &body), false).await;
    Ok(())
}

/// Submits a job again, like a client that has not received the answer or believes that the name is free.
async fn repeat(stage: &Stage, job: usize, (to, body): ((Method, &str), &Value), is_same: bool) {
    for front_end in stage.plan.front_ends().iter().cycle().take(REPEATS) {
        let body = body.to_string().into_bytes();
        if let Ok(reply) = client::send(stage, front_end, to.clone(), Some(body)).await
            && reply.status < 500
        {
            let status = reply.status;
            return stage.history.note(Event::Repeated {
                job,
                is_same,
                status,
            });
        }
        sleep(AGAIN).await;
    }
}

/// Submits the jobs that come after the load, waits for the end of every job and records its output.
pub async fn finish(
    stage: &Arc<Stage>,
    mut submitted: JoinSet<Result<(), String>>,
) -> Result<(), String> {
    while let Some(ended) = submitted.join_next().await {
        ended.map_err(super::said)??;
    }
    let jobs = stage.plan.jobs.iter().enumerate();
    for (number, _) in jobs.filter(|(_, job)| job.at_ms.is_none()) {
        submit_one(Arc::clone(stage), number).await?;
    }
    cut_registry(stage).await?;
    cut(stage).await?;
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
    hooks::all_told(stage).await;
    Ok(())
}

/// Ends the registry like a power cut while a job runs, and starts it again. During the load, jobs mostly waited and
/// used the registry little.
async fn cut_registry(stage: &Arc<Stage>) -> Result<(), String> {
    if stage.plan.setting == Setting::One || !is_one_under_way(stage).await {
        return Ok(());
    }
    let away = Duration::from_millis(stage.plan.registry_away_ms);
    faults::once(stage, Kind::PostgresKilled, away).await
}

/// Ends the processes that run jobs like a power cut, one after another, and starts them again. During the load, jobs
/// mostly waited; now they are cut in the middle.
async fn cut(stage: &Arc<Stage>) -> Result<(), String> {
    // If a runner's clock is ahead, its claim lapses later by as much.
    if matches!(
        &stage.plan.setting,
        Setting::Fleet {
            wrong_clock: Some(_),
            ..
        }
    ) {
        return Ok(());
    }
    let is_runner = |name: &String| name == LONE || name.starts_with("dispatcher");
    for name in stage.plan.processes().into_iter().filter(is_runner) {
        if !is_one_under_way(stage).await {
            return Ok(());
        }
        let stage = Arc::clone(stage);
        super::blocking(move || {
            stage.kill(&name);
            stage.revive(&name);
        })
        .await?;
    }
    Ok(())
}

/// Waits until a job has made progress and has not ended. Gives up after a while, or if all jobs have ended.
async fn is_one_under_way(stage: &Stage) -> bool {
    let until = Instant::now() + UNDER_WAY;
    let front_end = &stage.plan.front_ends()[0];
    while Instant::now() < until {
        let mut ended = 0;
        for job in &stage.plan.jobs {
            let path = format!("/v1/jobs/{}", job.name);
            let Ok(reply) = client::send(stage, front_end, (Method::GET, &path), None).await else {
                continue;
            };
            let job = reply.json();
            let done = job["progress"]["done"].as_u64().unwrap_or(0);
            if job["state"] == "running" && done > 0 {
                return true;
            }
            ended += usize::from(has_ended(&job));
        }
        if ended == stage.plan.jobs.len() {
            return false;
        }
        sleep(LOOK_EVERY).await;
    }
    false
}

fn has_ended(job: &Value) -> bool {
    let state = job["state"].as_str();
    matches!(state, Some("succeeded" | "failed" | "cancelled"))
}

/// The job's last document; `None` if it does not end.
async fn over(stage: &Stage, name: &str) -> Result<Option<Value>, String> {
    let mut patience = Patience::new(PATIENCE);
    while !patience.is_over(stage) {
        let path = format!("/v1/jobs/{name}");
        let job = insist(stage, (Method::GET, &path), None).await?.json();
        if has_ended(&job) {
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

/// Repeats a request until it is not refused.
pub async fn insist(
    stage: &Stage,
    (method, path): (Method, &str),
    body: Option<Vec<u8>>,
) -> Result<client::Reply, String> {
    let mut patience = Patience::new(PATIENCE);
    let front_ends = stage.plan.front_ends();
    let mut last = String::new();
    for front_end in front_ends.iter().cycle() {
        if patience.is_over(stage) {
            break;
        }
        match client::send(stage, front_end, (method.clone(), path), body.clone()).await {
            Ok(reply) if reply.is_success() => return Ok(reply),
            Ok(reply) => {
                client::refused(stage, &format!("{method} {path}"), &reply);
                last = reply.say();
            }
            Err(cause) => last = cause,
        }
        sleep(AGAIN).await;
    }
    Err(format!("{method} {path}: {last}"))
}
