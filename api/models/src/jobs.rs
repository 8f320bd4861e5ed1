//! `/v1/jobs`: registrations and offline jobs.

use axum::{
    Json,
    extract::{Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};
use sextant_objects::{ListRequest, ObjectPath, ObjectStore};
use sextant_registry::{Job, JobFilter, JobKind, JobState, NewJob, Registry};
use sextant_types::{
    ApplicationId, Code, JobId, ModelId, OfflineSpec, Route,
    offline::{RecordFormat, check_webhook},
    time::unix_ms,
};

use crate::{
    ApiState,
    auth::Caller,
    extract::{Name, Params},
    json,
    once::IdempotencyKey,
    page,
    problem::{Problem, ProblemBody},
    query, upload,
};

pub mod events;
mod wait;
mod wire;

pub(crate) use wait::await_model;
pub use wait::{Wait, wait};

use wire::{JobBody, JobsBody, NewJobBody};

/// Records in a chunk if the request does not say.
const CHUNK: u32 = 256;

/// Most records in a chunk.
const MAX_CHUNK: u32 = 65_536;

/// Jobs of a page if no limit is given.
const PAGE: u32 = 100;

/// Which jobs to list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobParams {
    kind: Option<String>,
    state: Option<String>,
    application: Option<ApplicationId>,
    model: Option<ModelId>,
    after: Option<JobId>,
    before: Option<JobId>,
    limit: Option<u32>,
}

/// The parameters of a cancellation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelParams {
    forget: Option<bool>,
}

