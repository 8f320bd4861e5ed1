//! `/v1/applications/{application}/status`: whether an application is served, at a glance.

use std::collections::BTreeMap;

use axum::{Json, extract::State};
use serde::Serialize;
use sextant_registry::{Application, KeyScope};
use sextant_types::ApplicationId;
use utoipa::ToSchema;

use crate::{
    ApiState,
    auth::Caller,
    extract::Name,
    metrics::{Counts, Split},
    problem::{Problem, ProblemBody},
    targets::TargetsBody,
};

/// How an application is served: the results of its queries over the last minute.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ApplicationStatus)]
pub struct StatusBody {
    /// Its name.
    application: String,
    /// The targets of queries that state none.
    targets: TargetsBody,
    /// The time over which everything is counted, up to now, seconds; at most a minute.
    window_s: f64,
    /// Queries a second, including refused ones.
    rate_per_s: f64,
    /// Queries that the service owed an answer: all but those that could not be read or were not allowed.
    asked: u64,
    /// Queries answered.
    answered: u64,
    /// Those of them that met every target that was asked for.
    in_time: u64,
    /// `in_time` as a share of `asked`; null if no query was asked.
    #[schema(required)]
    share_in_time: Option<f64>,
    /// Queries that were not answered, by code.
    #[schema(value_type = BTreeMap<String, u64>, example = json!({"overloaded": 3}))]
    refused: BTreeMap<&'static str, u64>,
    /// Where the time of a median query went; null if no query was answered.
    #[schema(required)]
    p50: Option<SplitBody>,
    /// The same for a query at the 99th percentile.
    #[schema(required)]
    p99: Option<SplitBody>,
    /// Present cost of its batches and of its share of idle devices, US dollars an hour; absent before the
    /// service has counted it for some seconds, and for keys without the scope `admin`.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_per_hour_usd: Option<f64>,
}

/// Where the time of the queries around a percentile went. The stages add up to `total_ms`, from the last byte of a
/// request to the written answer.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StatusSplit)]
pub struct SplitBody {
    /// Waiting while the chosen variant was loaded, including the wait for the load, milliseconds.
    load_ms: f64,
    /// Reading the request and waiting for a batch and a device, milliseconds.
    queue_ms: f64,
    /// Running, milliseconds.
    run_ms: f64,
    /// On the way back and being written, milliseconds.
    other_ms: f64,
    /// The whole time, milliseconds.
    total_ms: f64,
}

/// Shows how an application is served: rate, share of answers in time, refusals, where the time goes and
/// what it costs.
///
/// The service counts the queries that this front end received in the last minute, without those of offline jobs.
#[utoipa::path(get, operation_id = "applications_status", path = "/v1/applications/{application}/status",
    tag = "applications",
    params(("application" = String, Path, description = "its name")),
    responses(
        (status = 200, description = "Over the last minute", body = StatusBody),
        (status = 404, description = "No such application", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn get(
    State(state): State<ApiState>,
    caller: Caller,
    Name(application): Name<ApplicationId>,
) -> Result<Json<StatusBody>, Problem> {
    let application = state.registry().application(&application).await?;
    Ok(Json(StatusBody::new(&state, &caller, &application)))
}

/// The same for all applications that the caller may see, sorted by name.
pub async fn all(state: &ApiState, caller: &Caller) -> Result<Vec<StatusBody>, Problem> {
    let mut applications = state.registry().applications().await?;
    applications.retain(|application| caller.sees(&application.id));
    applications.sort_by(|a, b| a.id.cmp(&b.id));
    let each = applications.iter();
    Ok(each
        .map(|application| StatusBody::new(state, caller, application))
        .collect())
}

// === impl StatusBody ===

impl StatusBody {
    fn new(state: &ApiState, caller: &Caller, application: &Application) -> Self {
        let (counts, window_s) = state.metrics().recent(&application.id);
        let cost = || state.spending().per_hour_usd(&application.id);
        let (owed, asked) = (counts.owed(), counts.asked());
        Self {
            application: application.id.to_string(),
            targets: TargetsBody::show(&application.default_targets, application.metric),
            window_s,
            rate_per_s: asked as f64 / window_s,
            asked: owed,
            answered: counts.answered,
            in_time: counts.in_time,
            share_in_time: (owed > 0).then(|| counts.in_time as f64 / owed as f64),
            refused: refused(&counts),
            p50: counts.split(50.0).map(SplitBody::from),
            p99: counts.split(99.0).map(SplitBody::from),
            // It needs the scope `admin`, as `/v1/costs` does.
            cost_per_hour_usd: caller.has(KeyScope::Admin).then(cost).flatten(),
        }
    }
}

fn refused(counts: &Counts) -> BTreeMap<&'static str, u64> {
    let refused = counts.refused.iter();
    refused
        .map(|(code, count)| (code.as_str(), *count))
        .collect()
}

impl From<Split> for SplitBody {
    fn from(split: Split) -> Self {
        let told = split.load_ms + split.queue_ms + split.run_ms;
        Self {
            load_ms: split.load_ms,
            queue_ms: split.queue_ms,
            run_ms: split.run_ms,
            other_ms: (split.total_ms - told).max(0.0),
            total_ms: split.total_ms,
        }
    }
}
