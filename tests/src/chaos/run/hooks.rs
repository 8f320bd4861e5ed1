//! The receiver of jobs' webhooks. It refuses the first message about each job, so that the message has to come again.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};

use super::Stage;
use crate::chaos::history::Event;

/// Longest time after the end of its job until a message comes again, with failed attempts.
const PATIENCE: Duration = Duration::from_secs(40);
/// Longest time of one message.
const MESSAGE: Duration = Duration::from_secs(10);
/// Longest message, bytes.
const MOST_BYTES: usize = 1 << 16;

/// The address that jobs are given.
pub fn address(stage: &Stage) -> String {
    let address = stage.hooks.local_addr().map(|it| it.to_string());
    format!("http://{}/told", address.unwrap_or_default())
}

/// Receives messages. Never ends by itself.
pub async fn listen(stage: Arc<Stage>) -> Result<(), String> {
    let listener = stage.hooks.try_clone();
    let listener = listener.and_then(|it| it.set_nonblocking(true).map(|()| it));
    let listener = listener.and_then(TcpListener::from_std);
    let listener = listener.map_err(|error| format!("webhooks: {error}"))?;
    let mut refused = BTreeSet::new();
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            continue;
        };
        let Ok(Some(body)) = timeout(MESSAGE, read(&mut stream)).await else {
            continue;
        };
        let job = body["job"].as_str().unwrap_or_default().to_owned();
        let status = if refused.insert(job.clone()) {
            "503 Service Unavailable"
        } else {
            stage.history.note(Event::Told { job });
            "200 OK"
        };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.ok();
    }
}

/// Waits, for a limited time, until the webhook was told of every job that has ended.
pub async fn all_told(stage: &Stage) {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until && !untold(stage).is_empty() {
        sleep(Duration::from_millis(100)).await;
    }
}

fn untold(stage: &Stage) -> BTreeSet<String> {
    let mut left = BTreeSet::new();
    let entries = stage.history.entries();
    for entry in &entries {
        if let Event::JobOver { job, .. } = entry.event {
            left.insert(stage.plan.jobs[job].name.clone());
        }
    }
    for entry in &entries {
        if let Event::Told { job } = &entry.event {
            left.remove(job);
        }
    }
    left
}

async fn read(stream: &mut TcpStream) -> Option<Value> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while bytes.len() < MOST_BYTES {
        let count = stream.read(&mut buffer).await.ok().filter(|it| *it > 0)?;
        bytes.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&bytes);
        if let Some((_, body)) = text.split_once("\r\n\r\n")
            && let Ok(body) = serde_json::from_str(body)
        {
            return Some(body);
        }
    }
    None
}
