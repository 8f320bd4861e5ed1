//! Statistics by name, in the form of Triton's clients.

use axum::{Json, extract::State};
use serde::Serialize;
use sextant_types::Route;
use utoipa::ToSchema;

use super::ResolvedName;
use crate::{
    ApiState,
    auth::Caller,
    metrics::{AnswerStats, FailureStats, SizeTotals},
    problem::Problem,
};

/// What this front end has answered since its process began.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ModelStatistics)]
pub struct StatisticsBody {
    /// By name.
    model_stats: Vec<StatisticBody>,
}

/// What was answered under one name.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ModelStatistic)]
pub struct StatisticBody {
    /// The name.
    pub(super) name: String,
    /// `1`.
    pub(super) version: String,
    /// When the last query was answered, milliseconds since the Unix epoch.
    pub(super) last_inference: u64,
    /// Rows that were answered.
    pub(super) inference_count: u64,
    /// Batches that ran for them; a shared batch counts by the share of their rows.
    pub(super) execution_count: u64,
    /// Where the time went.
    pub(super) inference_stats: InferenceStatsBody,
    /// By the rows of the batches; those of more than 64 count as 64.
    pub(super) batch_stats: Vec<BatchStatBody>,
}

/// What batches of one size took.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BatchStatistic)]
pub struct BatchStatBody {
    /// Rows.
    pub(super) batch_size: u64,
    /// Reading inputs; not counted apart.
    pub(super) compute_input: DurationStatBody,
    /// Running; a shared batch counts by the share of the rows answered here.
    pub(super) compute_infer: DurationStatBody,
    /// Writing outputs; not counted apart.
    pub(super) compute_output: DurationStatBody,
}

/// Where the time of the answers went.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = InferenceStatistics)]
pub struct InferenceStatsBody {
    /// From arrival to answer.
    pub(super) success: DurationStatBody,
    /// From arrival to refusal, of queries that asked by this name.
    pub(super) fail: DurationStatBody,
    /// Waiting for a batch and a device.
    pub(super) queue: DurationStatBody,
    /// Reading inputs; part of `success` alone here.
    pub(super) compute_input: DurationStatBody,
    /// Running.
    pub(super) compute_infer: DurationStatBody,
    /// Writing outputs; part of `success` alone here.
    pub(super) compute_output: DurationStatBody,
}

/// How often and how long in all.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[schema(as = DurationStatistic)]
pub struct DurationStatBody {
    /// How often.
    pub(super) count: u64,
    /// How long in all, nanoseconds.
    pub(super) ns: u64,
}

/// What was answered by an application, model or variant.
#[utoipa::path(get, operation_id = "v2_model_statistics", path = "/v2/models/{model}/stats",
    tag = "open inference protocol",
    params(("model" = String, Path, description = "variant, model or application")),
    responses((status = 200, description = "What it has answered", body = StatisticsBody)))]
pub async fn statistics(
    State(state): State<ApiState>,
    named: ResolvedName,
) -> Result<Json<StatisticsBody>, Problem> {
    Ok(Json(StatisticsBody {
        model_stats: of(&state, &named).await?,
    }))
}

/// The statistics of a name; those of a model have one entry for each version. Failures are counted by the name that
/// was asked, so they stand with the last version.
pub(super) async fn of(
    state: &ApiState,
    named: &ResolvedName,
) -> Result<Vec<StatisticBody>, Problem> {
    let answered = |route: &Route| {
        let totals = state.metrics().totals(Some(route));
        let all = totals.into_iter().map(|(_, _, answered)| answered);
        all.fold(AnswerStats::default(), AnswerStats::plus)
    };
    let failed = state.metrics().failed(&named.route);
    let versions = named.versions(state).await?;
    let Some(last) = versions.len().checked_sub(1) else {
        let sum = answered(&named.route);
        let one = StatisticBody::of((named.name.clone(), 1), &sum, failed);
        return Ok(vec![one]);
    };
    let versions = versions.iter().enumerate();
    let versions = versions.map(|(at, (version, id))| {
        let sum = answered(&Route::Model(id.clone()));
        let failed = match at == last {
            true => failed,
            false => FailureStats::default(),
        };
        StatisticBody::of((named.name.clone(), *version), &sum, failed)
    });
    Ok(versions.collect())
}

/// The same for a version.
#[utoipa::path(get, operation_id = "v2_model_version_statistics",
    path = "/v2/models/{model}/versions/{version}/stats", tag = "open inference protocol",
    params(
        ("model" = String, Path, description = "variant, model or application"),
        ("version" = String, Path, description = "`1`"),
    ),
    responses((status = 200, description = "What it has answered", body = StatisticsBody)))]
pub async fn statistics_version(
    state: State<ApiState>,
    named: ResolvedName,
) -> Result<Json<StatisticsBody>, Problem> {
    statistics(state, named).await
}

/// What each variant has answered, without variants that have answered nothing.
#[utoipa::path(get, operation_id = "v2_statistics", path = "/v2/models/stats",
    tag = "open inference protocol",
    responses((status = 200, description = "By variant", body = StatisticsBody)))]
pub async fn all_statistics(State(state): State<ApiState>, caller: Caller) -> Json<StatisticsBody> {
    let model_stats = all(&state, &caller);
    Json(StatisticsBody { model_stats })
}

/// The statistics of each variant that the caller may see.
pub(super) fn all(state: &ApiState, caller: &Caller) -> Vec<StatisticBody> {
    let totals = state.metrics().totals(None);
    let seen = totals
        .into_iter()
        .filter(|(_, application, _)| application.as_ref().is_some_and(|it| caller.sees(it)));
    let mut model_stats: Vec<StatisticBody> = seen
        .map(|(variant, _, answered)| {
            let name = variant.to_string();
            let failed = state.metrics().failed(&Route::Variant(variant));
            StatisticBody::of((name, 1), &answered, failed)
        })
        .collect();
    model_stats.sort_by(|a, b| a.name.cmp(&b.name));
    model_stats
}

impl StatisticBody {
    fn of(
        (name, version): (String, u32),
        AnswerStats { totals, sizes }: &AnswerStats,
        failed: FailureStats,
    ) -> Self {
        let count = totals.queries;
        let stat = |ns| DurationStatBody { count, ns };
        Self {
            name,
            version: version.to_string(),
            last_inference: totals.last_ms,
            inference_count: totals.rows,
            execution_count: sizes.values().map(SizeTotals::begun).sum(),
            inference_stats: InferenceStatsBody {
                success: stat(totals.total_ns),
                fail: DurationStatBody {
                    count: failed.queries,
                    ns: failed.total_ns,
                },
                queue: stat(totals.queue_ns),
                compute_input: stat(0),
                compute_infer: stat(totals.compute_ns),
                compute_output: stat(0),
            },
            batch_stats: sizes.iter().map(BatchStatBody::of).collect(),
        }
    }
}

impl BatchStatBody {
    fn of((rows, of): (&usize, &SizeTotals)) -> Self {
        let count = of.begun();
        let stat = |ns| DurationStatBody { count, ns };
        Self {
            batch_size: *rows as u64,
            compute_input: stat(0),
            compute_infer: stat(of.compute_ns),
            compute_output: stat(0),
        }
    }
}
