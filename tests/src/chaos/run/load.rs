//! An open-loop load: queries are sent at their times, whatever happened to earlier ones.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use reqwest::Method;
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    task::{JoinHandle, JoinSet},
    time::{sleep, sleep_until},
};

use super::{Stage, client};
use crate::chaos::{history::Event, plan::Arrival, worth::Draw};

/// Longest time for which the load goes on after the last fault, until all is well again.
const MOST_MS: u64 = 180_000;
/// One query in this number has a client that closes the connection.
const HASTY: u64 = 8;
/// Time until it does so, milliseconds.
const HASTE_MS: std::ops::Range<u64> = 2..300;

/// The running queries.
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

    /// Sends no more queries and waits for the outcome of all sent ones.
    pub async fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.sender.await.ok();
    }
}

async fn send(stage: Arc<Stage>, begun: Instant, is_over: Arc<AtomicBool>) {
    let mut queries = JoinSet::new();
    let arrivals = stage.plan.arrivals(stage.plan.length_ms + MOST_MS);
    // Number 0 is the query that asks whether the service is well.
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
    if let Some(haste) = haste(stage.plan.seed, query) {
        // A client that could not connect has closed as well.
        hang_up(stage, &front_end, &body, haste).await.ok();
        return stage.history.note(Event::GivenUp { query });
    }
    let outcome = outcome(stage, &front_end, query, body).await;
    stage.history.note(outcome);
}

/// The outcome of a query whose client waits.
pub async fn outcome(stage: &Stage, front_end: &str, query: u64, body: Vec<u8>) -> Event {
    let to = (Method::POST, "/v1/queries");
    match client::send(stage, front_end, to, Some(body)).await {
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
    }
}

/// Sends a query, and resets the connection after a while, whatever was received. Closing only one direction would say
/// that the client asks nothing more, not that it has gone.
async fn hang_up(
    stage: &Stage,
    front_end: &str,
    body: &[u8],
    haste: Duration,
) -> std::io::Result<()> {
    let address = stage.address(front_end).unwrap_or_default();
    let mut stream = TcpStream::connect(address.trim_start_matches("http://")).await?;
    let length = body.len();
    let head = format!(
        "POST /v1/queries HTTP/1.1\r\nhost: sextant\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    sleep(haste).await;
    stream.set_zero_linger()
}

/// Time after which the client of a query closes the connection, if it does.
fn haste(seed: u64, query: u64) -> Option<Duration> {
    let mut draw = Draw::new(seed, 1_000_000 + query);
    (draw.within(0..HASTY) == 0).then(|| Duration::from_millis(draw.within(HASTE_MS)))
}
