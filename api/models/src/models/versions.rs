//! `/v1/models/{model}/versions`: the versions of a name, and which of them answers.

use std::time::Duration;

use axum::{
    Extension, Json,
    extract::{Path, Request, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use sextant_judging::{Guards, Rules};
use sextant_metadata::TrialRow;
use sextant_registry::{Act, Model, ModelStatus, VersionChange};
use sextant_types::{Code, ModelId, Stage, time::unix_ms};
use utoipa::ToSchema;

use super::FailureBody;
use crate::{
    ApiState,
    auth::{Actor, AuditMark},
    codec::short,
    extract::{self, Name},
    json,
    precondition::TaggedDocument,
    problem::{Problem, ProblemBody},
};

/// The versions of a name.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Versions)]
pub struct VersionsBody {
    /// The application.
    application: String,
    /// The name.
    name: String,
    /// The number of the version that answers; absent before one is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    current: Option<u32>,
    /// By number.
    versions: Vec<VersionBody>,
}

/// A version.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Version)]
pub struct VersionBody {
    /// Its number, from 1.
    version: u32,
    /// The name by which variants, jobs and metrics call this version of the model.
    model: String,
    /// `registering`, `ready` or `failed`.
    status: &'static str,
    /// Why its registration failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<FailureBody>,
    /// `candidate`, `shadow`, `canary`, `current` or `retired`; absent before it is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<&'static str>,
    /// The share of queries that a shadow or a canary gets, percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    percent: Option<f64>,
    /// When it entered its stage, milliseconds since the Unix epoch; absent if it always had it.
    #[serde(skip_serializing_if = "Option::is_none")]
    since_ms: Option<u64>,
    /// The number of the previous current version, to which a rollback goes back.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced: Option<u32>,
    /// The limits by which it is promoted or rolled back automatically, if the request set them.
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<serde_json::Value>,
    /// SHA-256 of its file.
    digest: String,
    /// When it was registered, milliseconds since the Unix epoch.
    created_ms: u64,
}

/// What versions have done while one of them is tried, since a dispatcher began to lead.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = VersionTrials)]
pub struct TrialsBody {
    /// Results of the versions that have done something, by number.
    trials: Vec<TrialBody>,
}

/// What a version has done while it, or another of its name, is tried.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = VersionTrial)]
pub struct TrialBody {
    /// Its number.
    version: u32,
    /// Queries that it was asked to answer or to repeat.
    queries: u64,
    /// Of these, those that it failed.
    errors: u64,
    /// Of these, those that it answered too late, or that were refused because it had no time for them.
    late: u64,
    /// Rows of a shadow that were compared with the current version's.
    rows: u64,
    /// Of these, those that agree.
    agreeing: u64,
    /// Queries that no worker had time to repeat.
    passed_over: u64,
    /// What an answer took to compute, milliseconds, the mean of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_compute_ms: Option<f64>,
}

/// What a version is to become.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = VersionChange)]
pub struct VersionChangeBody {
    /// `candidate`, `shadow`, `canary` or `retired`.
    #[schema(example = "canary")]
    stage: String,
    /// The share of queries that a shadow or a canary gets, percent; if it is left out, 100 for a shadow.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 100, example = 5.0)]
    percent: Option<f64>,
    /// The limits by which a shadow or a canary is rolled back or promoted automatically; if they are left
    /// out, neither happens.
    #[serde(default)]
    rules: Option<RulesBody>,
}

/// The limits by which a version that is tried is rolled back or promoted automatically. The service
/// checks the evidence once a second, with a test that stays valid however often it is checked.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = VersionRules)]
pub struct RulesBody {
    /// Largest share of its queries that may fail; 0.01 if it is left out.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1, example = 0.01)]
    max_error_share: Option<f64>,
    /// Largest share of its queries that it may answer too late; 0.05 if it is left out.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1, example = 0.05)]
    max_late_share: Option<f64>,
    /// Least share of the rows in which a shadow must agree with the current version; if it is left out,
    /// there is no such limit.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1, example = 0.95)]
    min_agreement: Option<f64>,
    /// How much worse its outcomes may be on average, if they are known. With 0, the default, they must be better.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1, example = 0.01)]
    margin: Option<f64>,
    /// Least number of answers before it is promoted; 1000 if it is left out.
    #[serde(default)]
    #[schema(example = 1000)]
    minimum: Option<u64>,
    /// Greatest probability of a wrong promotion or a wrong rollback, however often the evidence is checked;
    /// 0.05 if it is left out.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1, example = 0.05)]
    alpha: Option<f64>,
    /// Whether it becomes current automatically; if not, it can only be rolled back automatically.
    #[serde(default, deserialize_with = "json::or_default")]
    promote: bool,
}

/// What the client has seen before it promotes or rolls back.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = VersionSeen)]
pub struct VersionSeenBody {
    /// The number of the version that the client believes to be current; the request is refused if another
    /// one is current by now.
    #[serde(default)]
    #[schema(example = 1)]
    current: Option<u32>,
}

/// The versions of a model's name, by number.
#[utoipa::path(get, operation_id = "versions_list", path = "/v1/models/{model}/versions", tag = "models",
    params(("model" = String, Path, description = "`name` or `application:name`")),
    responses(
        (status = 200, description = "The versions", body = VersionsBody,
            headers(("etag" = String, description = "changes when they do"))),
        (status = 304, description = "`If-None-Match` names the present `ETag`"),
        (status = 404, description = "There is none", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn list(
    State(state): State<ApiState>,
    Name(name): Name<ModelId>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let line = state.registry().versions(&name).await?;
    Ok(TaggedDocument::new(&VersionsBody::new(&line)).answer(&headers))
}

/// Shows the results of the versions of a name while one of them is tried: a canary's answers beside the
/// current version's, and how often a shadow's answers agree with them. They are counted since a
/// dispatcher began to lead.
#[utoipa::path(get, operation_id = "versions_trials", path = "/v1/models/{model}/trials", tag = "models",
    params(("model" = String, Path, description = "`name` or `application:name`")),
    responses((status = 200, description = "What they have done", body = TrialsBody)))]
pub async fn trials(
    State(state): State<ApiState>,
    Name(name): Name<ModelId>,
) -> Result<Json<TrialsBody>, Problem> {
    let line = state.registry().versions(&name).await?;
    let demand = state.metadata().snapshot().await?.demand;
    let rows = demand.as_deref().map_or(&[][..], |demand| &demand.trials);
    let of = |model: &Model| {
        let row = rows.iter().find(|row| row.model == model.id)?;
        Some(TrialBody::of(model.release.version, row))
    };
    let trials = line.iter().filter_map(of).collect();
    Ok(Json(TrialsBody { trials }))
}

/// Makes a version a candidate, a shadow or a canary, or retires it. A candidate answers queries that
/// name it. A canary also answers a share of the other queries. A shadow repeats a share of them on
/// workers that have nothing else to do.
#[utoipa::path(patch, operation_id = "versions_change", path = "/v1/models/{model}/versions/{version}",
    tag = "models",
    params(
        ("model" = String, Path, description = "`name` or `application:name`"),
        ("version" = String, Path, description = "its number"),
        ("if-match" = Option<String>, Header, description = "only if this is still the `ETag` of the versions"),
    ),
    request_body = VersionChangeBody,
    responses(
        (status = 200, description = "The versions as they are now", body = VersionsBody),
        (status = 404, description = "There is none", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 409, description = "The version is current or not ready, or another one is being \
            tried", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 412, description = "They have changed since", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn change(
    State(state): State<ApiState>,
    Path((model, version)): Path<(String, String)>,
    Extension(actor): Extension<Actor>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let bytes = state.collect_document(body).await?;
    let change = json::owned::<VersionChangeBody>(&bytes)?;
    let act = (Act::To(change.stage()?), change.rules()?);
    let asked = (&*model, &*version, None);
    make((&state, &actor), asked, act, &parts.headers).await
}

/// Makes a version current: it answers as soon as it is loaded, and until then the version before it
/// does. The service keeps that version so that a rollback can go back to it.
#[utoipa::path(post, operation_id = "versions_promote", path = "/v1/models/{model}/versions/{version}/promotion",
    tag = "models",
    params(
        ("model" = String, Path, description = "`name` or `application:name`"),
        ("version" = String, Path, description = "its number"),
        ("if-match" = Option<String>, Header, description = "only if this is still the `ETag` of the versions"),
    ),
    request_body = VersionSeenBody,
    responses(
        (status = 200, description = "The versions as they are now", body = VersionsBody),
        (status = 404, description = "There is none", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 409, description = "The version is not ready, or another version is current than the client has seen",
            body = ProblemBody, content_type = "application/problem+json"),
        (status = 412, description = "They have changed since", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn promote(
    State(state): State<ApiState>,
    Path((model, version)): Path<(String, String)>,
    Extension(actor): Extension<Actor>,
    request: Request,
) -> Result<Response, Problem> {
    let of = (&*model, &*version);
    switch((&state, &actor), of, Act::To(Stage::Current), request).await
}

/// Makes the previous current version current again.
#[utoipa::path(post, operation_id = "versions_rollback", path = "/v1/models/{model}/versions/{version}/rollback",
    tag = "models",
    params(
        ("model" = String, Path, description = "`name` or `application:name`"),
        ("version" = String, Path, description = "the number of the current version"),
        ("if-match" = Option<String>, Header, description = "only if this is still the `ETag` of the versions"),
    ),
    request_body = VersionSeenBody,
    responses(
        (status = 200, description = "The versions as they are now", body = VersionsBody),
        (status = 404, description = "There is none", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 409, description = "The version is not current, or there is no version to go back to",
            body = ProblemBody, content_type = "application/problem+json"),
        (status = 412, description = "They have changed since", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn rollback(
    State(state): State<ApiState>,
    Path((model, version)): Path<(String, String)>,
    Extension(actor): Extension<Actor>,
    request: Request,
) -> Result<Response, Problem> {
    let of = (&*model, &*version);
    switch((&state, &actor), of, Act::RollBack, request).await
}

/// Makes another version current, if the current version is the one that the request names.
async fn switch(
    (state, actor): (&ApiState, &Actor),
    (model, version): (&str, &str),
    act: Act,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let seen = seen(state, body).await?;
    let asked = (model, version, seen);
    make((state, actor), asked, (act, None), &parts.headers).await
}

async fn seen(state: &ApiState, body: axum::body::Body) -> Result<Option<u32>, Problem> {
    let bytes = state.collect_document(body).await?;
    Ok(match bytes.trim_ascii().is_empty() {
        true => None,
        false => json::owned::<VersionSeenBody>(&bytes)?.current,
    })
}

/// Changes a version in the registry together with its audit entry, then announces it to those that answer queries.
async fn make(
    (state, actor): (&ApiState, &Actor),
    (model, version, seen): (&str, &str, Option<u32>),
    (act, rules): (Act, Option<Rules>),
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let line = state.registry().versions(&model.parse()?).await?;
    let change = VersionChange {
        model: numbered(&line, version)?.id.clone(),
        act,
        // The rules have numbers alone: writing them cannot fail.
        rules: rules.and_then(|rules| serde_json::to_value(rules).ok()),
        seen,
        since_ms: None,
    };
    let now_ms = unix_ms();
    let entry = |line: &[Model]| {
        let body = VersionsBody::new(line);
        let subject = format!("{}:{}@{version}", body.application, body.name);
        let detail = match act {
            Act::To(stage) => {
                serde_json::json!({"stage": stage.as_str(), "percent": stage.percent()})
            }
            Act::RollBack => serde_json::json!({"current": body.current}),
        };
        actor.entry(now_ms, &subject, detail)
    };
    let check = |line: &[Model]| TaggedDocument::new(&VersionsBody::new(line)).check(headers);
    let registry = state.registry();
    let line = registry.change_version_on_record(&change, now_ms, (check, entry));
    let line = line.await??;
    // From here on the change is made and recorded, even if the announcement fails.
    let answer = match show(state, &line).await {
        Ok(()) => TaggedDocument::new(&VersionsBody::new(&line)).with(StatusCode::OK),
        Err(problem) => {
            tokio::spawn(show_later(state.clone(), line));
            problem.into_response()
        }
    };
    Ok((Extension(AuditMark), answer).into_response())
}

/// First pause between attempts to announce a change that the metadata store did not accept. Pauses double, to a
/// quarter of an hour in all.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(900);

/// Announces a change once the metadata store is back.
async fn show_later(state: ApiState, line: Vec<Model>) {
    let mut pause = FIRST_PAUSE;
    while pause < LONGEST_PAUSE {
        tokio::time::sleep(pause).await;
        if show(&state, &line).await.is_ok() {
            return;
        }
        pause *= 2;
    }
}

/// Announces the present versions to those that answer queries.
async fn show(state: &ApiState, line: &[Model]) -> Result<(), Problem> {
    for model in line {
        state.refresh_model(&model.id).await?;
    }
    if let Some(first) = line.first() {
        let publisher = state.publisher();
        publisher.show_application(&first.application).await?;
    }
    Ok(())
}

/// The version with a number.
fn numbered<'a>(line: &'a [Model], version: &str) -> Result<&'a Model, Problem> {
    let number = extract::digits(version).and_then(|number| u32::try_from(number).ok());
    let found = line.iter().find(|it| Some(it.release.version) == number);
    found.ok_or_else(|| {
        let there: Vec<String> = line
            .iter()
            .map(|it| it.release.version.to_string())
            .collect();
        let name = line
            .first()
            .map_or_else(String::new, |it| it.name().to_string());
        let detail = format!(
            "model `{name}` has no version `{}`: there are `{}`",
            short(version),
            there.join("`, `")
        );
        Problem::new(Code::ModelNotFound, detail)
    })
}

// === impl VersionChangeBody ===

impl VersionChangeBody {
    fn rules(&self) -> Result<Option<Rules>, Problem> {
        let Some(body) = &self.rules else {
            return Ok(None);
        };
        if !matches!(self.stage.as_str(), "shadow" | "canary") {
            let detail = "only a shadow or a canary has `rules`";
            return Err(Problem::new(Code::InvalidRequest, detail).field("rules"));
        }
        body.read().map(Some)
    }

    fn stage(&self) -> Result<Stage, Problem> {
        let unusable = |detail: String| Problem::new(Code::InvalidRequest, detail);
        let stage = Stage::parse(&self.stage, self.percent);
        let stage = stage.filter(|stage| *stage != Stage::Current);
        let stage = stage.ok_or_else(|| {
            let detail = format!(
                "`stage` is `{}`: it is `candidate`, `shadow`, `canary` or `retired`; a version becomes current by \
                 `POST ../promotion`",
                short(&self.stage)
            );
            unusable(detail).field("stage")
        })?;
        if matches!(stage, Stage::Canary { .. }) && self.percent.is_none() {
            let detail = "a canary needs `percent`, the share of the queries that it answers";
            return Err(unusable(detail.to_owned()).field("percent"));
        }
        if stage.percent().is_none() && self.percent.is_some() {
            let detail = format!("a version that is `{}` has no `percent`", stage.as_str());
            return Err(unusable(detail).field("percent"));
        }
        match stage.validate() {
            Ok(()) => Ok(stage),
            Err(error) => Err(unusable(error.to_string()).field("percent")),
        }
    }
}

// === impl RulesBody ===

impl RulesBody {
    fn read(&self) -> Result<Rules, Problem> {
        let share = |name: &str, given: Option<f64>, usual: f64| {
            let share = given.unwrap_or(usual);
            match (0.0..=1.0).contains(&share) {
                true => Ok(share),
                false => {
                    let detail = format!("`{name}` is `{share}`: it is a number from 0 to 1");
                    Err(Problem::new(Code::InvalidRequest, detail).field("rules"))
                }
            }
        };
        let alpha = share("alpha", self.alpha, 0.05)?;
        if !(1e-9..1.0).contains(&alpha) {
            let detail = "`alpha` is above 0 and below 1: evidence is never without any doubt";
            return Err(Problem::new(Code::InvalidRequest, detail).field("rules"));
        }
        let agreement = self.min_agreement;
        Ok(Rules {
            alpha,
            minimum: self.minimum.unwrap_or(1000),
            margin: share("margin", self.margin, 0.0)?,
            guards: Guards {
                errors: share("max_error_share", self.max_error_share, 0.01)?,
                late: share("max_late_share", self.max_late_share, 0.05)?,
                agreement: agreement
                    .map(|least| share("min_agreement", Some(least), 0.0))
                    .transpose()?,
            },
            promote: self.promote,
        })
    }
}

// === impl VersionsBody ===

impl VersionsBody {
    fn new(line: &[Model]) -> Self {
        let first = line.first();
        let is_current =
            |it: &&Model| it.status == ModelStatus::Ready && it.release.stage == Stage::Current;
        Self {
            application: first.map_or_else(String::new, |it| it.application.to_string()),
            name: first.map_or_else(String::new, |it| it.name().to_string()),
            current: line.iter().find(is_current).map(|it| it.release.version),
            versions: line.iter().map(VersionBody::from).collect(),
        }
    }
}

impl From<&Model> for VersionBody {
    fn from(model: &Model) -> Self {
        let release = &model.release;
        let is_ready = model.status == ModelStatus::Ready;
        Self {
            version: release.version,
            model: model.id.to_string(),
            status: model.status.as_str(),
            error: model.error.clone().map(FailureBody::from),
            stage: is_ready.then_some(release.stage.as_str()),
            percent: release.stage.percent(),
            since_ms: Some(release.since_ms).filter(|ms| *ms > 0),
            replaced: model.replaced,
            rules: model.rules.clone().filter(|_| release.stage.is_tried()),
            digest: model.digest.to_string(),
            created_ms: model.created_ms,
        }
    }
}

impl TrialBody {
    fn of(version: u32, row: &TrialRow) -> Self {
        let answers = row.queries.saturating_sub(row.errors);
        Self {
            version,
            queries: row.queries,
            errors: row.errors,
            late: row.late,
            rows: row.rows,
            agreeing: row.agreeing,
            passed_over: row.passed_over,
            mean_compute_ms: (answers > 0).then(|| row.compute_us as f64 / 1e3 / answers as f64),
        }
    }
}
