//! Measured variants, with the state of their instances.

use std::collections::{BTreeMap, BTreeSet};

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use sextant_api_core::pipelines::whole::{CompositeBody, composites};
use sextant_metadata::{AgreementRow, DeviceTypes, Instance};
use sextant_registry::{FailedProfile, Model};
use sextant_types::{
    ApplicationId, DeviceTypeName, ModelId, Releases, ShapeProfile, Slowdowns, Stage, Variant,
    VariantId, time::unix_ms,
};
use utoipa::ToSchema;

use crate::{
    ApiState,
    auth::Caller,
    cluster::InstanceBody,
    extract::{Name, Params},
    page,
    problem::{Problem, ProblemBody},
};

mod figures;

use figures::{AccuracyBody, BatchLatencyBody, ConcurrentBody};

/// A measured variant.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Variant)]
pub struct VariantBody {
    /// `{model}-{engine}-{precision}-{optimization}-t{threads}-b{max_batch}`.
    name: String,
    /// The model from which it was made.
    model: String,
    /// The application to which it belongs.
    application: String,
    /// The stage of its model among the versions of one name: `candidate`, `shadow`, `canary`, `current` or
    /// `retired`; absent before the model is published. Only variants of current versions answer queries that
    /// name the application, besides the share that a canary gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<&'static str>,
    /// Which engine runs it.
    engine: String,
    /// `fp32`, `tf32`, `fp16`, `bf16`, `int8d`, `int8s`, `int8w` or `int4w`.
    precision: &'static str,
    /// `basic` or `all`.
    optimization: &'static str,
    /// Intra-op threads.
    threads: u16,
    /// Most rows in one batch.
    max_batch: u16,
    /// Why it answers one query at a time; absent if queries share its batches. A query of several rows is
    /// answered in one run in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    apart: Option<String>,
    /// Measured on the validation set.
    accuracy: AccuracyBody,
    /// How often it agreed on real queries with the file as it was uploaded, since a dispatcher began to
    /// lead; absent before any query was compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    agreement: Option<AgreementBody>,
    /// Latency by batch size.
    latency: Vec<BatchLatencyBody>,
    /// If inputs have dynamic dimensions besides the batch: their sizes while `latency` was measured, in the
    /// order of the inputs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dimensions: Vec<u64>,
    /// What was measured at other sizes, in increasing order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sizes: Vec<SizeBody>,
    /// The greatest length that the engine takes, if it refused a longer one.
    #[serde(skip_serializing_if = "Option::is_none")]
    longest: Option<u64>,
    /// Whether queries of different lengths share batches: they are padded.
    padded: bool,
    /// Latency of single queries while several run side by side, each on its own threads; empty if
    /// `dispatcher.schedule.parallelism` does not need it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    concurrent: Vec<ConcurrentBody>,
    /// Slope of l(b) = alpha * b + beta, fitted to the medians, milliseconds per row.
    alpha_ms: f64,
    /// Its intercept, milliseconds.
    beta_ms: f64,
    /// Root mean square of the fit's residuals, milliseconds.
    residual_ms: f64,
    /// Time to load, milliseconds.
    load_ms: f64,
    /// Time of the first load on a device, milliseconds; absent if every load takes as long as the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_load_ms: Option<f64>,
    /// Greatest rows per second.
    saturation_rps: f64,
    /// Peak additional memory while running the largest batch, bytes.
    peak_memory_bytes: u64,
    /// Bytes of the weights, held once for all variants of the same artefact.
    weights_bytes: u64,
    /// Price of the slots that a batch occupies where it was registered, US dollars an hour.
    cost_per_hour_usd: f64,
    /// Price of a thousand rows at saturation there, US dollars.
    cost_per_1k_usd: f64,
    /// The type of device on which it was registered and the figures above were measured; absent if an
    /// earlier version of Sextant registered it.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured_on: Option<String>,
    /// By type of device: the profile where it was measured, and the estimates for the other types of the
    /// fleet that can run it. Sorted by type.
    profiles: Vec<ProfileBody>,
    /// A variant that runs on the same devices and is at least as good there in everything; `null` for a
    /// variant on the frontier.
    dominated_by: Option<String>,
    /// SHA-256 of the ONNX file that the engine loads.
    artefact: String,
    /// The worker on which it is or was loaded.
    instances: Vec<InstanceBody>,
}

/// Latency at one size of the inputs.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SizeLatency)]
pub struct SizeBody {
    /// Sizes of the dynamic dimensions besides the batch, in the order of the inputs.
    dimensions: Vec<u64>,
    /// Latency by batch size.
    latency: Vec<BatchLatencyBody>,
}

