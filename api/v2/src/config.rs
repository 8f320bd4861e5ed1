//! A model's configuration, in the form of Triton's clients.

use axum::{Json, extract::State};
use serde::Serialize;
use sextant_types::{DataType, ModelId, Route, TensorSpec, Variant};
use utoipa::ToSchema;

use super::ResolvedName;
use crate::{ApiState, problem::Problem};

/// What a model takes and gives, and how many rows at once.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ModelConfig)]
pub struct ConfigBody {
    /// The name that was asked for.
    pub(super) name: String,
    /// `onnxruntime_onnx`, whatever engine runs it.
    pub(super) platform: &'static str,
    /// `onnxruntime`, whatever engine runs it.
    pub(super) backend: &'static str,
    /// Every version that is ready can be asked.
    pub(super) version_policy: VersionPolicyBody,
    /// Most rows of one query; 0 if there is no batch dimension.
    pub(super) max_batch_size: u16,
    /// In the graph's order.
    pub(super) input: Vec<ConfigTensorBody>,
    /// In the graph's order.
    pub(super) output: Vec<ConfigTensorBody>,
}

/// Which versions can be asked.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = ModelVersionPolicy)]
pub struct VersionPolicyBody {
    /// Every version that is ready.
    all: AllVersionsBody,
}

/// Every version that is ready; there is nothing else to choose.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = ModelAllVersions)]
pub struct AllVersionsBody {}

/// An input or output of a configuration.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ModelConfigTensor)]
pub struct ConfigTensorBody {
    /// Its name.
    pub(super) name: String,
    /// `TYPE_FP32`, `TYPE_STRING` and so on.
    pub(super) data_type: String,
    /// Sizes without the batch dimension; -1 if any size is accepted.
    pub(super) dims: Vec<i64>,
}

/// The configuration of an application, model or variant.
#[utoipa::path(get, operation_id = "v2_model_config", path = "/v2/models/{model}/config",
    tag = "open inference protocol",
    params(("model" = String, Path, description = "variant, model or application")),
    responses((status = 200, description = "Its configuration", body = ConfigBody)))]
pub async fn config(
    State(state): State<ApiState>,
    named: ResolvedName,
) -> Result<Json<ConfigBody>, Problem> {
    of(&state, named).await.map(Json)
}

/// The configuration of the thing that a name names.
pub(super) async fn of(state: &ApiState, named: ResolvedName) -> Result<ConfigBody, Problem> {
    let variants = state.metadata().variants().await?;
    let versions = named.versions(state).await?;
    let of = (&named.route, &*versions);
    let most = variants.iter().filter(|variant| is_of(variant, of));
    let most = most.map(|variant| variant.spec.max_batch).max();
    let batched = named.signature.batched;
    let tensor = |spec: &TensorSpec| ConfigTensorBody {
        name: spec.name.clone(),
        data_type: data_type(spec.data_type),
        dims: spec.shape[usize::from(batched).min(spec.shape.len())..]
            .iter()
            .map(|size| size.and_then(|size| i64::try_from(size).ok()).unwrap_or(-1))
            .collect(),
    };
    Ok(ConfigBody {
        name: named.name,
        platform: "onnxruntime_onnx",
        backend: "onnxruntime",
        version_policy: VersionPolicyBody::default(),
        max_batch_size: most.filter(|_| batched).unwrap_or(0),
        input: named.signature.inputs.iter().map(tensor).collect(),
        output: named.signature.outputs.iter().map(tensor).collect(),
    })
}

/// The same for a version.
#[utoipa::path(get, operation_id = "v2_model_version_config",
    path = "/v2/models/{model}/versions/{version}/config", tag = "open inference protocol",
    params(
        ("model" = String, Path, description = "variant, model or application"),
        ("version" = String, Path, description = "`1`"),
    ),
    responses((status = 200, description = "Its configuration", body = ConfigBody)))]
pub async fn config_version(
    state: State<ApiState>,
    named: ResolvedName,
) -> Result<Json<ConfigBody>, Problem> {
    config(state, named).await
}

fn is_of(variant: &Variant, (route, versions): (&Route, &[(u32, ModelId)])) -> bool {
    match route {
        Route::Application(id) => variant.application == *id,
        Route::Model(_) => versions.iter().any(|(_, id)| variant.model == *id),
        Route::Variant(id) => variant.id == *id,
    }
}

fn data_type(of: DataType) -> String {
    match of {
        DataType::Bytes => "TYPE_STRING".to_owned(),
        of => format!("TYPE_{}", of.name()),
    }
}
