//! `/v1/pipelines`: applications that several steps answer.

use std::{collections::BTreeMap, convert::Infallible};

use axum::{
    Json,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sextant_api_core::pipelines::{
    load, measure,
    read::{self, Files},
    refused,
    whole::{self, MeasuredBody, ScaleBody},
};
use sextant_pipeline::{Definition, Graph, LoadedPipeline};
use sextant_registry::{Application, KeyScope, NewPipeline, Pipeline};
use sextant_types::{ApplicationId, Code, Digest, Metric, Targets, time::unix_ms};
use sha2::{Digest as _, Sha256};
use utoipa::ToSchema;

use crate::{
    ApiState,
    applications::{check_resources, next_metric},
    auth::Caller,
    extract::{Name, Params},
    page::PageParams,
    precondition::TaggedDocument,
    problem::{Problem, ProblemBody},
    signature::SignatureBody,
};

mod ask;
mod schema;

use schema::{DefinitionBody, DefinitionChangeBody};

pub use ask::{__path_ask, ask};

/// Why this front end does not know a registered pipeline.
const UNREAD: &str = "this front end has not read it yet";

/// A pipeline.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Pipeline)]
pub struct PipelineBody {
    /// Its name, and that of the application that it is.
    name: String,
    /// The version that answers, from 1: each change makes one.
    version: u32,
    /// The definition as it was sent. `GET /docs/pipeline-schema.json` describes its form.
    #[schema(inline = false, value_type = DefinitionBody)]
    definition: Value,
    /// The files that its steps need, as they were when it was registered: SHA-256 digests by paths.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    files: BTreeMap<String, String>,
    /// What it takes and gives; absent while it cannot run.
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<SignatureBody>,
    /// Why it cannot run; absent if it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    unusable: Option<String>,
    /// The measurements of the pipeline as a whole; absent if its definition has no `validation`.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<MeasuredBody>,
    /// How often its steps run, and on how many rows; none before its first query here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scales: Vec<ScaleBody>,
    /// When this version was made, milliseconds since the Unix epoch.
    created_ms: u64,
}

/// Pipelines.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Pipelines)]
pub struct PipelinesBody {
    /// Sorted by name.
    pipelines: Vec<PipelineBody>,
    /// Where the next page begins: `?after=`.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// The parameters of a registration.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateParams {
    #[serde(default)]
    dry_run: bool,
}

/// The form of a graph.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphParams {
    #[serde(default, rename = "as")]
    form: GraphForm,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum GraphForm {
    Svg,
    #[default]
    Text,
}

/// Registers a pipeline: one document in JSON or, with `content-type: application/yaml`, in YAML, as
/// `GET /docs/pipeline-schema.json` describes it. The service checks it against what is registered.
/// Sending the same definition again is no error.
///
/// A registration creates the application of its name; queries ask it like any other, over every protocol.
#[utoipa::path(post, operation_id = "pipelines_create", path = "/v1/pipelines", tag = "pipelines",
    params(("dry_run" = Option<bool>, Query, description = "check it, and register nothing")),
    request_body = DefinitionBody,
    responses(
        (status = 201, description = "Registered", body = PipelineBody),
        (status = 200, description = "Registered already, or `dry_run` found no error", body = PipelineBody),
        (status = 409, description = "The name is taken", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn create(
    State(state): State<ApiState>,
    caller: Caller,
    Params(params): Params<CreateParams>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let bytes = state.collect_document(body).await?;
    let document = read::document(&parts.headers, &bytes)?;
    let files = Files {
        caller: &caller,
        known: None,
    };
    let (graph, new, metric) = checked(&state, files, document, !params.dry_run).await?;
    let application = application(&graph.definition, metric)?;
    if params.dry_run {
        let checked = Pipeline {
            application: application.id,
            version: 0,
            definition: new.definition,
            files: new.files,
            created_ms: unix_ms(),
        };
        let body = PipelineBody::new(checked, Ok(&graph));
        return Ok((StatusCode::OK, Json(body)).into_response());
    }
    let (pipeline, created) = state
        .registry()
        .create_pipeline(&application, &new, unix_ms())
        .await?;
    state.refresh_pipeline(&pipeline.application).await?;
    measure::begin(&state, &pipeline.application).await?;
    let status = if created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let location = format!("/v1/pipelines/{}", pipeline.application);
    let body = Json(with_measure(&state, pipeline));
    Ok((status, [(header::LOCATION, location)], body).into_response())
}

/// All pipelines.
#[utoipa::path(get, operation_id = "pipelines_list", path = "/v1/pipelines", tag = "pipelines",
    params(
        ("after" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<u32>, Query, description = "most pipelines; all if left out", minimum = 1, maximum = 1000),
    ),
    responses((status = 200, description = "Sorted by name", body = PipelinesBody)))]
pub async fn list(
    State(state): State<ApiState>,
    caller: Caller,
    Params(params): Params<PageParams>,
) -> Result<Json<PipelinesBody>, Problem> {
    let pipelines = state.registry().pipelines().await?;
    let seen = pipelines
        .into_iter()
        .filter(|it| caller.sees(&it.application));
    let page = params.cut(seen, |it| it.application.to_string())?;
    let pipelines = page.items.into_iter();
    let pipelines = pipelines.map(|it| with_measure(&state, it)).collect();
    Ok(Json(PipelinesBody {
        pipelines,
        next: page.next,
    }))
}

/// One pipeline.
#[utoipa::path(get, operation_id = "pipelines_get", path = "/v1/pipelines/{pipeline}", tag = "pipelines",
    params(("pipeline" = String, Path, description = "its name")),
    responses(
        (status = 200, description = "The pipeline", body = PipelineBody,
            headers(("etag" = String, description = "changes when the pipeline does"))),
        (status = 304, description = "`If-None-Match` names the present `ETag`"),
        (status = 404, description = "There is none", body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub async fn get(
    State(state): State<ApiState>,
    Name(name): Name<ApplicationId>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let pipeline = state.registry().pipeline(&name).await?;
    Ok(shown_whole(&state, pipeline).answer(&headers))
}

/// Changes a pipeline: the keys in the body replace those of the definition, `null` removes a key (RFC 7396). The
/// service checks the result, which becomes the next version. A query ends on the version on which it began.
#[utoipa::path(patch, operation_id = "pipelines_change", path = "/v1/pipelines/{pipeline}", tag = "pipelines",
    params(
        ("pipeline" = String, Path, description = "its name"),
        ("if-match" = Option<String>, Header, description = "only if this is still its `ETag`"),
    ),
    request_body = DefinitionChangeBody,
    responses(
        (status = 200, description = "Its present state", body = PipelineBody,
            headers(("etag" = String, description = "changes when the pipeline does"))),
        (status = 404, description = "There is none", body = ProblemBody, content_type = "application/problem+json"),
        (status = 412, description = "It has changed since", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn change(
    State(state): State<ApiState>,
    caller: Caller,
    Name(name): Name<ApplicationId>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let bytes = state.collect_document(body).await?;
    let known = state.registry().pipeline(&name).await?;
    TaggedDocument::new(&shown(&state, known.clone())).check(&parts.headers)?;
    let mut document = known.definition.clone();
    read::merge(&mut document, read::document(&parts.headers, &bytes)?);
    let files = Files {
        caller: &caller,
        known: Some(&known),
    };
    let (graph, new, metric) = checked(&state, files, document, true).await?;
    keeps_name(&graph, &name)?;
    let changed = next_version(&state, &known, new, metric).await?;
    Ok(shown_whole(&state, changed).with(StatusCode::OK))
}

/// Replaces a pipeline by another definition, its next version, or registers the pipeline if there is
/// none. A query ends on the version on which it began.
#[utoipa::path(put, operation_id = "pipelines_replace", path = "/v1/pipelines/{pipeline}", tag = "pipelines",
    params(
        ("pipeline" = String, Path, description = "its name"),
        ("if-match" = Option<String>, Header, description = "only if this is still its `ETag`"),
    ),
    request_body = DefinitionBody,
    responses(
        (status = 200, description = "Its present state", body = PipelineBody),
        (status = 201, description = "Registered", body = PipelineBody),
        (status = 412, description = "It has changed since", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn replace(
    State(state): State<ApiState>,
    caller: Caller,
    Name(name): Name<ApplicationId>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let bytes = state.collect_document(body).await?;
    let document = read::document(&parts.headers, &bytes)?;
    let known = match state.registry().pipeline(&name).await {
        Ok(known) => Some(known),
        Err(sextant_registry::Error::NotFound { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    if known.is_none() && parts.headers.contains_key(header::IF_MATCH) {
        let detail = format!("there is no pipeline `{name}` that `If-Match` could name");
        return Err(Problem::new(Code::PreconditionFailed, detail).field("if-match"));
    }
    let files = Files {
        caller: &caller,
        known: known.as_ref(),
    };
    let (graph, new, metric) = checked(&state, files, document, true).await?;
    keeps_name(&graph, &name)?;
    let Some(known) = known else {
        let application = application(&graph.definition, metric)?;
        let (made, _) = state
            .registry()
            .create_pipeline(&application, &new, unix_ms())
            .await?;
        state.refresh_pipeline(&name).await?;
        measure::begin(&state, &name).await?;
        let body = Json(with_measure(&state, made));
        return Ok((StatusCode::CREATED, body).into_response());
    };
    TaggedDocument::new(&shown(&state, known.clone())).check(&parts.headers)?;
    let changed = next_version(&state, &known, new, metric).await?;
    Ok(shown_whole(&state, changed).with(StatusCode::OK))
}

/// Shows the graph of a pipeline for people: one step in each line, or with `as=svg` a picture (`image/svg+xml`).
#[utoipa::path(get, operation_id = "pipelines_graph", path = "/v1/pipelines/{pipeline}/graph", tag = "pipelines",
    params(
        ("pipeline" = String, Path, description = "its name"),
        ("as" = Option<String>, Query, description = "`text` or `svg`"),
    ),
    responses(
        (status = 200, description = "The graph", body = String, content_type = "text/plain"),
        (status = 404, description = "There is none", body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub async fn graph(
    State(state): State<ApiState>,
    Name(name): Name<ApplicationId>,
    Params(params): Params<GraphParams>,
) -> Result<Response, Problem> {
    state.registry().pipeline(&name).await?;
    let loaded = state.pipelines().get(&name);
    let graph = loaded.as_deref().map_or(Err(UNREAD), LoadedPipeline::graph);
    let unusable =
        |why: &str| Problem::new(Code::Unavailable, format!("the pipeline cannot run: {why}"));
    let graph = graph.map_err(|why| unusable(why).retry_after_ms(1000))?;
    let (kind, body) = match params.form {
        GraphForm::Svg => ("image/svg+xml", graph.svg()),
        GraphForm::Text => ("text/plain; charset=utf-8", graph.text()),
    };
    Ok(([(header::CONTENT_TYPE, kind)], body).into_response())
}

/// Deletes a pipeline, all its versions and the application of its name.
#[utoipa::path(delete, operation_id = "pipelines_delete", path = "/v1/pipelines/{pipeline}", tag = "pipelines",
    params(
        ("pipeline" = String, Path, description = "its name"),
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
    caller: Caller,
    Name(name): Name<ApplicationId>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let application = state.registry().application(&name).await?;
    check_resources(&caller, &application, "take back")?;
    let check =
        |known: &Pipeline| TaggedDocument::new(&shown(&state, known.clone())).check(&headers);
    let deleted = state.registry().delete_pipeline(&name, check, unix_ms());
    deleted.await??;
    state.refresh_pipeline(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The pipelines that a caller may see, for the page.
pub async fn drawn(
    state: &ApiState,
    caller: &Caller,
) -> Result<Vec<sextant_pages::Pipeline>, Problem> {
    let pipelines = state.registry().pipelines().await?.into_iter();
    let seen = pipelines.filter(|it| caller.sees(&it.application));
    let drawn = seen.map(|pipeline| {
        let loaded = state.pipelines().get(&pipeline.application);
        let graph = loaded.as_deref().map_or(Err(UNREAD), LoadedPipeline::graph);
        sextant_pages::Pipeline {
            name: pipeline.application.to_string(),
            version: pipeline.version,
            graph: graph.map(Graph::figure).map_err(str::to_owned),
        }
    });
    Ok(drawn.collect())
}

/// The JSON Schema of definitions.
#[utoipa::path(get, operation_id = "pipeline_schema", path = "/docs/pipeline-schema.json", tag = "documentation",
    responses((status = 200, description = "A JSON Schema, draft 2020-12", body = String,
        content_type = "application/schema+json")))]
pub async fn schema() -> impl IntoResponse {
    let kind = [(header::CONTENT_TYPE, "application/schema+json")];
    (kind, sextant_pipeline::schema().to_string())
}

fn keeps_name(graph: &Graph, name: &ApplicationId) -> Result<(), Problem> {
    if graph.definition.name == name.as_str() {
        return Ok(());
    }
    let detail = "a pipeline keeps its name: register another one under the other name";
    Err(Problem::new(Code::InvalidPipeline, detail).field("name"))
}

/// Registers the next version of a pipeline, unless another caller has registered one since `known` was read.
async fn next_version(
    state: &ApiState,
    known: &Pipeline,
    new: NewPipeline,
    metric: Option<Metric>,
) -> Result<Pipeline, Problem> {
    let metric = next_metric(state, &known.application, metric).await?;
    let changed = state.registry().change_pipeline(
        &known.application,
        |latest| match latest == known {
            true => Ok(new),
            false => Err(()),
        },
        unix_ms(),
    );
    let changed = changed.await?.map_err(|()| {
        let detail =
            "somebody else has changed it meanwhile: read it again, and see what has changed";
        Problem::new(Code::PreconditionFailed, detail)
    })?;
    let renamed = |application| {
        Ok::<_, Infallible>(Application {
            metric,
            ..application
        })
    };
    let renamed = state
        .registry()
        .change_application(&known.application, renamed);
    let Ok(_) = renamed.await?;
    state.refresh_pipeline(&known.application).await?;
    measure::begin(state, &known.application).await?;
    Ok(changed)
}

/// The graph of a definition, checked against what is registered and what the caller may ask; the pipeline to be
/// registered; and its metric, if it is measured. With `keep`, its files are stored as blobs, which cannot change.
async fn checked(
    state: &ApiState,
    of_store: Files<'_>,
    document: Value,
    keep: bool,
) -> Result<(Graph, NewPipeline, Option<Metric>), Problem> {
    let definition: Definition = serde_json::from_value(document.clone()).map_err(|error| {
        Problem::new(
            Code::InvalidPipeline,
            format!("the definition cannot be read: {error}"),
        )
    })?;
    // The errors of the checks tell of what the steps ask.
    for route in definition.routes() {
        state.check_owner(of_store.caller, &route).await?;
    }
    load::check_nesting(state, &definition).await?;
    let (mut files, mut digests) = (BTreeMap::new(), BTreeMap::new());
    for path in definition.files() {
        let bytes = of_store.of_step(state, &path).await?;
        let digest = match keep {
            true => state.objects().put_blob(bytes.clone()).await?,
            false => Digest::from_bytes(Sha256::digest(&bytes).into()),
        };
        digests.insert(path.clone(), digest);
        files.insert(path, bytes);
    }
    let graph = load::graph(state, definition, &files).map_err(|invalid| refused(&invalid))?;
    check_functions(state, of_store.caller, &graph).await?;
    let whole = whole::checked(state, of_store, &graph, keep).await?;
    digests.extend(whole.set.map(|set| (whole::SET.to_owned(), set)));
    let new = NewPipeline {
        definition: document,
        files: digests,
    };
    Ok((graph, new, whole.metric))
}

/// Refuses a caller without the scope `python`, and functions that cannot be called: their files are run to find out.
async fn check_functions(state: &ApiState, caller: &Caller, graph: &Graph) -> Result<(), Problem> {
    let python = state.pipelines().python();
    for (step, function) in graph.functions() {
        if !caller.has(KeyScope::Python) {
            let detail = format!(
                "step `{step}` is in Python, and the key has not the scope `python`: ask an administrator for one that has"
            );
            return Err(Problem::new(Code::Forbidden, detail));
        }
        let checked = python.check(function).await;
        checked.map_err(|error| {
            let detail = format!("step `{step}`: `python` cannot run: {}", error.message);
            Problem::new(Code::InvalidPipeline, detail).field("python")
        })?;
    }
    Ok(())
}

/// The application of a pipeline.
fn application(definition: &Definition, metric: Option<Metric>) -> Result<Application, Problem> {
    Ok(Application {
        id: definition
            .application()
            .map_err(|invalid| refused(&invalid))?,
        metric: metric.unwrap_or(Metric::Exact),
        description: definition.description.clone(),
        default_targets: Targets::default(),
        signature: None,
        resources: sextant_types::Resources::default(),
        presets: BTreeMap::new(),
        feedback: None,
    })
}

/// A pipeline with its measurements. The tag does not cover the measurements, so that a new measurement fails nobody's
/// change.
fn shown_whole(state: &ApiState, pipeline: Pipeline) -> TaggedDocument {
    let tag = TaggedDocument::new(&shown(state, pipeline.clone())).tag();
    TaggedDocument::new(&with_measure(state, pipeline)).tagged(tag)
}

fn with_measure(state: &ApiState, pipeline: Pipeline) -> PipelineBody {
    PipelineBody {
        measured: MeasuredBody::of(state, &pipeline),
        scales: whole::scales(state, &pipeline.application),
        ..shown(state, pipeline)
    }
}

/// A pipeline as this front end has loaded it.
fn shown(state: &ApiState, pipeline: Pipeline) -> PipelineBody {
    let loaded = state.pipelines().get(&pipeline.application);
    let loaded = loaded.filter(|loaded| load::is_of(loaded, &pipeline));
    let graph = loaded.as_deref().map_or(Err(UNREAD), LoadedPipeline::graph);
    PipelineBody::new(pipeline, graph)
}

// === impl PipelineBody ===

impl PipelineBody {
    /// A pipeline with its graph, or with the reason why it cannot run.
    fn new(pipeline: Pipeline, graph: Result<&Graph, &str>) -> Self {
        let files = pipeline.files.into_iter();
        Self {
            name: pipeline.application.to_string(),
            version: pipeline.version,
            files: files
                .map(|(path, digest)| (path, digest.to_string()))
                .collect(),
            definition: pipeline.definition,
            signature: graph
                .ok()
                .map(|graph| SignatureBody::from(&graph.signature)),
            unusable: graph.err().map(str::to_owned),
            measured: None,
            scales: Vec::new(),
            created_ms: pipeline.created_ms,
        }
    }
}
