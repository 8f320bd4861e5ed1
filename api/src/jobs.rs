//! `/v1/jobs`: registrations and offline jobs.

use std::time::Duration;

use axum::{
    Json,
    extract::{Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use sextant_objects::{ListRequest, ObjectPath, ObjectStore};
use sextant_registry::{Job, JobFilter, JobKind, JobState, NewJob};
use sextant_rpc::{
    OfflineSpec, Route,
    offline::{RecordFormat, check_webhook},
};
use sextant_types::{ApplicationId, Code, JobId, ModelId};
use tokio::time::Instant;

use crate::{
    ApiState, clock,
    extract::{Name, Params},
    json,
    problem::{Problem, ProblemBody},
    query, upload,
};

mod wire;

use wire::{JobBody, JobsBody, NewJobBody};

/// Most records in a chunk.
const MAX_CHUNK: u32 = 65_536;

/// Longest wait of one request, milliseconds.
const MAX_WAIT_MS: u64 = 60_000;

/// How often a waiting request looks at the job.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Which jobs to list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobParams {
    kind: Option<String>,
    state: Option<String>,
    application: Option<ApplicationId>,
    model: Option<ModelId>,
    before: Option<JobId>,
    limit: Option<u32>,
}

/// How long to wait for a job.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitParams {
    #[serde(default)]
    wait_ms: u64,
}

