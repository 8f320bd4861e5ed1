//! `/v2`: the Open Inference Protocol, so that its clients can be used without a change.
//!
//! The model of the protocol may be a variant, a model or an application; they are tried in this order. Models have
//! versions (`/v1/models`); the others have the version `1` alone. Targets come as parameters (`slo_latency_ms`,
//! `slo_min_accuracy`, `slo_max_error`, `slo_min_relative_accuracy`, `slo_max_cost_per_1k_usd`, `slo_preset`,
//! `slo_policy`), as headers (`x-slo-latency-ms`, `x-slo-min-accuracy`, `x-slo-min-relative-accuracy`, `x-slo-preset`),
//! or as the protocol's own `timeout` (microseconds). No content type is required, because some clients send none.

use std::collections::BTreeSet;

use axum::{
    Json,
    extract::{Request, State},
    routing::get,
};
use serde::{Deserialize, Serialize};
use sextant_metadata::InstanceState;
use sextant_registry::{Model, ModelStatus};
use sextant_types::{ApplicationId, ModelId, Releases, Route, VariantId};
use tower_http::compression::{CompressionLayer, predicate::SizeAbove};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

// Modules of this package use the packages below it by these names.
use sextant_api_core::{
    ApiState,
    auth::{self, Caller},
    logging, metrics, query, regions,
};
use sextant_api_wire::{
    body, classification, codec, extract, footprint, json,
    problem::{self, Problem, ProblemBody},
    room,
    signature::{self, SpecBody},
    targets,
};

mod ask;
mod config;
mod demands;
pub mod grpc;
mod infer;
mod memory;
mod named;
mod raw;
mod repository;
mod selection;
mod settings;
mod statistics;
mod wire;

pub use named::ResolvedName;

/// Smaller answers are not compressed.
const LEAST_COMPRESSED_BYTES: u64 = 1024;

/// The version of things that have only one: variants, applications and pipelines.
const VERSION: &str = "1";

/// The platform of every model, whichever engine runs it.
const PLATFORM: &str = "onnx_onnxv1";

/// Extensions of the protocol that always work.
const EXTENSIONS: [&str; 7] = [
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "model_repository(unload_dependents)",
    "parameters",
    "statistics",
];

/// Extensions of the protocol that work here.
fn extensions(state: &ApiState) -> Vec<&'static str> {
    let mut extensions = EXTENSIONS.to_vec();
    if state.logging().is_ok() {
        extensions.push("logging");
    }
    if state.regions().are_allowed() {
        extensions.push("system_shared_memory");
    }
    extensions
}

/// The server, as the protocol describes it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ServerMetadata)]
pub struct ServerBody {
    /// `sextant`.
    name: &'static str,
    /// Version of the service.
    version: &'static str,
    /// Extensions of the protocol that work here.
    extensions: Vec<&'static str>,
}

/// Whether the server lives.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ServerLive)]
pub struct LiveBody {
    /// Always true.
    live: bool,
}

/// Whether the server or a model is ready.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ServerReady)]
pub struct ReadyBody {
    /// The model, when asked about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Always true; if it is not ready, the service answers 503.
    ready: bool,
}

/// A model, as the protocol describes it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ModelMetadata)]
pub struct ModelMetadataBody {
    /// The name that was asked for.
    name: String,
    /// The versions that are ready; `["1"]` of an application or a variant.
    versions: Vec<String>,
    /// `onnx_onnxv1`.
    platform: &'static str,
    /// In the graph's order.
    inputs: Vec<SpecBody>,
    /// In the graph's order.
    outputs: Vec<SpecBody>,
}

/// One line of the repository's index.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RepositoryEntry)]
pub struct IndexEntryBody {
    /// Name of an application, a model or a variant.
    name: String,
    /// The number of the version.
    version: String,
    /// `READY` or `UNAVAILABLE`.
    state: &'static str,
    /// Why it is unavailable.
    reason: String,
}

/// All routes of the protocol.
pub fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(server))
        // As in the protocol's own description.
        .route("/v2/", get(server))
        .routes(routes!(live))
        .routes(routes!(ready))
        .routes(routes!(model))
        .routes(routes!(model_version))
        .routes(routes!(model_ready))
        .routes(routes!(model_version_ready))
        .routes(routes!(config::config))
        .routes(routes!(config::config_version))
        .routes(routes!(statistics::all_statistics))
        .routes(routes!(statistics::statistics))
        .routes(routes!(statistics::statistics_version))
        .routes(routes!(index))
        .routes(routes!(repository::load))
        .routes(routes!(repository::unload))
        .routes(routes!(settings::log, settings::change_log))
        .routes(routes!(settings::trace, settings::change_trace))
        .routes(routes!(settings::model_trace, settings::change_model_trace))
        .routes(routes!(memory::all))
        .routes(routes!(memory::one))
        .routes(routes!(memory::register))
        .routes(routes!(memory::unregister))
        .routes(routes!(memory::unregister_all))
        .routes(routes!(memory::cuda))
        .routes(routes!(memory::unregister_cuda))
        .merge(inference())
}

