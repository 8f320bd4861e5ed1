//! Settings that clients of Triton read and change while the service runs: what is logged, and what is traced.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Request, State},
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sextant_types::Code;
use tracing::level_filters::LevelFilter;
use utoipa::ToSchema;

use super::Named;
use crate::{
    ApiState,
    codec::short,
    json,
    problem::{Problem, ProblemBody},
};

/// Has the process log from another level on; the error is a sentence.
pub type SetLevel = Arc<dyn Fn(LevelFilter) -> Result<(), String> + Send + Sync>;

/// What is logged by the process, and how that is changed.
pub struct Logging {
    level: Mutex<LevelFilter>,
    set: SetLevel,
}

/// What is logged. Levels contain each other: who sees information sees warnings and errors, too.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = LogSettings)]
pub struct LogBody {
    /// Always empty: lines go to standard error.
    pub(super) log_file: &'static str,
    /// Whether information is logged.
    pub(super) log_info: bool,
    /// Whether warnings are logged.
    pub(super) log_warning: bool,
    /// Whether errors are logged.
    pub(super) log_error: bool,
    /// 0, 1 for what helps to find faults, 2 for everything.
    pub(super) log_verbose_level: u32,
    /// Always `default`: the form of the lines is configured.
    pub(super) log_format: &'static str,
}

/// What is to be logged; what is left out stays.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LogChange)]
pub struct LogChange {
    /// Empty, or it is refused.
    #[serde(default)]
    pub(super) log_file: Option<String>,
    /// Whether information is logged.
    #[serde(default)]
    pub(super) log_info: Option<bool>,
    /// Whether warnings are logged.
    #[serde(default)]
    pub(super) log_warning: Option<bool>,
    /// Whether errors are logged.
    #[serde(default)]
    pub(super) log_error: Option<bool>,
    /// 0, 1 for what helps to find faults, 2 for everything.
    #[serde(default)]
    pub(super) log_verbose_level: Option<u32>,
    /// `default`, or it is refused.
    #[serde(default)]
    pub(super) log_format: Option<String>,
}

/// What is traced by request: nothing.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TraceSettings)]
pub struct TraceBody {
    /// `["OFF"]`.
    trace_level: [&'static str; 1],
    /// Of so many requests one would be traced.
    trace_rate: &'static str,
    /// So many traces would be kept; -1 is all.
    trace_count: &'static str,
    /// After so many traces a file would be written.
    log_frequency: &'static str,
    /// Where to.
    trace_file: &'static str,
    /// By what.
    trace_mode: &'static str,
}

/// The settings of traces by name, and their only values.
pub(super) const TRACE: [(&str, &str); 6] = [
    ("trace_level", "OFF"),
    ("trace_rate", "1000"),
    ("trace_count", "-1"),
    ("log_frequency", "0"),
    ("trace_file", ""),
    ("trace_mode", "triton"),
];

/// What is to be traced: what differs from what is traced now is refused.
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
        (status = 404, description = "It cannot be told", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn log(State(state): State<ApiState>) -> Result<Json<LogBody>, Problem> {
    Ok(Json(state.logging()?.told()))
}

/// Changes what is logged by this process, until it ends.
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

/// Takes what changes nothing; there are no traces to be switched on.
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
pub async fn model_trace(_: Named) -> Json<TraceBody> {
    Json(TraceBody::new())
}

/// Takes what changes nothing; there are no traces to be switched on.
#[utoipa::path(post, operation_id = "v2_model_trace_change", path = "/v2/models/{model}/trace/setting",
    tag = "open inference protocol",
    params(("model" = String, Path, description = "variant, model or application")),
    request_body(content = TraceChange, content_type = "application/json"),
    responses((status = 200, description = "What is traced", body = TraceBody)))]
pub async fn change_model_trace(
    state: State<ApiState>,
    _: Named,
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

// === impl Logging ===

impl Logging {
    /// What is logged at first, and what changes it.
    pub fn new(level: LevelFilter, set: SetLevel) -> Self {
        Self {
            level: Mutex::new(level),
            set,
        }
    }

    pub(super) fn told(&self) -> LogBody {
        LogBody::of(*self.level.lock())
    }

    pub(super) fn change(&self, change: &LogChange) -> Result<LogBody, Problem> {
        let mut level = self.level.lock();
        let before = LogBody::of(*level);
        let refuse = |name: &str, given: &str| {
            let detail = format!(
                "`{name}` cannot become `{}` while the service runs",
                short(given)
            );
            Problem::new(Code::InvalidRequest, detail).field(name)
        };
        for (name, given, only) in [
            ("log_file", &change.log_file, before.log_file),
            ("log_format", &change.log_format, before.log_format),
        ] {
            if let Some(given) = given.as_deref().filter(|given| *given != only) {
                return Err(refuse(name, given));
            }
        }
        let wanted = LogBody {
            log_info: change.log_info.unwrap_or(before.log_info),
            log_warning: change.log_warning.unwrap_or(before.log_warning),
            log_error: change.log_error.unwrap_or(before.log_error),
            log_verbose_level: change.log_verbose_level.unwrap_or(before.log_verbose_level),
            ..before
        }
        .level();
        (self.set)(wanted).map_err(|error| Problem::internal("changing what is logged", &error))?;
        *level = wanted;
        Ok(LogBody::of(wanted))
    }
}

// === impl LogBody ===

impl LogBody {
    fn of(level: LevelFilter) -> Self {
        Self {
            log_file: "",
            log_info: level >= LevelFilter::INFO,
            log_warning: level >= LevelFilter::WARN,
            log_error: level >= LevelFilter::ERROR,
            log_verbose_level: match level {
                LevelFilter::TRACE => 2,
                LevelFilter::DEBUG => 1,
                _ => 0,
            },
            log_format: "default",
        }
    }

    fn level(&self) -> LevelFilter {
        match (
            self.log_verbose_level,
            self.log_info,
            self.log_warning,
            self.log_error,
        ) {
            (2.., ..) => LevelFilter::TRACE,
            (1, ..) => LevelFilter::DEBUG,
            (_, true, ..) => LevelFilter::INFO,
            (_, _, true, _) => LevelFilter::WARN,
            (_, _, _, true) => LevelFilter::ERROR,
            _ => LevelFilter::OFF,
        }
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