/// A variant on a type of device.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Profile)]
pub struct ProfileBody {
    /// The type of device.
    device_type: String,
    /// Not measured there yet: estimated from the device on which it was registered.
    estimated: bool,
    /// Latency by batch size.
    latency: Vec<BatchLatencyBody>,
    /// Time to load, milliseconds.
    load_ms: f64,
    /// Greatest rows per second.
    saturation_rps: f64,
    /// Price of the slots that a batch occupies, US dollars an hour; absent if no worker of the fleet has
    /// said what the device costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_per_hour_usd: Option<f64>,
    /// Price of a thousand rows at saturation, US dollars; absent in the same case.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_per_1k_usd: Option<f64>,
    /// Why it could not be measured there so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<ProfileFailureBody>,
}

/// Measuring a variant on a type of device has failed; the service tries again.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProfileFailure)]
pub struct ProfileFailureBody {
    /// Stable code of the last failure.
    code: String,
    /// What happened.
    message: String,
    /// How often in a row.
    failures: u32,
    /// When the last time was, milliseconds since the Unix epoch.
    at_ms: u64,
}

/// Variants.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Variants)]
pub struct VariantsBody {
    /// Sorted by model, then by name.
    variants: Vec<VariantBody>,
    /// Pipelines that are variants of the applications whose variants are listed, sorted by application and
    /// name. Only the first page has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    composites: Vec<CompositeBody>,
    /// Where the next page begins: `?after=`.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Answers compared with those of the file that was uploaded.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Agreement)]
pub struct AgreementBody {
    /// Rows compared.
    rows: u64,
    /// Of these, those in which both answers agree.
    agreeing: u64,
}

/// Variants of a page of the list of all applications, if no limit is given.
const PAGE: u32 = 100;

/// Which variants to list.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariantParams {
    frontier: Option<bool>,
    after: Option<String>,
    limit: Option<u32>,
}

/// Which variants of all to list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllParams {
    application: Option<ApplicationId>,
    model: Option<ModelId>,
    frontier: Option<bool>,
    after: Option<String>,
    limit: Option<u32>,
}

/// Variants of all applications, or those of one application or model.
#[utoipa::path(get, operation_id = "variants_list", path = "/v1/variants", tag = "variants",
    params(
        ("application" = Option<String>, Query, description = "only of this application"),
        ("model" = Option<String>, Query,
            description = "only of this model: its name, of its current version, or `name@version`"),
        ("frontier" = Option<bool>, Query, description = "only those that no other dominates"),
        ("after" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<u32>, Query, description = "most variants; 100 if left out", minimum = 1, maximum = 1000),
    ),
    responses((status = 200, description = "Sorted by model, then by name", body = VariantsBody)))]
pub async fn list(
    State(state): State<ApiState>,
    caller: Caller,
    Params(params): Params<AllParams>,
) -> Result<Json<VariantsBody>, Problem> {
    let models = state.registry().models(params.application.as_ref()).await?;
    let seen = models.into_iter();
    let seen: Vec<Model> = seen.filter(|it| caller.sees(&it.application)).collect();
    let wanted: Vec<ModelId> = match &params.model {
        Some(reference) => meant(&seen, reference).into_iter().collect(),
        None => seen.into_iter().map(|model| model.id).collect(),
    };
    let part = VariantParams {
        frontier: params.frontier,
        after: params.after,
        limit: Some(params.limit.unwrap_or(PAGE)),
    };
    let variants = of_models(&state, wanted.into_iter()).await?;
    let listed = with_instances(&state, variants, &part).await?;
    // Composite variants belong to no model.
    let applications = state.directory().applications().into_iter();
    let applications = applications.filter(|it| {
        let is_asked_for = params.application.as_ref().is_none_or(|id| id == it);
        is_asked_for && params.model.is_none() && caller.sees(it)
    });
    Ok(with_composites(&state, listed, applications, &part))
}

/// The id of the model among `models` that a reference names.
fn meant(models: &[Model], reference: &ModelId) -> Option<ModelId> {
    let releases: Vec<_> = models.iter().map(Model::released).collect();
    let models = models.iter().zip(&releases);
    let named = models.map(|(model, release)| (&model.application, &model.id, release));
    Releases::of(named).model(reference).cloned()
}

