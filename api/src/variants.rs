//! Measured variants, with the state of their instances.

use axum::{Json, extract::State};
use serde::Serialize;
use sextant_metadata::Instance;
use sextant_types::{Accuracy, ApplicationId, BatchLatency, ModelId, Variant, VariantId};
use utoipa::ToSchema;

use crate::{
    ApiState,
    cluster::InstanceBody,
    extract::Name,
    problem::{Problem, ProblemBody},
};

/// A measured variant.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Variant)]
pub struct VariantBody {
    /// `{model}-{engine}-{precision}-{optimization}-t{threads}-b{max_batch}`.
    name: String,
    /// The model it was made from.
    model: String,
    /// The application it answers for.
    application: String,
    /// Which engine runs it.
    engine: String,
    /// `fp32`, `fp16`, `int8d` or `int8s`.
    precision: &'static str,
    /// `basic` or `all`.
    optimization: &'static str,
    /// Intra-op threads.
    threads: u16,
    /// Most rows in one batch.
    max_batch: u16,
    /// Measured on the validation set.
    accuracy: AccuracyBody,
    /// Latency by batch size.
    latency: Vec<BatchLatencyBody>,
    /// Slope of l(b) = alpha * b + beta, fitted to the medians, milliseconds per row.
    alpha_ms: f64,
    /// Its intercept, milliseconds.
    beta_ms: f64,
    /// Root mean square of the fit's residuals, milliseconds.
    residual_ms: f64,
    /// Time to load, milliseconds.
    load_ms: f64,
    /// Greatest rows per second.
    saturation_rps: f64,
    /// Peak additional memory while running the largest batch, bytes.
    peak_memory_bytes: u64,
    /// Bytes of the weights, held once for all variants of the same artefact.
    weights_bytes: u64,
    /// Price of holding one instance, US dollars an hour.
    cost_per_hour_usd: f64,
    /// Price of a thousand rows at saturation, US dollars.
    cost_per_1k_usd: f64,
    /// A variant that is at least as good in everything; `null` on the frontier.
    dominated_by: Option<String>,
    /// SHA-256 of the ONNX file that the engine loads.
    artefact: String,
    /// Where it is loaded or was.
    instances: Vec<InstanceBody>,
}

/// Variants.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Variants)]
pub struct VariantsBody {
    /// Sorted by name within each model.
    variants: Vec<VariantBody>,
}

/// A measured accuracy with its 95 % interval.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Accuracy)]
pub struct AccuracyBody {
    /// `top1`, `top5`, `exact`, `mae`.
    metric: String,
    /// Point estimate.
    value: f64,
    /// Lower end of the interval.
    lower: f64,
    /// Upper end of the interval.
    upper: f64,
    /// Records that were scored.
    records: u64,
    /// Rows per batch while measuring.
    evaluation_batch: u32,
}

/// Measured latency of one batch size.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BatchLatency)]
pub struct BatchLatencyBody {
    /// Rows in the batch.
    batch: u32,
    /// Median, milliseconds.
    p50_ms: f64,
    /// 99th percentile, milliseconds.
    p99_ms: f64,
    /// Mean, milliseconds.
    mean_ms: f64,
    /// Runs measured.
    samples: u32,
}

/// The variants of a model, dominated ones included.
#[utoipa::path(get, operation_id = "variants_of_model", path = "/v1/models/{model}/variants", tag = "variants",
    params(("model" = String, Path, description = "name of the model")),
    responses(
        (status = 200, description = "Sorted by name", body = VariantsBody),
        (status = 404, description = "No such model", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn of_model(
    State(state): State<ApiState>,
    Name(model): Name<ModelId>,
) -> Result<Json<VariantsBody>, Problem> {
    state.registry().model(&model).await?;
    let variants = state.registry().variants_of(&model).await?;
    with_instances(&state, variants).await
}

/// The variants of all models of an application.
#[utoipa::path(get, operation_id = "variants_of_application", path = "/v1/applications/{application}/variants", tag = "variants",
    params(("application" = String, Path, description = "name of the application")),
    responses(
        (status = 200, description = "Sorted by model, then by name", body = VariantsBody),
        (status = 404, description = "No such application", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn of_application(
    State(state): State<ApiState>,
    Name(application): Name<ApplicationId>,
) -> Result<Json<VariantsBody>, Problem> {
    state.registry().application(&application).await?;
    let mut variants = Vec::new();
    for model in state.registry().models(Some(&application)).await? {
        variants.extend(state.registry().variants_of(&model.id).await?);
    }
    with_instances(&state, variants).await
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
    let instances = state.metadata().instances().await?;
    Ok(Json(VariantBody::new(&variant, &instances)))
}

async fn with_instances(
    state: &ApiState,
    variants: Vec<Variant>,
) -> Result<Json<VariantsBody>, Problem> {
    let instances = state.metadata().instances().await?;
    let variants = variants
        .iter()
        .map(|variant| VariantBody::new(variant, &instances))
        .collect();
    Ok(Json(VariantsBody { variants }))
}

// === impl VariantBody ===

impl VariantBody {
    fn new(variant: &Variant, instances: &[Instance]) -> Self {
        // Sorted by key, so the instances of one variant stand together.
        let first = instances.partition_point(|instance| instance.key.variant < variant.id);
        let own = instances[first..]
            .iter()
            .take_while(|instance| instance.key.variant == variant.id);
        let (spec, profile) = (&variant.spec, &variant.profile);
        Self {
            name: variant.id.to_string(),
            model: variant.model.to_string(),
            application: variant.application.to_string(),
            engine: spec.engine.to_string(),
            precision: spec.precision.name(),
            optimization: spec.optimization.name(),
            threads: spec.threads,
            max_batch: spec.max_batch,
            accuracy: AccuracyBody::from(&variant.accuracy),
            latency: profile.batches.iter().map(BatchLatencyBody::from).collect(),
            alpha_ms: profile.alpha_ms,
            beta_ms: profile.beta_ms,
            residual_ms: profile.residual_ms,
            load_ms: profile.load_ms,
            saturation_rps: profile.saturation_rps,
            peak_memory_bytes: profile.peak_memory_bytes,
            weights_bytes: profile.weights_bytes,
            cost_per_hour_usd: variant.cost_per_hour_usd,
            cost_per_1k_usd: variant.cost_per_1k_usd,
            dominated_by: variant.dominated_by.as_ref().map(VariantId::to_string),
            artefact: variant.artefact.to_string(),
            instances: own.map(InstanceBody::from).collect(),
        }
    }
}

impl From<&Accuracy> for AccuracyBody {
    fn from(accuracy: &Accuracy) -> Self {
        Self {
            metric: accuracy.metric.name(),
            value: accuracy.value,
            lower: accuracy.lower,
            upper: accuracy.upper,
            records: accuracy.records,
            evaluation_batch: accuracy.evaluation_batch,
        }
    }
}

impl From<&BatchLatency> for BatchLatencyBody {
    fn from(latency: &BatchLatency) -> Self {
        Self {
            batch: latency.batch,
            p50_ms: latency.p50_ms,
            p99_ms: latency.p99_ms,
            mean_ms: latency.mean_ms,
            samples: latency.samples,
        }
    }
}
