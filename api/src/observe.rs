//! What a process without a front end serves: whether it is alive, whether it is ready, and its metrics.

use std::sync::Arc;

use axum::{Json, Router, extract::State, http::HeaderMap, response::Response, routing::get};
use prometheus_client::{metrics::gauge::Gauge, registry::Registry};
use serde_json::{Value, json};
use sextant_types::Code;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{Readiness, metrics, problem::Problem};

/// What the handlers read.
struct ObserverState {
    readiness: Readiness,
    ready: Gauge,
    metrics: Registry,
}

/// Serves `/health/live`, `/health/ready` and `/metrics` until `shutdown`. `metrics` are those of the roles of this
/// process, see [`crate::Metrics::registry`].
///
/// # Errors
/// If the listener gives no more connections.
pub async fn observe(
    listener: TcpListener,
    readiness: Readiness,
    mut metrics: Registry,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let ready_now = Gauge::default();
    let help = "Whether the process plays its roles: 1 or 0";
    metrics.register("ready", help, ready_now.clone());
    let observed = ObserverState {
        readiness,
        ready: ready_now,
        metrics,
    };
    let router = Router::new()
        .route("/health/live", get(live))
        .route("/health/ready", get(ready))
        .route("/metrics", get(scrape))
        .with_state(Arc::new(observed));
    axum::serve(listener, router)
        .with_graceful_shutdown(async move { shutdown.cancelled().await })
        .await
}

async fn live() -> Json<Value> {
    Json(json!({ "status": "live" }))
}

async fn ready(State(observed): State<Arc<ObserverState>>) -> Result<Json<Value>, Problem> {
    match (observed.readiness)() {
        Ok(()) => Ok(Json(json!({ "status": "ready" }))),
        Err(why) => Err(Problem::new(Code::Unavailable, why).retry_after_ms(1000)),
    }
}

/// The metrics in the format that the client accepts.
async fn scrape(
    State(observed): State<Arc<ObserverState>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let is_ready = (observed.readiness)().is_ok();
    observed.ready.set(is_ready.into());
    metrics::render(&observed.metrics, &headers)
}
