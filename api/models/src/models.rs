//! `/v1/models`: registering and showing models.

use std::collections::{BTreeMap, HashMap};

use axum::{
    Json,
    body::Body,
    extract::{FromRequest, Multipart, Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sextant_registry::{JobFilter, JobKind, Model, ModelStatus, NO_LABELS, NewModel, OnceKey};
use sextant_types::{ApplicationId, Code, Constants, ModelId, Names, Stage};
use utoipa::ToSchema;

use crate::{
    ApiState,
    artefacts::FileContent,
    auth::Caller,
    extract::{Name, Params},
    feedback::online,
    jobs::{Wait, wait},
    once::IdempotencyKey,
    page,
    precondition::TaggedDocument,
    problem::{Problem, ProblemBody},
    upload,
};

mod archive;
mod files;
mod new_model;
mod parts;
mod registration;
pub mod versions;

use files::Memory;
pub use new_model::{NewModelBody, NewModelForm};
pub use parts::{DataFileBody, FailureBody, PaddingBody, RegistrantBody};
use registration::{register, registered};

/// A started registration.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Registration)]
pub struct RegistrationBody {
    /// The name by which variants, jobs and metrics call this version: the model's own name if it has no other version.
    model: String,
    /// The number of the version that it is, from 1.
    version: u32,
    /// The job that registers it: `GET /v1/jobs/{job}`.
    job: String,
    /// Its state: `queued`, `running`, `succeeded`, `failed` or `cancelled`.
    state: &'static str,
}

/// A model.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Model)]
pub struct ModelBody {
    /// Its name.
    name: String,
    /// The name by which variants, jobs and metrics call this version. It is the model's own name if that was free.
    id: String,
    /// The number of its version, from 1.
    version: u32,
    /// `candidate`, `shadow`, `canary`, `current` or `retired`; absent before it is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<&'static str>,
    /// The application it was registered under.
    application: String,
    /// `registering`, `ready` or `failed`.
    status: &'static str,
    /// Why its registration failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<FailureBody>,
    /// Variants that can be asked for.
    variants: usize,
    /// The job that registers it or has registered it.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    /// Size of the ONNX file, bytes.
    size_bytes: u64,
    /// SHA-256 of the ONNX file.
    digest: String,
    /// SHA-256 of the validation set.
    validation_digest: String,
    /// Files beside the ONNX file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    data: Vec<DataFileBody>,
    /// The chosen outputs, with the scored output first; absent if none were chosen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outputs: Vec<String>,
    /// Inputs that were declared to be the same in every query; queries do not have them.
    #[serde(skip_serializing_if = "Constants::is_empty")]
    constants: Constants,
    /// By input: the declared new name of an input of the file.
    #[serde(skip_serializing_if = "Names::is_empty")]
    input_names: Names,
    /// The same for outputs.
    #[serde(skip_serializing_if = "Names::is_empty")]
    output_names: Names,
    /// `none` if the validation set was declared to have no labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<&'static str>,
    /// The output on which accuracy is measured; only in the answer for a single model, once it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    scored_output: Option<String>,
    /// The classes for which its columns stand; only in the answer for a single model, if they are known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    classes: Vec<String>,
    /// How inputs are padded, if this was declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    padding: Option<PaddingBody>,
    /// The names of the variants that answer one query at a time, by reason. Only in the answer for a single
    /// model, if there are any.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    apart: BTreeMap<String, Vec<String>>,
    /// When it was registered, milliseconds since the Unix epoch.
    created_ms: u64,
    /// Who registered it; absent if it was registered before the service recorded this.
    #[serde(skip_serializing_if = "Option::is_none")]
    registered_by: Option<RegistrantBody>,
    /// What feedback says of it; only in the answer for a single model, if there is feedback.
    #[serde(skip_serializing_if = "Option::is_none")]
    online: Option<online::ModelBody>,
}

/// Models.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Models)]
pub struct ModelsBody {
    /// Sorted by name.
    models: Vec<ModelBody>,
    /// Where the next page begins: `?after=`.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Which models to list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelParams {
    application: Option<ApplicationId>,
    after: Option<String>,
    limit: Option<u32>,
}

/// Registers a model from a form with its files. With `wait_ms` or `Prefer: wait` the answer waits until
/// the registration has ended. With an `Idempotency-Key`, the same request sent again within a day gets
/// the same registration as its answer.
#[utoipa::path(post, operation_id = "models_create", path = "/v1/models", tag = "models",
    params(
        ("wait_ms" = Option<u64>, Query, description = "longest wait", maximum = 60000),
        ("prefer" = Option<String>, Header, description = "`wait=N`: the same in seconds"),
        ("idempotency-key" = Option<String>, Header,
            description = "a name of the request: the service does not carry out a request again that is sent again \
                under its name"),
    ),
    request_body(content = NewModelForm, content_type = "multipart/form-data"),
    responses(
        (status = 202, description = "The registration has begun", body = RegistrationBody,
            headers(("location" = String, description = "the job"))),
        (status = 200, description = "It has ended: the request waited for it, or the same content was registered \
            before", body = RegistrationBody),
        (status = 409, description = "The version or the idempotency key is taken by other content", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 507, description = "No room left", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn create(
    State(state): State<ApiState>,
    caller: Caller,
    patience: Wait,
    key: IdempotencyKey,
    request: Request,
) -> Result<Response, Problem> {
    if !is_form(request.headers()) {
        let detail = "a model is sent as a form (`multipart/form-data`); files of the artefact store are \
             registered by `POST /v1/registrations`";
        return Err(Problem::new(Code::InvalidRequest, detail));
    }
    let (parts, body) = request.into_parts();
    let (body, progress) = upload::parsed(upload::paced(body, state.limits()));
    let form = Multipart::from_request(Request::from_parts(parts, body), &state)
        .await
        .map_err(|error| Problem::new(Code::InvalidRequest, error.body_text()))?;
    let mut memory = Memory::of(&state, progress);
    let model = files::from_form(&state, &caller, (form, &mut memory)).await?;
    begin(
        &state,
        &model,
        key.of(&caller, "models_create", &asked(&model)),
        &patience,
    )
    .await
}

/// Registers a model from files in the artefact store. With `wait_ms` or `Prefer: wait` the answer waits
/// until the registration has ended. With an `Idempotency-Key`, the same request sent again within a day
/// gets the same registration as its answer.
#[utoipa::path(post, operation_id = "models_create_from_artefacts", path = "/v1/registrations",
    tag = "models",
    params(
        ("wait_ms" = Option<u64>, Query, description = "longest wait", maximum = 60000),
        ("prefer" = Option<String>, Header, description = "`wait=N`: the same in seconds"),
        ("idempotency-key" = Option<String>, Header,
            description = "a name of the request: the service does not carry out a request again that is sent again \
                under its name"),
    ),
    request_body = NewModelBody,
    responses(
        (status = 202, description = "The registration has begun", body = RegistrationBody,
            headers(("location" = String, description = "the job"))),
        (status = 200, description = "It has ended: the request waited for it, or the same content was registered \
            before", body = RegistrationBody),
        (status = 409, description = "The version or the idempotency key is taken by other content", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 507, description = "No room left", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn create_from_artefacts(
    State(state): State<ApiState>,
    caller: Caller,
    patience: Wait,
    key: IdempotencyKey,
    request: Request,
) -> Result<Response, Problem> {
    let model = files::from_store(&state, &caller, request).await?;
    begin(
        &state,
        &model,
        key.of(&caller, "models_create", &asked(&model)),
        &patience,
    )
    .await
}

/// Begins the registration of a model whose files are stored.
async fn begin(
    state: &ApiState,
    model: &NewModel,
    once: Option<OnceKey>,
    patience: &Wait,
) -> Result<Response, Problem> {
    let registration = register(state, model, once.as_ref()).await;
    if registration.is_err() {
        let stored: Vec<_> = model.files().collect();
        state.storage().give_back(&stored).await;
    }
    let registration = registration?;
    state.refresh_model(&registration.model.id).await?;
    let job = wait(state, &registration.job.id, patience).await?;
    let mut response = registered(&registration, &job);
    patience.tell(&mut response);
    Ok(response)
}

/// The identity of a registration's request: equal for equal content.
fn asked(model: &NewModel) -> Value {
    let labelled = json!([
        model.name.as_str(),
        model.application.as_str(),
        model.digest,
        model.validation,
        model.padding,
        model.data,
        model.outputs,
        model.classes,
        model.constants,
    ]);
    let named = match model.names.is_empty() {
        true => labelled,
        false => json!([labelled, model.names]),
    };
    let placed = match (model.version, model.current) {
        (None, false) => named,
        place => json!([named, place]),
    };
    match model.unlabelled {
        true => json!([placed, NO_LABELS]),
        false => placed,
    }
}

/// Repeats a registration that failed, with the files that were sent then. If the registration is under
/// way or has succeeded, the answer is its present state.
#[utoipa::path(post, operation_id = "models_retry", path = "/v1/models/{model}/registration", tag = "models",
    params(
        ("model" = String, Path, description = "its name"),
        ("wait_ms" = Option<u64>, Query, description = "longest wait", maximum = 60000),
        ("prefer" = Option<String>, Header, description = "`wait=N`: the same in seconds"),
    ),
    responses(
        (status = 202, description = "The registration has begun, or is under way", body = RegistrationBody,
            headers(("location" = String, description = "the job"))),
        (status = 200, description = "It has ended", body = RegistrationBody),
        (status = 404, description = "There is none", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn retry(
    State(state): State<ApiState>,
    Name(name): Name<ModelId>,
    patience: Wait,
) -> Result<Response, Problem> {
    let model = state.registry().resolve(&name).await?;
    let model = state.registry().model(&model).await?;
    let model = NewModel {
        name: model.name().clone(),
        version: Some(model.release.version),
        current: model.release.stage == Stage::Current,
        application: model.application,
        digest: model.digest,
        validation: model.validation,
        size_bytes: model.size_bytes,
        padding: model.padding,
        data: model.data,
        outputs: model.outputs,
        constants: model.constants,
        classes: model.classes,
        names: model.names,
        unlabelled: model.unlabelled,
        // A caller that repeats a registration does not replace the one that sent the model.
        registered_by: model.registered_by,
    };
    let registration = register(&state, &model, None).await?;
    state.refresh_model(&registration.model.id).await?;
    let job = wait(&state, &registration.job.id, &patience).await?;
    let mut response = registered(&registration, &job);
    patience.tell(&mut response);
    Ok(response)
}

/// All models, or those of one application.
#[utoipa::path(get, operation_id = "models_list", path = "/v1/models", tag = "models",
    params(
        ("application" = Option<String>, Query, description = "only of this application"),
        ("after" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<u32>, Query, description = "most models; all if left out", minimum = 1, maximum = 1000),
    ),
    responses((status = 200, description = "Sorted by name", body = ModelsBody)))]
pub async fn list(
    State(state): State<ApiState>,
    caller: Caller,
    Params(params): Params<ModelParams>,
) -> Result<Json<ModelsBody>, Problem> {
    let found = state.registry().models(params.application.as_ref()).await?;
    let variants = state.metadata().variants().await?;
    let mut counts: HashMap<&ModelId, usize> = HashMap::new();
    for variant in &variants {
        *counts.entry(&variant.model).or_default() += 1;
    }
    let seen = found
        .into_iter()
        .filter(|model| caller.sees(&model.application));
    let part = (params.after.as_deref(), params.limit);
    let page = page::cut(seen, |model| model.id.to_string(), part)?;
    let mut models = Vec::with_capacity(page.items.len());
    for model in page.items {
        let variants = counts.get(&model.id).copied().unwrap_or_default();
        models.push(describe(&state, model, variants).await?);
    }
    let next = page.next;
    Ok(Json(ModelsBody { models, next }))
}

/// One model.
#[utoipa::path(get, operation_id = "models_get", path = "/v1/models/{model}", tag = "models",
    params(("model" = String, Path, description = "its name, of its current version, or `name@version`")),
    responses(
        (status = 200, description = "The model", body = ModelBody,
            headers(("etag" = String, description = "changes when the model does"))),
        (status = 304, description = "`If-None-Match` names the present `ETag`"),
        (status = 404, description = "There is none", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn get(
    State(state): State<ApiState>,
    Name(name): Name<ModelId>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let mut body = read(&state, &name).await?;
    // The tag covers the model alone: feedback does not change it.
    let tag = TaggedDocument::new(&body).tag();
    let application = ApplicationId::new(&body.application)?;
    // By the model's id, even if the request named it otherwise: the name of a model with versions is the id of its
    // first version.
    let id = ModelId::new(&body.id)?;
    body.online = online::of_model(&state, &application, &id).await?;
    Ok(TaggedDocument::new(&body).tagged(tag).answer(&headers))
}

async fn read(state: &ApiState, name: &ModelId) -> Result<ModelBody, Problem> {
    let name = &state.registry().resolve(name).await?;
    let model = state.registry().model(name).await?;
    let scored = state.registry().scored_output(name).await?;
    let variants = state.metadata().variants().await?;
    let variants = variants.iter().filter(|variant| variant.model == *name);
    let variants: Vec<_> = variants.collect();
    let mut body = describe(state, model, variants.len()).await?;
    for variant in variants {
        if let Some(reason) = variant.why_apart() {
            let of_reason = body.apart.entry(reason.to_owned()).or_default();
            of_reason.push(variant.id.to_string());
        }
    }
    if let Some(scored) = scored {
        body.scored_output = Some(scored.output);
        body.classes = scored.classes;
    }
    Ok(body)
}

/// The file from which a model was registered: ONNX, or a manifest of a remote runtime.
#[utoipa::path(get, operation_id = "models_file", path = "/v1/models/{model}/file", tag = "models",
    params(("model" = String, Path, description = "its name, of its current version, or `name@version`")),
    responses(
        (status = 200, description = "The file", body = inline(FileContent),
            content_type = "application/octet-stream"),
        (status = 404, description = "There is none", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn file(
    State(state): State<ApiState>,
    Name(name): Name<ModelId>,
) -> Result<Response, Problem> {
    let model = state.registry().resolve(&name).await?;
    let model = state.registry().model(&model).await?;
    let size = state.objects().stat_blob(&model.digest).await?;
    let size = size.ok_or_else(|| sextant_objects::Error::NotFound {
        object: model.digest.to_string(),
    })?;
    let body = match upload::is_one_piece(size) {
        // The file is read and checked as a whole: a damaged one is reported with a code.
        true => Body::from(state.objects().get_blob(&model.digest).await?),
        // The file may be larger than the memory that one request should take.
        false => Body::from_stream(upload::stored_blob(
            state.objects().clone(),
            model.digest,
            size,
        )),
    };
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, size.to_string()),
    ];
    Ok((headers, body).into_response())
}

/// Deletes a model and retires its variants. Queries in flight are still answered. If a deletion was
/// interrupted, send it again to complete it.
#[utoipa::path(delete, operation_id = "models_delete", path = "/v1/models/{model}", tag = "models",
    params(
        ("model" = String, Path, description = "its name"),
        ("if-match" = Option<String>, Header, description = "only if this is still its `ETag`"),
    ),
    responses(
        (status = 204, description = "Deleted"),
        (status = 409, description = "It has unfinished jobs", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 412, description = "It has changed since", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn delete(
    State(state): State<ApiState>,
    Name(name): Name<ModelId>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    if headers.contains_key(header::IF_MATCH) {
        TaggedDocument::new(&read(&state, &name).await?).check(&headers)?;
    }
    // If the registry does not have the model, its deletion may have been interrupted.
    let name = match state.registry().resolve(&name).await {
        Err(sextant_registry::Error::NotFound { .. }) => name,
        resolved => resolved?,
    };
    let retired = state.publisher().retire_model(&name).await;
    state.refresh_model(&name).await?;
    retired?;
    Ok(StatusCode::NO_CONTENT)
}

fn is_form(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.starts_with("multipart/form-data"))
}

async fn describe(state: &ApiState, model: Model, variants: usize) -> Result<ModelBody, Problem> {
    let filter = JobFilter {
        kind: Some(JobKind::Register),
        model: Some(model.id.clone()),
        limit: Some(1),
        ..JobFilter::default()
    };
    let job = state.registry().jobs(&filter).await?.pop();
    Ok(ModelBody {
        name: model.name().to_string(),
        id: model.id.to_string(),
        version: model.release.version,
        stage: (model.status == ModelStatus::Ready).then_some(model.release.stage.as_str()),
        application: model.application.to_string(),
        status: model.status.as_str(),
        error: model.error.map(FailureBody::from),
        variants,
        job: job.map(|job| job.id.to_string()),
        size_bytes: model.size_bytes,
        digest: model.digest.to_string(),
        validation_digest: model.validation.to_string(),
        data: model.data.into_iter().map(DataFileBody::from).collect(),
        outputs: model.outputs,
        constants: model.constants,
        input_names: model.names.inputs,
        output_names: model.names.outputs,
        scored_output: None,
        labels: model.unlabelled.then_some(NO_LABELS),
        classes: Vec::new(),
        padding: model.padding.map(|padding| PaddingBody {
            mask: padding.mask,
            pad: padding.values,
        }),
        apart: BTreeMap::new(),
        created_ms: model.created_ms,
        registered_by: model.registered_by.map(RegistrantBody::from),
        online: None,
    })
}