/// Compresses an answer if the client accepts that and the answer is large enough.
fn inference() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(infer::infer))
        .routes(routes!(infer::infer_version))
        .layer(CompressionLayer::new().compress_when(SizeAbove::new(LEAST_COMPRESSED_BYTES)))
}

/// The server's name, version and extensions.
#[utoipa::path(get, operation_id = "v2_server", path = "/v2", tag = "open inference protocol",
    responses((status = 200, description = "The server", body = ServerBody)))]
pub async fn server(State(state): State<ApiState>) -> Json<ServerBody> {
    Json(ServerBody {
        name: "sextant",
        version: env!("CARGO_PKG_VERSION"),
        extensions: extensions(&state),
    })
}

/// Whether the server lives.
#[utoipa::path(get, operation_id = "v2_live", path = "/v2/health/live", tag = "open inference protocol",
    responses((status = 200, description = "It lives", body = LiveBody)))]
pub async fn live() -> Json<LiveBody> {
    Json(LiveBody { live: true })
}

/// Whether the server takes requests.
#[utoipa::path(get, operation_id = "v2_ready", path = "/v2/health/ready", tag = "open inference protocol",
    responses(
        (status = 200, description = "Requests are taken", body = ReadyBody),
        (status = 503, description = "Not now", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn ready(State(state): State<ApiState>) -> Result<Json<ReadyBody>, Problem> {
    state.check_ready()?;
    Ok(Json(ReadyBody {
        name: None,
        ready: true,
    }))
}

/// Inputs and outputs of an application, model or variant.
#[utoipa::path(get, operation_id = "v2_model", path = "/v2/models/{model}", tag = "open inference protocol",
    params(("model" = String, Path, description = "variant, model or application")),
    responses(
        (status = 200, description = "Inputs and outputs", body = ModelMetadataBody),
        (status = 404, description = "There is none", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn model(
    State(state): State<ApiState>,
    named: ResolvedName,
) -> Result<Json<ModelMetadataBody>, Problem> {
    Ok(Json(ModelMetadataBody {
        versions: named.version_names(&state).await?,
        name: named.name,
        platform: PLATFORM,
        inputs: named.signature.inputs.iter().map(SpecBody::from).collect(),
        outputs: named.signature.outputs.iter().map(SpecBody::from).collect(),
    }))
}

/// The same for a version.
#[utoipa::path(get, operation_id = "v2_model_version", path = "/v2/models/{model}/versions/{version}",
    tag = "open inference protocol",
    params(
        ("model" = String, Path, description = "variant, model or application"),
        ("version" = String, Path, description = "`1`"),
    ),
    responses((status = 200, description = "Inputs and outputs", body = ModelMetadataBody)))]
pub async fn model_version(
    state: State<ApiState>,
    named: ResolvedName,
) -> Result<Json<ModelMetadataBody>, Problem> {
    model(state, named).await
}

/// Whether queries can be answered: a variant is loaded, or a query causes one to be loaded.
#[utoipa::path(get, operation_id = "v2_model_ready", path = "/v2/models/{model}/ready", tag = "open inference protocol",
    params(("model" = String, Path, description = "variant, model or application")),
    responses(
        (status = 200, description = "It can be answered", body = ReadyBody),
        (status = 503, description = "No worker can load it now", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn model_ready(
    State(state): State<ApiState>,
    named: ResolvedName,
) -> Result<Json<ReadyBody>, Problem> {
    named.check_ready(&state)?;
    Ok(Json(ReadyBody {
        name: Some(named.name),
        ready: true,
    }))
}

/// The same for a version.
#[utoipa::path(get, operation_id = "v2_model_version_ready", path = "/v2/models/{model}/versions/{version}/ready",
    tag = "open inference protocol",
    params(
        ("model" = String, Path, description = "variant, model or application"),
        ("version" = String, Path, description = "`1`"),
    ),
    responses((status = 200, description = "It can be answered", body = ReadyBody)))]
pub async fn model_version_ready(
    state: State<ApiState>,
    named: ResolvedName,
) -> Result<Json<ReadyBody>, Problem> {
    model_ready(state, named).await
}

/// Which entries of the index the client asks for.
#[derive(Debug, Default, Deserialize)]
struct IndexBody {
    /// Only those that are loaded.
    #[serde(default, deserialize_with = "json::or_default")]
    ready: bool,
}

/// Lists every application and model with whether it can answer, then every variant with whether it is
/// loaded. The body may be empty.
#[utoipa::path(post, operation_id = "v2_index", path = "/v2/repository/index", tag = "open inference protocol",
    responses((status = 200, description = "All names that can be asked", body = Vec<IndexEntryBody>)))]
