//! Settings of the log and of traces, which clients of Triton read and change while the service runs.

use axum::{
    Json,
    extract::{Request, State},
};
use serde::{Deserialize, Serialize};
use sextant_types::Code;
use utoipa::ToSchema;

use super::ResolvedName;
use crate::{
    ApiState,
    codec::short,
    json,
    logging::{LogBody, LogChange},
    problem::{Problem, ProblemBody},
};

/// What is traced by request: nothing.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TraceSettings)]
pub struct TraceBody {
    /// `["OFF"]`.
    trace_level: [&'static str; 1],
    /// One of so many requests would be traced.
    trace_rate: &'static str,
    /// Number of traces that would be kept; -1 means all.
    trace_count: &'static str,
    /// Number of traces after which a file would be written.
    log_frequency: &'static str,
    /// Where to.
    trace_file: &'static str,
    /// By what.
    trace_mode: &'static str,
}

/// The settings of traces by name, each with the only value that it can have.
pub(super) const TRACE: [(&str, &str); 6] = [
    ("trace_level", "OFF"),
    ("trace_rate", "1000"),
    ("trace_count", "-1"),
    ("log_frequency", "0"),
    ("trace_file", ""),
    ("trace_mode", "triton"),
];

/// What to trace; the service refuses every change of what is traced now.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TraceChange)]
pub struct TraceChange {
    /// `["OFF"]`.
    #[serde(default)]
    trace_level: Option<TraceValue>,
    /// `1000`.
    #[serde(default)]
    trace_rate: Option<TraceValue>,
    /// `-1`.
    #[serde(default)]
    trace_count: Option<TraceValue>,
    /// `0`.
    #[serde(default)]
    log_frequency: Option<TraceValue>,
    /// Empty.
    #[serde(default)]
    trace_file: Option<TraceValue>,
    /// `triton`.
    #[serde(default)]
    trace_mode: Option<TraceValue>,
}

/// One value of a setting, or several.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = TraceValue)]
pub enum TraceValue {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

/// What is logged.
#[utoipa::path(get, operation_id = "v2_log", path = "/v2/logging", tag = "open inference protocol",
    responses(
        (status = 200, description = "What is logged", body = LogBody),
        (status = 404, description = "The service does not know it", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn log(State(state): State<ApiState>) -> Result<Json<LogBody>, Problem> {
    Ok(Json(state.logging()?.told()))
}

/// Changes what this process logs, until it ends.
#[utoipa::path(post, operation_id = "v2_log_change", path = "/v2/logging", tag = "open inference protocol",
    request_body(content = LogChange, content_type = "application/json"),
    responses(
        (status = 200, description = "What is logged now", body = LogBody),
        (status = 404, description = "It cannot be changed", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn change_log(
    State(state): State<ApiState>,
    request: Request,
) -> Result<Json<LogBody>, Problem> {
    let body = state.collect_document(request.into_body()).await?;
    let change = json::owned(&body)?;
    state.logging()?.change(&change).map(Json)
}

/// What is traced: nothing.
#[utoipa::path(get, operation_id = "v2_trace", path = "/v2/trace/setting", tag = "open inference protocol",
    responses((status = 200, description = "What is traced", body = TraceBody)))]
pub async fn trace() -> Json<TraceBody> {
    Json(TraceBody::new())
}

/// Accepts settings that change nothing; the service has no traces that can be switched on.
#[utoipa::path(post, operation_id = "v2_trace_change", path = "/v2/trace/setting",
    tag = "open inference protocol",
    request_body(content = TraceChange, content_type = "application/json"),
    responses((status = 200, description = "What is traced", body = TraceBody)))]
pub async fn change_trace(
    State(state): State<ApiState>,
    request: Request,
) -> Result<Json<TraceBody>, Problem> {
    let body = state.collect_document(request.into_body()).await?;
    let change: TraceChange = json::owned(&body)?;
    for (name, value) in change.settings() {
        match value {
            None => {}
            Some(TraceValue::One(value)) => check_trace(name, &[value])?,
            Some(TraceValue::Several(values)) => check_trace(name, &values)?,
        }
    }
    Ok(Json(TraceBody::new()))
}

/// What is traced of a model: nothing.
#[utoipa::path(get, operation_id = "v2_model_trace", path = "/v2/models/{model}/trace/setting",
    tag = "open inference protocol",
    params(("model" = String, Path, description = "variant, model or application")),
    responses((status = 200, description = "What is traced", body = TraceBody)))]
pub async fn model_trace(_: ResolvedName) -> Json<TraceBody> {
    Json(TraceBody::new())
}

/// Accepts settings that change nothing; the service has no traces that can be switched on.
#[utoipa::path(post, operation_id = "v2_model_trace_change", path = "/v2/models/{model}/trace/setting",
    tag = "open inference protocol",
    params(("model" = String, Path, description = "variant, model or application")),
    request_body(content = TraceChange, content_type = "application/json"),
    responses((status = 200, description = "What is traced", body = TraceBody)))]
pub async fn change_model_trace(
    state: State<ApiState>,
    _: ResolvedName,
    request: Request,
) -> Result<Json<TraceBody>, Problem> {
    change_trace(state, request).await
}

/// Refuses a setting of traces that would change something.
pub(super) fn check_trace(name: &str, values: &[String]) -> Result<(), Problem> {
    let refuse = |detail: String| Problem::new(Code::InvalidRequest, detail).field(name.to_owned());
    let known = TRACE.iter().find(|(known, _)| *known == name);
    let Some((_, only)) = known else {
        let known = TRACE.map(|(name, _)| name).join(" ");
        let detail = format!(
            "there is no setting `{}`: use one of `{known}`",
            short(name)
        );
        return Err(refuse(detail));
    };
    match values.iter().find(|value| value != only) {
        None => Ok(()),
        Some(value) => Err(refuse(format!(
            "`{name}` cannot become `{}`: requests are not traced by file here; send `traceparent` and see the log",
            short(value)
        ))),
    }
}

// === impl TraceChange ===

impl TraceChange {
    fn settings(self) -> [(&'static str, Option<TraceValue>); 6] {
        [
            ("trace_level", self.trace_level),
            ("trace_rate", self.trace_rate),
            ("trace_count", self.trace_count),
            ("log_frequency", self.log_frequency),
            ("trace_file", self.trace_file),
            ("trace_mode", self.trace_mode),
        ]
    }
}

// === impl TraceBody ===

impl TraceBody {
    fn new() -> Self {
        Self {
            trace_level: ["OFF"],
            trace_rate: "1000",
            trace_count: "-1",
            log_frequency: "0",
            trace_file: "",
            trace_mode: "triton",
        }
    }
}
