//! The floor of the benchmarks: an axum server that parses the body of a query and sends it back.
//!
//! Usage: `floor ADDRESS:PORT`. What HTTP and JSON cost on this machine, without any inference. `/binary` takes the
//! query's JSON with the tensor's bytes behind it.

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::{Json, Router, routing::post};
use serde::{Deserialize, Serialize};

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
    inputs: Vec<Described>,
}

#[derive(Deserialize)]
struct Described {
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
        .route("/health/ready", axum::routing::get(|| async { "ready" }));
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
