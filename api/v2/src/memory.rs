//! The routes of shared memory.

use axum::{
    Extension, Json,
    extract::{Path, Request, State},
    http::StatusCode,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::repository::ChangeResponse;
use crate::{
    ApiState,
    auth::{Caller, Subject},
    json,
    problem::{Problem, ProblemBody},
    regions::{Region, Registration},
};

/// The subject of an audit entry about all regions of a key.
pub(super) const ALL: &str = "all regions";

/// A registered region.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SharedMemoryRegion)]
pub struct RegionBody {
    /// Its name.
    pub(super) name: String,
    /// The name of the shared memory.
    pub(super) key: String,
    /// Its offset there, bytes.
    pub(super) offset: u64,
    /// Its length, bytes.
    pub(super) byte_size: u64,
}

/// A region to register.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewSharedMemoryRegion)]
pub struct NewRegion {
    /// The name of the shared memory: that of a plain file directly in `/dev/shm`, with or without a slash.
    #[schema(example = "/input")]
    key: String,
    /// The offset of the region there, bytes.
    #[serde(default, deserialize_with = "json::or_default")]
    offset: u64,
    /// Its length, bytes.
    #[schema(minimum = 1, example = 4096)]
    byte_size: u64,
}

/// The regions that the key has registered.
#[utoipa::path(get, operation_id = "v2_regions", path = "/v2/systemsharedmemory/status",
    tag = "open inference protocol",
    responses(
        (status = 200, description = "Regions", body = Vec<RegionBody>),
        (status = 404, description = "The service does not use shared memory", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn all(
    State(state): State<ApiState>,
    caller: Caller,
) -> Result<Json<Vec<RegionBody>>, Problem> {
    listed(&state, &caller, None).map(Json)
}

/// One region that the key has registered.
#[utoipa::path(get, operation_id = "v2_region", path = "/v2/systemsharedmemory/region/{region}/status",
    tag = "open inference protocol",
    params(("region" = String, Path, description = "its name")),
    responses(
        (status = 200, description = "The region", body = Vec<RegionBody>),
        (status = 404, description = "There is none", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn one(
    State(state): State<ApiState>,
    caller: Caller,
    Path(region): Path<String>,
) -> Result<Json<Vec<RegionBody>>, Problem> {
    listed(&state, &caller, Some(&region)).map(Json)
}

/// Registers shared memory of this machine under a name, for inputs and outputs of queries with the same key.
#[utoipa::path(post, operation_id = "v2_region_register",
    path = "/v2/systemsharedmemory/region/{region}/register", tag = "open inference protocol",
    params(("region" = String, Path, description = "its name")),
    request_body(content = NewRegion, content_type = "application/json"),
    responses(
        (status = 200, description = "It is registered"),
        (status = 404, description = "The service does not use shared memory", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn register(
    State(state): State<ApiState>,
    caller: Caller,
    Path(region): Path<String>,
    request: Request,
) -> Result<ChangeResponse, Problem> {
    let body = state.collect_document(request.into_body()).await?;
    let new: NewRegion = json::owned(&body)?;
    let subject = Subject(region.clone());
    let registration = Registration {
        name: region,
        key: new.key,
        offset: new.offset,
        byte_size: new.byte_size,
    };
    state.regions().register(&caller, registration)?;
    Ok((Extension(subject), StatusCode::OK))
}

/// Unregisters a region. If there is no such region, this is no error.
#[utoipa::path(post, operation_id = "v2_region_unregister",
    path = "/v2/systemsharedmemory/region/{region}/unregister", tag = "open inference protocol",
    params(("region" = String, Path, description = "its name")),
    responses(
        (status = 200, description = "It is not registered"),
        (status = 404, description = "The service does not use shared memory", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn unregister(
    State(state): State<ApiState>,
    caller: Caller,
    Path(region): Path<String>,
) -> Result<ChangeResponse, Problem> {
    state.regions().unregister(&caller, Some(&region))?;
    Ok((Extension(Subject(region)), StatusCode::OK))
}

/// Unregisters all regions that the key has registered.
#[utoipa::path(post, operation_id = "v2_regions_unregister", path = "/v2/systemsharedmemory/unregister",
    tag = "open inference protocol",
    responses(
        (status = 200, description = "None is registered"),
        (status = 404, description = "The service does not use shared memory", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn unregister_all(
    State(state): State<ApiState>,
    caller: Caller,
) -> Result<ChangeResponse, Problem> {
    state.regions().unregister(&caller, None)?;
    Ok((Extension(Subject(ALL.to_owned())), StatusCode::OK))
}

/// The regions of a GPU's memory: always none, because they cannot be registered.
#[utoipa::path(get, operation_id = "v2_cuda_regions", path = "/v2/cudasharedmemory/status",
    tag = "open inference protocol",
    responses((status = 200, description = "None", body = Vec<RegionBody>)))]
pub async fn cuda() -> Json<[RegionBody; 0]> {
    Json([])
}

/// Unregisters all regions of a GPU's memory. There never are any.
#[utoipa::path(post, operation_id = "v2_cuda_regions_unregister", path = "/v2/cudasharedmemory/unregister",
    tag = "open inference protocol",
    responses((status = 200, description = "None is registered")))]
pub async fn unregister_cuda() -> StatusCode {
    StatusCode::OK
}

/// Regions as clients see them.
pub(super) fn listed(
    state: &ApiState,
    caller: &Caller,
    name: Option<&str>,
) -> Result<Vec<RegionBody>, Problem> {
    let regions = state.regions().list(caller, name)?;
    let body = |(name, region): (String, std::sync::Arc<Region>)| RegionBody {
        name,
        key: region.key.clone(),
        offset: region.offset,
        byte_size: region.byte_size,
    };
    Ok(regions.into_iter().map(body).collect())
}