/// The variants of a model, dominated ones included.
#[utoipa::path(get, operation_id = "variants_of_model", path = "/v1/models/{model}/variants", tag = "variants",
    params(
        ("model" = String, Path, description = "name of the model"),
        ("frontier" = Option<bool>, Query, description = "only those that no other dominates"),
        ("after" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<u32>, Query, description = "most variants; all if left out", minimum = 1, maximum = 1000),
    ),
    responses(
        (status = 200, description = "Sorted by name", body = VariantsBody),
        (status = 404, description = "No such model", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn of_model(
    State(state): State<ApiState>,
    Name(model): Name<ModelId>,
    Params(part): Params<VariantParams>,
) -> Result<Json<VariantsBody>, Problem> {
    let model = state.registry().resolve(&model).await?;
    let variants = state.registry().variants_of(&model).await?;
    with_instances(&state, variants, &part).await
}

/// The variants of all models of an application.
#[utoipa::path(get, operation_id = "variants_of_application", path = "/v1/applications/{application}/variants", tag = "variants",
    params(
        ("application" = String, Path, description = "name of the application"),
        ("frontier" = Option<bool>, Query, description = "only those that no other dominates"),
        ("after" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<u32>, Query, description = "most variants; all if left out", minimum = 1, maximum = 1000),
    ),
    responses(
        (status = 200, description = "Sorted by model, then by name", body = VariantsBody),
        (status = 404, description = "No such application", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn of_application(
    State(state): State<ApiState>,
    Name(application): Name<ApplicationId>,
    Params(part): Params<VariantParams>,
) -> Result<Json<VariantsBody>, Problem> {
    state.registry().application(&application).await?;
    let models = state.registry().models(Some(&application)).await?;
    let variants = of_models(&state, models.into_iter().map(|model| model.id)).await?;
    let listed = with_instances(&state, variants, &part).await?;
    Ok(with_composites(&state, listed, [application], &part))
}

/// One variant.
#[utoipa::path(get, operation_id = "variants_get", path = "/v1/variants/{variant}", tag = "variants",
    params(("variant" = String, Path, description = "its name")),
    responses(
        (status = 200, description = "The variant", body = VariantBody),
        (status = 404, description = "There is none", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn get(
    State(state): State<ApiState>,
    Name(name): Name<VariantId>,
) -> Result<Json<VariantBody>, Problem> {
    let variant = state.registry().variant(&name).await?;
    let fleet = Fleet::look(&state).await?;
    Ok(Json(VariantBody::new(&variant, &fleet)))
}

async fn of_models(
    state: &ApiState,
    models: impl Iterator<Item = ModelId>,
) -> Result<Vec<Variant>, Problem> {
    let mut variants = Vec::new();
    for model in models {
        variants.extend(state.registry().variants_of(&model).await?);
    }
    Ok(variants)
}

async fn with_instances(
    state: &ApiState,
    mut variants: Vec<Variant>,
    part: &VariantParams,
) -> Result<Json<VariantsBody>, Problem> {
    let fleet = Fleet::look(state).await?;
    if part.frontier == Some(true) {
        variants.retain(|variant| variant.dominated_by.is_none());
    }
    // No character of a name sorts before the space.
    let place = |variant: &&Variant| format!("{} {}", variant.model, variant.id);
    let page = page::cut(&variants, place, (part.after.as_deref(), part.limit))?;
    let shown = page.items.into_iter();
    let variants = shown
        .map(|variant| VariantBody::new(variant, &fleet))
        .collect();
    Ok(Json(VariantsBody {
        variants,
        composites: Vec::new(),
        next: page.next,
    }))
}

/// The same, with the composite variants of the applications.
fn with_composites(
    state: &ApiState,
    mut listed: Json<VariantsBody>,
    applications: impl IntoIterator<Item = ApplicationId>,
    part: &VariantParams,
) -> Json<VariantsBody> {
    if part.after.is_none() {
        let mut applications: Vec<ApplicationId> = applications.into_iter().collect();
        applications.sort();
        let all = applications.iter().flat_map(|it| composites(state, it));
        listed.0.composites = all.collect();
    }
    listed
}

/// The instances and workers that run variants.
struct Fleet {
    /// Sorted by key.
    instances: Vec<Instance>,
    types: DeviceTypes,
    failed: Vec<FailedProfile>,
    agreement: Vec<AgreementRow>,
    slowdowns: Slowdowns,
    /// The stages of the published models.
    stages: BTreeMap<ModelId, Stage>,
}

impl Fleet {
    async fn look(state: &ApiState) -> Result<Self, Problem> {
        let workers = state.metadata().workers(unix_ms()).await?;
        let demand = state.metadata().snapshot().await?.demand;
        let variants = state.metadata().variants().await?;
        let stages = variants
            .iter()
            .map(|it| (it.model.clone(), it.release.stage));
        Ok(Self {
            stages: stages.collect(),
            instances: state.metadata().instances().await?,
            types: DeviceTypes::of(&workers),
            failed: state.registry().failed_profiles().await?,
            agreement: demand.map_or_else(Vec::new, |demand| demand.agreement.clone()),
            slowdowns: Slowdowns::of(variants.iter().map(|it| &**it), state.estimate_factor()),
        })
    }

    fn agreement(&self, variant: &Variant) -> Option<AgreementBody> {
        let mut rows = self.agreement.iter();
        let of = rows.find(|row| row.variant == variant.id && row.rows > 0)?;
        Some(AgreementBody {
            rows: of.rows,
            agreeing: of.agreeing,
        })
    }

    /// The profiles of a variant on all types of device that it was measured on, or can run on.
    fn profiles(&self, variant: &Variant) -> Vec<ProfileBody> {
        let engine = &variant.spec.engine;
        let able = self.types.all().filter(|of| of.engines.contains(engine));
        let mut names: BTreeSet<&DeviceTypeName> = able.map(|of| &of.name).collect();
        names.extend(variant.measured_on.iter().chain(variant.profiles.keys()));
        let names = names.into_iter();
        names.map(|name| self.profile(variant, name)).collect()
    }

    fn profile(&self, variant: &Variant, name: &DeviceTypeName) -> ProfileBody {
        let expected = self.slowdowns.expected(variant, name);
        let profile = &expected.profile;
        let facts = self.types.get(name);
        let cost = facts.map(|of| of.cost(variant.spec.threads, profile.saturation_rps));
        ProfileBody {
            device_type: name.to_string(),
            estimated: expected.estimated,
            latency: profile.batches.iter().map(BatchLatencyBody::from).collect(),
            load_ms: profile.load_ms,
            saturation_rps: profile.saturation_rps,
            cost_per_hour_usd: cost.map(|cost| cost.per_hour_usd),
            cost_per_1k_usd: cost.map(|cost| cost.per_1k_usd),
            failure: self.failure(variant, name),
        }
    }

    fn failure(&self, variant: &Variant, name: &DeviceTypeName) -> Option<ProfileFailureBody> {
        let mut failed = self.failed.iter();
        let failed = failed.find(|it| it.variant == variant.id && it.device_type == *name)?;
        let failure = failed.failure.as_ref()?;
        Some(ProfileFailureBody {
            code: failure.code.to_string(),
            message: failure.message.clone(),
            failures: failed.failures,
            at_ms: failed.updated_ms,
        })
    }
}

// === impl VariantBody ===

impl VariantBody {
    fn new(variant: &Variant, fleet: &Fleet) -> Self {
        let instances = &fleet.instances;
        // The list is sorted by key, so the instances of one variant are adjacent.
        let first = instances.partition_point(|instance| instance.key.variant < variant.id);
        let own = instances[first..]
            .iter()
            .take_while(|instance| instance.key.variant == variant.id);
        let (spec, profile) = (&variant.spec, &variant.profile);
        Self {
            name: variant.id.to_string(),
            model: variant.model.to_string(),
            application: variant.application.to_string(),
            stage: fleet.stages.get(&variant.model).map(|it| it.as_str()),
            engine: spec.engine.to_string(),
            precision: spec.precision.name(),
            optimization: spec.optimization.name(),
            threads: spec.threads,
            max_batch: spec.max_batch,
            apart: variant.why_apart().map(str::to_owned),
            accuracy: AccuracyBody::from(&variant.accuracy),
            agreement: fleet.agreement(variant),
            latency: profile.batches.iter().map(BatchLatencyBody::from).collect(),
            dimensions: profile.sizes.dims.clone(),
            sizes: profile.sizes.shapes.iter().map(SizeBody::from).collect(),
            longest: profile.sizes.longest,
            padded: variant.padding.is_some(),
            concurrent: profile
                .concurrent
                .iter()
                .map(ConcurrentBody::from)
                .collect(),
            alpha_ms: profile.alpha_ms,
            beta_ms: profile.beta_ms,
            residual_ms: profile.residual_ms,
            load_ms: profile.load_ms,
            first_load_ms: profile.first_load_ms,
            saturation_rps: profile.saturation_rps,
            peak_memory_bytes: profile.peak_memory_bytes,
            weights_bytes: profile.weights_bytes,
            cost_per_hour_usd: variant.cost_per_hour_usd,
            cost_per_1k_usd: variant.cost_per_1k_usd,
            measured_on: variant.measured_on.as_ref().map(ToString::to_string),
            profiles: fleet.profiles(variant),
            dominated_by: variant.dominated_by.as_ref().map(VariantId::to_string),
            artefact: variant.artefact.to_string(),
            instances: own.map(InstanceBody::from).collect(),
        }
    }
}

impl From<&ShapeProfile> for SizeBody {
    fn from(shape: &ShapeProfile) -> Self {
        Self {
            dimensions: shape.dims.clone(),
            latency: shape.batches.iter().map(BatchLatencyBody::from).collect(),
        }
    }
}