/// Starts an offline job. With `wait_ms` or `Prefer: wait` the answer waits until the job has ended. With
/// an `Idempotency-Key`, the same request sent again within a day gets the same job as its answer.
#[utoipa::path(post, operation_id = "jobs_create", path = "/v1/jobs", tag = "jobs",
    params(
        ("wait_ms" = Option<u64>, Query, description = "longest wait", maximum = 60000),
        ("prefer" = Option<String>, Header, description = "`wait=N`: the same in seconds"),
        ("idempotency-key" = Option<String>, Header,
            description = "a name of the request: the service does not carry out a request again that is sent again \
                under its name"),
    ),
    request_body(content = NewJobBody<'static>, content_type = "application/json"),
    responses(
        (status = 202, description = "Queued", body = JobBody,
            headers(("location" = String, description = "the job"))),
        (status = 200, description = "The request waited for it, and it has ended", body = JobBody),
        (status = 404, description = "What the job asks, or its input, does not exist",
            body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "The name or the idempotency key is taken by another job",
            body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub async fn create(
    State(state): State<ApiState>,
    caller: Caller,
    patience: Wait,
    key: IdempotencyKey,
    request: Request,
) -> Result<Response, Problem> {
    let bytes = state.collect_document(request.into_body()).await?;
    let JobRequest { job, asked } = read(&state, &bytes).await?;
    let once = key.of(&caller, "jobs_create", &asked);
    let registry = state.registry();
    let job = registry
        .create_job_once(&job, once.as_ref(), unix_ms())
        .await?;
    let job = wait(&state, &job.id, &patience).await?;
    let location = format!("/v1/jobs/{}", job.id);
    let status = match job.state.is_final() && patience.was_asked_for() {
        true => StatusCode::OK,
        false => StatusCode::ACCEPTED,
    };
    let body = Json(JobBody::from(job));
    let mut response = (status, [(header::LOCATION, location)], body).into_response();
    patience.tell(&mut response);
    Ok(response)
}

/// A requested job.
struct JobRequest {
    job: NewJob,
    /// The identity of the request: equal for equal content.
    asked: Value,
}

/// Jobs, newest first.
#[utoipa::path(get, operation_id = "jobs_list", path = "/v1/jobs", tag = "jobs",
    params(
        ("kind" = Option<String>, Query, description = "`register`, `extend`, `offline` or `measure`"),
        ("state" = Option<String>, Query, description = "only in this state"),
        ("application" = Option<String>, Query, description = "only of this application"),
        ("model" = Option<String>, Query,
            description = "only of this model: its name, of its current version, or `name@version`"),
        ("after" = Option<String>, Query, description = "`next` of the page before"),
        ("before" = Option<String>, Query, description = "an older name of `after`"),
        ("limit" = Option<u32>, Query, description = "most jobs; 100 if left out", minimum = 1, maximum = 1000),
    ),
    responses((status = 200, description = "Newest first", body = JobsBody)))]
pub async fn list(
    State(state): State<ApiState>,
    Params(params): Params<JobParams>,
) -> Result<Json<JobsBody>, Problem> {
    let limit = page::limit(params.limit)?.unwrap_or(PAGE);
    let mut filter = params.filter()?;
    if let Some(reference) = filter.model.take() {
        filter.model = Some(meant(&state, reference).await?);
    }
    filter.limit = Some(limit + 1);
    let jobs = state.registry().jobs(&filter).await?;
    let page = page::cut_off(jobs, limit, |job| job.id.to_string());
    let jobs = page.items.into_iter().map(JobBody::from).collect();
    let next = page.next;
    Ok(Json(JobsBody { jobs, next }))
}

/// The id of the model that a reference names; the reference itself if there is none, because jobs outlast their
/// models.
async fn meant(state: &ApiState, reference: ModelId) -> Result<ModelId, Problem> {
    match state.registry().resolve(&reference).await {
        Err(sextant_registry::Error::NotFound { .. }) => Ok(reference),
        found => Ok(found?),
    }
}

/// Shows one job. With `wait_ms` or `Prefer: wait` the answer waits until the job has ended.
#[utoipa::path(get, operation_id = "jobs_get", path = "/v1/jobs/{job}", tag = "jobs",
    params(
        ("job" = String, Path, description = "its name"),
        ("wait_ms" = Option<u64>, Query, description = "longest wait", maximum = 60000),
        ("prefer" = Option<String>, Header, description = "`wait=N`: the same in seconds"),
    ),
    responses(
        (status = 200, description = "The job", body = JobBody),
        (status = 404, description = "There is none", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn get(
    State(state): State<ApiState>,
    Name(id): Name<JobId>,
    patience: Wait,
) -> Result<Response, Problem> {
    let job = wait(&state, &id, &patience).await?;
    let mut response = Json(JobBody::from(job)).into_response();
    patience.tell(&mut response);
    Ok(response)
}

/// Cancels a job. An ended job stays as it is, unless the request asks to delete it: then the job and
/// everything kept for it are deleted; its output stays.
#[utoipa::path(delete, operation_id = "jobs_cancel", path = "/v1/jobs/{job}", tag = "jobs",
    params(
        ("job" = String, Path, description = "its name"),
        ("forget" = Option<bool>, Query, description = "delete the job, which must have ended"),
    ),
    responses(
        (status = 200, description = "The present state of the job", body = JobBody),
        (status = 204, description = "It is forgotten"),
        (status = 409, description = "The job is to be deleted, but it has not ended, or its model needs it",
            body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "There is none", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn cancel(
    State(state): State<ApiState>,
    Name(id): Name<JobId>,
    Params(params): Params<CancelParams>,
) -> Result<Response, Problem> {
    let registry = state.registry();
    if params.forget == Some(true) {
        forget(registry, &registry.job(&id).await?).await?;
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let job = registry.cancel(&id, unix_ms()).await?;
    Ok(Json(JobBody::from(job)).into_response())
}

/// Deletes a job that has ended and that nothing refers to.
async fn forget(registry: &Registry, job: &Job) -> Result<(), Problem> {
    let in_use = |detail: String| Err(Problem::new(Code::InUse, detail));
    let id = &job.id;
    if !job.state.is_final() {
        return in_use(format!("job `{id}` has not ended: cancel it first"));
    }
    if let (JobKind::Register | JobKind::Extend, Some(model)) = (job.kind, &job.model) {
        match registry.model(model).await {
            Ok(_) => {
                let detail = format!("job `{id}` belongs to model `{model}`: delete the model");
                return in_use(detail);
            }
            Err(error) if error.code() == Code::ModelNotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    registry.forget_job(id).await?;
    Ok(())
}

async fn read(state: &ApiState, bytes: &[u8]) -> Result<JobRequest, Problem> {
    let body: NewJobBody<'_> = json::borrowed(bytes)?;
    let names = (
        body.application.as_ref(),
        body.model.as_ref(),
        body.variant.as_ref(),
    );
    let route = query::route(names.0, names.1, names.2)?;
    let (application, model) = owner(state, &route).await?;
    let preset = body.preset.as_ref().map(|name| &*name.0);
    let targets = state.targets_with(&route, preset, body.targets)?;
    let chunk = body.chunk.unwrap_or(CHUNK);
    if chunk == 0 || chunk > MAX_CHUNK {
        let detail = format!("`chunk` is `{chunk}`: it must be 1 to {MAX_CHUNK}");
        return Err(Problem::new(Code::InvalidRequest, detail).field("chunk"));
    }
    let input_format = format("format", body.format.as_deref(), &RecordFormat::ALL)?;
    let written = &RecordFormat::WRITTEN;
    let output_format = format("output_format", body.output_format.as_deref(), written)?;
    if input_format.is_none() && !body.input.ends_with('/') {
        let of = RecordFormat::of_input(&body.input);
        of.map_err(|why| Problem::new(Code::InvalidRequest, why).field("input"))?;
    }
    if output_format.is_none() && !body.output.ends_with('/') {
        let of = RecordFormat::of_output(&body.output);
        of.map_err(|why| Problem::new(Code::InvalidRequest, why).field("output"))?;
    }
    if let Some(Err(reason)) = body.webhook.as_deref().map(check_webhook) {
        return Err(Problem::new(Code::InvalidRequest, reason).field("webhook"));
    }
    check_paths(state.objects().as_ref(), &body.input, &body.output).await?;
    let mut spec = OfflineSpec {
        route,
        targets,
        input: body.input,
        output: body.output,
        chunk,
        input_format,
        output_format,
        webhook: body.webhook,
    };
    let mut job = NewJob::new(JobKind::Offline, application, document(&spec)?);
    // The defaults and presets of an application may change before a request is sent again, so the request's identity
    // has the targets and the preset that it names itself. A generated name differs each time and is no part of it.
    spec.targets = body.targets.read()?;
    let asked = json!([body.id, job.application.as_str(), document(&spec)?]);
    let asked = match preset {
        None => asked,
        Some(preset) => json!([asked, preset]),
    };
    job.model = model;
    if let Some(id) = body.id {
        job.id = JobId::new(id)?;
    }
    Ok(JobRequest { job, asked })
}

fn document(spec: &OfflineSpec) -> Result<Value, Problem> {
    serde_json::to_value(spec).map_err(|error| Problem::internal("the job", &error))
}

fn format(
    field: &'static str,
    name: Option<&str>,
    known: &[RecordFormat],
) -> Result<Option<RecordFormat>, Problem> {
    let Some(name) = name else {
        return Ok(None);
    };
    let of = RecordFormat::parse(name).filter(|of| known.contains(of));
    of.map(Some).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|of| of.as_str()).collect();
        let detail = format!("`{field}` is one of `{}`", names.join("`, `"));
        Problem::new(Code::InvalidRequest, detail).field(field)
    })
}

/// Refuses paths that break the naming rule, input that does not exist, and output that would become part of the input.
/// A path that ends in `/` means the files below it.
async fn check_paths(objects: &dyn ObjectStore, input: &str, output: &str) -> Result<(), Problem> {
    let folders = (input.strip_suffix('/'), output.strip_suffix('/'));
    let path = |text: &str, field: &'static str| {
        ObjectPath::parse(text).map_err(|error| Problem::from(error).field(field))
    };
    let from = path(folders.0.unwrap_or(input), "input")?;
    let to = path(folders.1.unwrap_or(output), "output")?;
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

/// The application and the model of a route; refuses a route to something that does not exist.
async fn owner(
    state: &ApiState,
    route: &Route,
) -> Result<(ApplicationId, Option<ModelId>), Problem> {
    let registry = state.registry();
    Ok(match route {
        Route::Application(id) => (registry.application(id).await?.id, None),
        Route::Model(id) => {
            let id = registry.resolve(id).await?;
            (registry.model(&id).await?.application, Some(id))
        }
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
            before: self.after.or(self.before),
            limit: self.limit,
        })
    }
}
