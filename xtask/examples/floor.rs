//! The floor of the benchmarks: an axum server that parses the body of a query and sends it back.
//!
//! Usage: `floor ADDRESS:PORT`. What HTTP and JSON cost on this machine, without any inference. `/binary` takes the
//! query's JSON with the tensor's bytes behind it. `/delayed` answers after a drawn delay, and `/delays` tells how long
//! its answers took.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Json, Router, routing::get, routing::post};
use serde::{Deserialize, Serialize};
use sextant_types::random::Random;

#[derive(Serialize, Deserialize)]
struct Query {
    application: String,
    targets: Targets,
    inputs: Vec<Tensor>,
}

#[derive(Serialize, Deserialize)]
struct Targets {
    latency_ms: f64,
}

/// A query whose tensors lie behind it.
#[derive(Deserialize)]
struct Head {
    application: String,
    inputs: Vec<InputDescription>,
}

#[derive(Deserialize)]
struct InputDescription {
    shape: Vec<usize>,
}

/// Length of the JSON in front of tensors.
const JSON_BYTES: &str = "inference-header-content-length";

#[derive(Serialize, Deserialize)]
struct Tensor {
    name: String,
    shape: Vec<usize>,
    datatype: String,
    data: Vec<f32>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let address = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:9000".to_owned());
    let echo = |Json(query): Json<Query>| async { Json(query) };
    let router = Router::new()
        .route("/v1/queries", post(echo))
        .route("/binary", post(binary))
        .route("/delayed", post(delayed))
        .route("/delays", get(delays))
        .route("/health/ready", get(|| async { "ready" }))
        .with_state(Arc::new(Mutex::new(Delays::default())));
    let listener = tokio::net::TcpListener::bind(address).await?;
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        // As Sextant does; a failure costs speed, not correctness.
        stream.set_nodelay(true).ok();
    });
    Ok(axum::serve(listener, router).await?)
}

/// Reads the JSON and the numbers behind it, and sends the numbers back.
async fn binary(headers: HeaderMap, body: Bytes) -> Result<Vec<u8>, StatusCode> {
    let length = headers.get(JSON_BYTES).and_then(|it| it.to_str().ok());
    let length = length.and_then(|it| it.parse().ok());
    let parts = length.and_then(|length| body.split_at_checked(length));
    let (json, tensor) = parts.ok_or(StatusCode::BAD_REQUEST)?;
    let head: Head = serde_json::from_slice(json).map_err(|_| StatusCode::BAD_REQUEST)?;
    let elements: usize = head
        .inputs
        .iter()
        .map(|it| it.shape.iter().product::<usize>())
        .sum();
    if head.application.is_empty() || tensor.len() != 4 * elements {
        return Err(StatusCode::BAD_REQUEST);
    }
    Ok(tensor.to_vec())
}

/// Where delays are drawn from, and how long answers took with them, ms.
struct Delays {
    random: Random,
    took_ms: Vec<f64>,
}

impl Default for Delays {
    fn default() -> Self {
        Self {
            random: Random::new(1),
            took_ms: Vec::new(),
        }
    }
}

/// Answers after 50 ms and an exponential delay of 100 ms on average: long beside what a busy machine adds.
async fn delayed(State(delays): State<Arc<Mutex<Delays>>>) -> &'static str {
    let begun = Instant::now();
    let lock = || delays.lock().unwrap_or_else(PoisonError::into_inner);
    let delay_ms = 50.0 + 100.0 * lock().random.exponential();
    tokio::time::sleep(Duration::from_secs_f64(delay_ms / 1e3)).await;
    lock().took_ms.push(begun.elapsed().as_secs_f64() * 1e3);
    "{}"
}

/// How long answers took until now.
async fn delays(State(delays): State<Arc<Mutex<Delays>>>) -> Json<serde_json::Value> {
    let delays = delays.lock().unwrap_or_else(PoisonError::into_inner);
    let mut took_ms = delays.took_ms.clone();
    took_ms.sort_by(f64::total_cmp);
    let at = |share: f64| took_ms.get((share * took_ms.len() as f64) as usize);
    Json(serde_json::json!({"p50_ms": at(0.5), "p99_ms": at(0.99)}))
}