pub async fn index(
    State(state): State<ApiState>,
    caller: Caller,
    request: Request,
) -> Result<Json<Vec<IndexEntryBody>>, Problem> {
    let body = state.collect_document(request.into_body()).await?;
    let wanted = match body.trim_ascii().is_empty() {
        true => IndexBody::default(),
        false => json::owned(&body)?,
    };
    entries(&state, &caller, wanted.ready).await.map(Json)
}

/// Why something without a loaded variant cannot be asked.
const NOT_LOADABLE: &str = "nothing of it is loaded, and no worker can load it now";

/// The index as a caller sees it.
async fn entries(
    state: &ApiState,
    caller: &Caller,
    only_ready: bool,
) -> Result<Vec<IndexEntryBody>, Problem> {
    let snapshot = state.metadata().snapshot().await?;
    let serving = |id: &VariantId| {
        snapshot
            .instances
            .iter()
            .any(|instance| instance.key.variant == *id && instance.state.is_serving())
    };
    let seen = || {
        let all = snapshot.variants.iter();
        all.filter(|variant| caller.sees(&variant.application))
    };
    let applications: BTreeSet<_> = seen().map(|it| &it.application).collect();
    let released = snapshot.variants.iter();
    let releases = Releases::of(released.map(|it| (&it.application, &it.model, &it.release)));
    let models = versions(caller, &releases);
    // A name may be both a model and an application.
    let is_model = |name: &ApplicationId| models.iter().any(|it| it.0 == name.as_str());
    let applications = applications.iter().filter(|name| !is_model(name));
    let applications = applications.map(|name| {
        let route = Route::Application((*name).clone());
        let answers = state.dispatcher().is_ready(&route);
        IndexEntryBody::of(name.as_str(), answers, NOT_LOADABLE)
    });
    let versions = models.iter().map(|(name, version, route)| {
        let answers = state.dispatcher().is_ready(route);
        IndexEntryBody::of(name, answers, NOT_LOADABLE).version(*version)
    });
    let names = applications.chain(versions);
    let pipelines = state.pipelines().names();
    let pipelines = pipelines
        .iter()
        .filter(|name| caller.sees(name))
        .map(|name| {
            let answers = state
                .dispatcher()
                .is_ready(&Route::Application(name.clone()));
            IndexEntryBody::of(
                name.as_str(),
                answers,
                "one of its steps cannot be asked now",
            )
        });
    let registered = state.registry().models(None).await?;
    let failed = registered
        .iter()
        .filter(|model| caller.sees(&model.application))
        .filter(|model| !snapshot.variants.iter().any(|it| it.model == model.id))
        .filter_map(|model| Some((model, failure(model)?)))
        .map(|(model, reason)| {
            let entry = IndexEntryBody::of(model.name().as_str(), false, &reason);
            entry.version(model.release.version)
        });
    let inactive = InstanceState::Inactive.as_str();
    let variants = seen().map(|it| IndexEntryBody::of(it.id.as_str(), serving(&it.id), inactive));
    Ok(names
        .chain(pipelines)
        .chain(failed)
        .chain(variants)
        .filter(|entry| !only_ready || entry.state == "READY")
        .collect())
}

/// Each version of each model that the caller may see: its name, its number, and its route.
fn versions(caller: &Caller, releases: &Releases) -> Vec<(String, u32, Route)> {
    let lines = releases.lines().iter();
    let lines = lines.filter(|line| caller.sees(&line.application));
    let versions = lines.flat_map(|line| {
        // If another application has a model of the same name, the entry's name contains the application.
        let is_bare = releases.whole(&line.name) == Some(line);
        let name = match is_bare {
            true => line.name.to_string(),
            false => line.to_string(),
        };
        let of = |(number, (id, _)): (&u32, &(ModelId, _))| {
            let route = Route::Model(line.reference(id)?);
            Some((name.clone(), *number, route))
        };
        line.versions.iter().filter_map(of).collect::<Vec<_>>()
    });
    versions.collect()
}

/// Why a model whose registration has failed cannot be asked; `None` for other models.
fn failure(model: &Model) -> Option<String> {
    let why = match (model.status, &model.error) {
        (ModelStatus::Failed, Some(error)) => error.message.as_str(),
        (ModelStatus::Failed, None) => "nobody knows why",
        _ => return None,
    };
    Some(format!("its registration failed: {why}"))
}

impl IndexEntryBody {
    fn of(name: &str, is_ready: bool, reason: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: VERSION.to_owned(),
            state: if is_ready { "READY" } else { "UNAVAILABLE" },
            reason: if is_ready { "" } else { reason }.to_owned(),
        }
    }

    fn version(self, version: u32) -> Self {
        Self {
            version: version.to_string(),
            ..self
        }
    }
}
