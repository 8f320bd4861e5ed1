//! The floor of the benchmarks: an axum server that parses the body of a query and sends it back.
//!
//! Usage: `floor ADDRESS:PORT`. What HTTP and JSON cost on this machine, without any inference.

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
        .route("/health/ready", axum::routing::get(|| async { "ready" }));
    let listener = tokio::net::TcpListener::bind(address).await?;
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        // As Sextant does; a failure costs speed, not correctness.
        stream.set_nodelay(true).ok();
    });
    Ok(axum::serve(listener, router).await?)
}
