//! What a process without a front end shows: whether it lives, whether it is ready, what it counts.

use axum::{Json, Router, extract::State, routing::get};
use serde_json::{Value, json};
use sextant_types::Code;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{Readiness, problem::Problem};

/// Serves `/health/live`, `/health/ready` and `/metrics` until `shutdown`.
///
/// # Errors
/// When the listener gives no connections any more.
pub async fn observe(
    listener: TcpListener,
    readiness: Readiness,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/health/live", get(live))
        .route("/health/ready", get(ready))
        .route("/metrics", get(metrics))
        .with_state(readiness);
    axum::serve(listener, router)
        .with_graceful_shutdown(async move { shutdown.cancelled().await })
        .await
}

async fn live() -> Json<Value> {
    Json(json!({ "status": "live" }))
}

async fn ready(State(readiness): State<Readiness>) -> Result<Json<Value>, Problem> {
    match readiness() {
        Ok(()) => Ok(Json(json!({ "status": "ready" }))),
        Err(why) => Err(Problem::new(Code::Unavailable, why).retry_after_ms(1000)),
    }
}

/// In the text format of Prometheus.
async fn metrics(State(readiness): State<Readiness>) -> String {
    let ready = u8::from(readiness().is_ok());
    format!(
        "# HELP sextant_ready Whether the process plays its roles.\n# TYPE sextant_ready gauge\n\
         sextant_ready {ready}\n# EOF\n"
    )
}
