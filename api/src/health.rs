//! `/health`: whether the process is alive and whether it accepts requests.

use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    ApiState,
    problem::{Problem, ProblemBody},
};

/// A health answer.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Health)]
pub struct HealthBody {
    /// `live` or `ready`.
    pub status: &'static str,
    /// What an administrator should look at, although the service takes requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl HealthBody {
    /// A body without warnings.
    pub(crate) fn of(status: &'static str) -> Self {
        Self {
            status,
            warnings: Vec::new(),
        }
    }
}

/// Whether the process lives.
#[utoipa::path(get, operation_id = "health_live", path = "/health/live", tag = "health",
    responses((status = 200, description = "The process lives", body = HealthBody)))]
pub async fn live() -> Json<HealthBody> {
    Json(HealthBody::of("live"))
}

/// Tells whether the service takes requests. A process that shuts down first answers 503, so that load
/// balancers send no more requests. A process that knows no worker that could answer queries also answers
/// 503.
#[utoipa::path(get, operation_id = "health_ready", path = "/health/ready", tag = "health",
    responses(
        (status = 200, description = "Requests are taken", body = HealthBody),
        (status = 503, description = "Not now", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn ready(State(state): State<ApiState>) -> Result<Json<HealthBody>, Problem> {
    state.check_ready()?;
    let mismatch = state.storage().mismatch();
    Ok(Json(HealthBody {
        warnings: mismatch.iter().map(ToString::to_string).collect(),
        ..HealthBody::of("ready")
    }))
}
