//! Changes that must be in the audit record, and the filling of a store.

use std::{sync::Arc, time::Duration};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Stage, client};
use crate::chaos::{history::Event, plan::STORAGE_BYTES};

/// Time between two changes.
const CHANGE_EVERY: Duration = Duration::from_millis(700);
/// Size of the smallest file that is put into a store to fill it, bytes.
const LEAST_BYTES: u64 = 4 << 10;
/// Entries of a page of the audit record.
const PAGE: usize = 1000;

/// Changes the weight of one application after another, by so little that shares stay the same.
pub async fn change(stage: Arc<Stage>) {
    let front_ends = stage.plan.front_ends();
    for number in 0usize.. {
        sleep(CHANGE_EVERY).await;
        let application = &stage.plan.applications[number % stage.plan.applications.len()];
        let front_end = &front_ends[number % front_ends.len()];
        let body = json!({"resources": {"weight": 1.0 + number as f64 / 10_000.0}});
        let path = format!("/v1/applications/{}", application.name);
        let to = (Method::PATCH, &*path);
        let reply = client::send(&stage, front_end, to, Some(body.to_string().into_bytes())).await;
        match reply {
            Ok(reply) if reply.is_success() => {
                changed(&stage, "application.change", &application.name);
            }
            Ok(reply) => client::refused(&stage, &format!("PATCH {path}"), &reply),
            // Other rules check processes that are down and connections that break.
            Err(_) => {}
        }
    }
}

/// Records a change that was acknowledged.
pub fn changed(stage: &Stage, action: &str, subject: &str) {
    stage.history.note(Event::Changed {
        action: action.to_owned(),
        subject: subject.to_owned(),
    });
}

/// Puts files into the store until it accepts no more.
pub async fn fill(stage: &Stage) {
    let front_end = &stage.plan.front_ends()[0];
    let mut bytes = STORAGE_BYTES / 2;
    let mut number = 0;
    while bytes >= LEAST_BYTES {
        let path = format!("/v1/artefacts/ballast/{number}");
        let body = vec![number as u8; bytes as usize];
        match client::send(stage, front_end, (Method::PUT, &path), Some(body)).await {
            Ok(reply) if reply.is_success() => number += 1,
            Ok(_) => bytes /= 2,
            Err(_) => return,
        }
    }
}

/// Removes the files again. Repeats this, because the service may be down.
pub async fn clear(stage: &Stage) {
    const TRIES: usize = 600;
    let front_end = &stage.plan.front_ends()[0];
    for _ in 0..TRIES {
        if let Ok(left) = ballast(stage, front_end).await {
            if left.is_empty() {
                return;
            }
            for path in left {
                let path = format!("/v1/artefacts/{path}");
                let to = (Method::DELETE, &*path);
                client::send(stage, front_end, to, None).await.ok();
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
}

async fn ballast(stage: &Stage, front_end: &str) -> Result<Vec<String>, String> {
    let to = (Method::GET, "/v1/artefacts?prefix=ballast/");
    let reply = client::send(stage, front_end, to, None).await?;
    if !reply.is_success() {
        return Err(reply.say());
    }
    let reply = reply.json();
    let all = reply["artefacts"].as_array().into_iter().flatten();
    let path = |it: &Value| Some(it["path"].as_str()?.to_owned());
    Ok(all.filter_map(path).collect())
}

/// Records the whole audit record.
pub async fn audit(stage: &Stage) -> Result<(), String> {
    let front_end = &stage.plan.front_ends()[0];
    let mut path = format!("/v1/audit?limit={PAGE}");
    loop {
        let reply = client::send(stage, front_end, (Method::GET, &path), None).await?;
        if !reply.is_success() {
            return Err(format!("the audit record: {}", reply.say()));
        }
        let reply = reply.json();
        let entries = reply["entries"].as_array().cloned().unwrap_or_default();
        for entry in &entries {
            let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
            stage.history.note(Event::Audited {
                action: text("action"),
                subject: text("subject"),
            });
        }
        let Some(last) = entries.last().filter(|_| entries.len() == PAGE) else {
            return Ok(());
        };
        let last = last["id"].as_str().unwrap_or_default();
        path = format!("/v1/audit?limit={PAGE}&before={last}");
    }
}
