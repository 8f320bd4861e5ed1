//! An open-loop load: queries are sent when their time has come, whatever became of those before.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use reqwest::Method;
use tokio::{
    task::{JoinHandle, JoinSet},
    time::sleep_until,
};

use super::{Stage, client};
use crate::chaos::{history::Event, plan::Arrival};

/// The load goes on after the last fault until all is well again, at most for so long.
const MOST_MS: u64 = 180_000;

/// Queries under way.
pub struct Load {
    is_over: Arc<AtomicBool>,
    sender: JoinHandle<()>,
}

impl Load {
    /// Sends the plan's queries from now on.
    pub fn start(stage: &Arc<Stage>, begun: Instant) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let sender = tokio::spawn(send(Arc::clone(stage), begun, Arc::clone(&is_over)));
        Self { is_over, sender }
    }

    /// Sends no more and waits for the outcome of all that were sent.
    pub async fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.sender.await.ok();
    }
}

async fn send(stage: Arc<Stage>, begun: Instant, is_over: Arc<AtomicBool>) {
    let mut queries = JoinSet::new();
    let arrivals = stage.plan.arrivals(stage.plan.length_ms + MOST_MS);
    // The first number is that of the query which asks whether the service is well.
    for (number, arrival) in (1..).zip(arrivals) {
        sleep_until((begun + Duration::from_secs_f64(arrival.at_ms / 1000.0)).into()).await;
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let stage = Arc::clone(&stage);
        queries.spawn(async move { ask(&stage, number, arrival).await });
    }
    queries.join_all().await;
}

async fn ask(stage: &Stage, query: u64, arrival: Arrival) {
    let front_end = stage.plan.front_ends().swap_remove(arrival.front_end);
    stage.history.note(Event::Asked {
        query,
        application: arrival.application,
        front_end: front_end.clone(),
    });
    let body = client::query(stage, &stage.plan.applications[arrival.application], query);
    let to = (Method::POST, "/v1/queries");
    let event = match client::send(stage, &front_end, to, Some(body)).await {
        Err(cause) => Event::Broken { query, cause },
        Ok(reply) if reply.is_success() => Event::Answered {
            query,
            scores: client::scores(&reply.json()["outputs"][0]["data"]),
        },
        Ok(reply) => Event::Refused {
            query,
            status: reply.status,
            code: reply.json()["code"].as_str().unwrap_or("").to_owned(),
        },
    };
    stage.history.note(event);
}