/// Starts an offline job; with `wait_ms` the answer waits until it has come to its end.
#[utoipa::path(post, operation_id = "jobs_create", path = "/v1/jobs", tag = "jobs",
    params(("wait_ms" = Option<u64>, Query, description = "longest wait, up to 60000")),
    request_body(content = NewJobBody<'static>, content_type = "application/json"),
    responses(
        (status = 202, description = "Queued", body = JobBody,
            headers(("location" = String, description = "the job"))),
        (status = 200, description = "It was waited for and has come to its end", body = JobBody),
        (status = 404, description = "Who should answer, or the input, does not exist",
            body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub async fn create(
    State(state): State<ApiState>,
    Params(params): Params<WaitParams>,
    request: Request,
) -> Result<Response, Problem> {
    let bytes = state.collect(request.into_body()).await?;
    let job = read(&state, &bytes).await?;
    let job = state.registry().create_job(&job, clock::now_ms()).await?;
    let job = wait(&state, &job.id, &params).await?;
    let location = format!("/v1/jobs/{}", job.id);
    let status = match job.state.is_final() && params.wait_ms > 0 {
        true => StatusCode::OK,
        false => StatusCode::ACCEPTED,
    };
    let body = Json(JobBody::from(job));
    Ok((status, [(header::LOCATION, location)], body).into_response())
}

/// Jobs, newest first.
#[utoipa::path(get, operation_id = "jobs_list", path = "/v1/jobs", tag = "jobs",
    params(
        ("kind" = Option<String>, Query, description = "`register`, `extend` or `offline`"),
        ("state" = Option<String>, Query, description = "only in this state"),
        ("application" = Option<String>, Query, description = "only of this application"),
        ("model" = Option<String>, Query, description = "only of this model"),
        ("before" = Option<String>, Query, description = "last job of the page before"),
        ("limit" = Option<u32>, Query, description = "most jobs, 1 to 1000"),
    ),
    responses((status = 200, description = "Newest first", body = JobsBody)))]
pub async fn list(
    State(state): State<ApiState>,
    Params(params): Params<JobParams>,
) -> Result<Json<JobsBody>, Problem> {
    let jobs = state.registry().jobs(&params.filter()?).await?;
    let jobs = jobs.into_iter().map(JobBody::from).collect();
    Ok(Json(JobsBody { jobs }))
}

/// One job; with `wait_ms` the answer waits until the job has come to its end.
#[utoipa::path(get, operation_id = "jobs_get", path = "/v1/jobs/{job}", tag = "jobs",
    params(
        ("job" = String, Path, description = "its name"),
        ("wait_ms" = Option<u64>, Query, description = "longest wait, up to 60000"),
    ),
    responses(
        (status = 200, description = "The job", body = JobBody),
        (status = 404, description = "There is none", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn get(
    State(state): State<ApiState>,
    Name(id): Name<JobId>,
    Params(params): Params<WaitParams>,
) -> Result<Json<JobBody>, Problem> {
    Ok(Json(wait(&state, &id, &params).await?.into()))
}

/// A job when it has come to its end, or as it is when it has not within the wait that was asked for.
pub(crate) async fn wait(
    state: &ApiState,
    id: &JobId,
    params: &WaitParams,
) -> Result<Job, Problem> {
    let until = Instant::now() + Duration::from_millis(params.wait_ms.min(MAX_WAIT_MS));
    loop {
        let job = state.registry().job(id).await?;
        if job.state.is_final() || Instant::now() >= until || state.is_draining() {
            return Ok(job);
        }
        tokio::time::sleep_until(until.min(Instant::now() + LOOK_EVERY)).await;
    }
}

/// Cancels a job. A job that has come to its end stays as it is.
#[utoipa::path(delete, operation_id = "jobs_cancel", path = "/v1/jobs/{job}", tag = "jobs",
    params(("job" = String, Path, description = "its name")),
    responses(
        (status = 200, description = "The job as it stands", body = JobBody),
        (status = 404, description = "There is none", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn cancel(
    State(state): State<ApiState>,
    Name(id): Name<JobId>,
) -> Result<Json<JobBody>, Problem> {
    Ok(Json(
        state.registry().cancel(&id, clock::now_ms()).await?.into(),
    ))
}

async fn read(state: &ApiState, bytes: &[u8]) -> Result<NewJob, Problem> {
    let body: NewJobBody<'_> = json::borrowed(bytes)?;
    let names = (
        body.application.as_ref(),
        body.model.as_ref(),
        body.variant.as_ref(),
    );
    let route = query::route(names.0, names.1, names.2)?;
    let (application, model) = owner(state, &route).await?;
    let targets = state.targets(&route, body.targets)?;
    if body.chunk == 0 || body.chunk > MAX_CHUNK {
        let detail = format!("`chunk` is `{}`: it must be 1 to {MAX_CHUNK}", body.chunk);
        return Err(Problem::new(Code::InvalidRequest, detail).field("chunk"));
    }
    let input_format = format(body.format.as_deref(), "format")?;
    let output_format = format(body.output_format.as_deref(), "output_format")?;
    if let Some(Err(reason)) = body.webhook.as_deref().map(check_webhook) {
        return Err(Problem::new(Code::InvalidRequest, reason).field("webhook"));
    }
    check_paths(state.objects().as_ref(), &body.input, &body.output).await?;
    let spec = OfflineSpec {
        route,
        targets,
        input: body.input,
        output: body.output,
        chunk: body.chunk,
        input_format,
        output_format,
        webhook: body.webhook,
    };
    let spec = serde_json::to_value(spec).map_err(|error| Problem::internal("the job", &error))?;
    let mut job = NewJob::new(JobKind::Offline, application, spec);
    job.model = model;
    if let Some(id) = body.id {
        job.id = JobId::new(id)?;
    }
    Ok(job)
}

fn format(name: Option<&str>, field: &'static str) -> Result<Option<RecordFormat>, Problem> {
    let Some(name) = name else {
        return Ok(None);
    };
    let known = RecordFormat::parse(name);
    known.map(Some).ok_or_else(|| {
        let names = RecordFormat::ALL.map(RecordFormat::as_str).join("`, `");
        let detail = format!("`{field}` is one of `{names}`");
        Problem::new(Code::InvalidRequest, detail).field(field)
    })
}

/// Refuses paths that break the naming rule, input that is not there, and output that would become
/// part of it. A path that ends in `/` means the files below it.
async fn check_paths(objects: &dyn ObjectStore, input: &str, output: &str) -> Result<(), Problem> {
    let folders = (input.strip_suffix('/'), output.strip_suffix('/'));
    let from = ObjectPath::parse(folders.0.unwrap_or(input))?;
    let to = ObjectPath::parse(folders.1.unwrap_or(output))?;
    let refuse = |detail: &str| Err(Problem::new(Code::InvalidRequest, detail).field("output"));
    if from == to {
        return refuse("`input` and `output` are the same path");
    }
    match folders {
        (None, Some(_)) => {
            return refuse("`output` ends in `/`, which needs an `input` that does too");
        }
        (Some(_), _) if output.starts_with(input) => {
            return refuse("`output` lies below `input`: its files would become input");
        }
        _ => {}
    }
    if folders.0.is_none() {
        upload::existing(objects, &from).await?;
        return Ok(());
    }
    let first = ListRequest {
        limit: 1,
        ..ListRequest::prefix(input)
    };
    if objects.list(&first).await?.objects.is_empty() {
        let detail = format!("there is no artefact below `{input}`");
        return Err(Problem::new(Code::ArtefactNotFound, detail).field("input"));
    }
    Ok(())
}

/// The application and model that a route belongs to; refuses what does not exist.
async fn owner(
    state: &ApiState,
    route: &Route,
) -> Result<(ApplicationId, Option<ModelId>), Problem> {
    let registry = state.registry();
    Ok(match route {
        Route::Application(id) => (registry.application(id).await?.id, None),
        Route::Model(id) => (registry.model(id).await?.application, Some(id.clone())),
        Route::Variant(id) => {
            let variant = registry.variant(id).await?;
            (variant.application, Some(variant.model))
        }
    })
}

// === impl JobParams ===

impl JobParams {
    fn filter(self) -> Result<JobFilter, Problem> {
        let unknown = |name: &str| {
            let detail = format!("parameter `{name}` has no such value");
            Problem::new(Code::InvalidRequest, detail).field(name)
        };
        let kind = self.kind.as_deref().map(JobKind::parse);
        let state = self.state.as_deref().map(JobState::parse);
        Ok(JobFilter {
            kind: kind
                .map(|kind| kind.ok_or_else(|| unknown("kind")))
                .transpose()?,
            state: state
                .map(|state| state.ok_or_else(|| unknown("state")))
                .transpose()?,
            application: self.application,
            model: self.model,
            before: self.before,
            limit: self.limit.map(|limit| limit.clamp(1, 1000)),
        })
    }
}
