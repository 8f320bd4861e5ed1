//! `/v1/cluster`, `/v1/workers` and `/v1/instances`: which dispatcher leads, what runs where, and how punctually.

use axum::{Extension, Json, extract::State};
use serde::{Deserialize, Serialize};
use sextant_metadata::{DeviceTypes, HardwareWarning, Instance, View, Worker};
use sextant_types::{Code, DeviceType, WorkerId, time::unix_ms};
use utoipa::ToSchema;

use crate::{
    ApiState,
    auth::Subject,
    extract::{Name, Params},
    page::PageParams,
    problem::{Problem, ProblemBody},
};

mod overview;
mod stats;

use overview::ClusterBody;
use stats::StatsBody;

/// A variant on a worker.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Instance)]
pub struct InstanceBody {
    /// Which variant.
    variant: String,
    /// On which worker.
    worker: String,
    /// The application to which the variant belongs.
    application: String,
    /// `inactive`, `loading`, `active`, `overloaded`, `interfered`, `draining` or `failed`.
    state: &'static str,
    /// Share of its worker's device time that its online batches take, 0 to 1.
    load: f64,
    /// When it entered its state, milliseconds since the Unix epoch.
    since_ms: u64,
    /// Grows with each change of state.
    version: u64,
    /// Why it is in its state, if there is a reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Instances.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Instances)]
pub struct InstancesBody {
    /// Sorted by variant and worker.
    instances: Vec<InstanceBody>,
    /// Where the next page begins: `?after=`.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A worker.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Worker)]
pub struct WorkerBody {
    /// Its name.
    name: String,
    /// What it runs batches on: `cpu`, `cuda:0`, `emulated:3` or the name of a runtime.
    device: String,
    /// The type of that device; absent for workers of an earlier version.
    #[serde(skip_serializing_if = "Option::is_none")]
    device_type: Option<DeviceTypeBody>,
    /// Address at which other processes reach it; absent if only its own process does.
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    /// It is being taken out: it serves until the variants that only it has are loaded elsewhere, and then drains.
    leaving: bool,
    /// It finishes what it has accepted and then leaves.
    draining: bool,
    /// CPU cores that batches may occupy at once.
    cores: u16,
    /// Bytes that loaded variants may occupy.
    memory_bytes: u64,
    /// Bytes in use.
    memory_used_bytes: u64,
    /// Share of core time that was busy over the last second, 0 to 1.
    utilization: f64,
    /// When its lease lapses unless it reports before, milliseconds since the Unix epoch.
    lease_until_ms: u64,
}

/// A type of device, as a worker announces it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DeviceType)]
pub struct DeviceTypeBody {
    /// Its name: devices of one name cost the same and run every variant alike.
    name: String,
    /// Engines that run on it.
    engines: Vec<String>,
    /// What batches occupy: the cores of a processor; 1 if one batch runs at a time.
    slots: u16,
    /// Bytes that loaded variants may occupy.
    memory_bytes: u64,
    /// Price of the device, US dollars an hour.
    price_per_hour_usd: f64,
    /// Time that a new worker of the type takes to start, milliseconds.
    start_ms: u64,
}

/// Announcements of workers that contradict each other. The service works on despite them.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WorkerWarning)]
pub struct WarningBody {
    /// `device_type_conflict` or `device_type_changed`.
    code: &'static str,
    /// The worker.
    worker: String,
    /// What it is, and what to do.
    message: String,
}

/// Workers.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Workers)]
pub struct WorkersBody {
    /// Sorted by name.
    workers: Vec<WorkerBody>,
    /// Where the next page begins: `?after=`.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// What does not fit together; empty if everything does.
    warnings: Vec<WarningBody>,
}

/// Workers that hold a lease.
#[utoipa::path(get, operation_id = "workers_list", path = "/v1/workers", tag = "cluster",
    params(
        ("after" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<u32>, Query, description = "most workers; all if left out", minimum = 1, maximum = 1000),
    ),
    responses((status = 200, description = "Sorted by name", body = WorkersBody)))]
pub async fn workers(
    State(state): State<ApiState>,
    Params(params): Params<PageParams>,
) -> Result<Json<WorkersBody>, Problem> {
    let workers = state.metadata().workers(unix_ms()).await?;
    let warnings = DeviceTypes::of(&workers).warnings;
    let page = params.cut(&workers, |worker| worker.id.to_string())?;
    Ok(Json(WorkersBody {
        workers: page.items.into_iter().map(WorkerBody::from).collect(),
        next: page.next,
        warnings: warnings.iter().map(WarningBody::from).collect(),
    }))
}

/// Drains a worker: takes it out of service for good. The worker serves until the variants that only it
/// has are loaded elsewhere and the worker that its pool needs in its place has started, for two minutes
/// at most. Then it finishes its queries and leaves. Draining it again changes nothing. The last worker,
/// if no pool starts others, can be drained only with `force`, because nobody would be left to answer
/// queries.
#[utoipa::path(post, operation_id = "workers_drain", path = "/v1/workers/{worker}/drain",
    tag = "cluster",
    params(
        ("worker" = String, Path, description = "its name"),
        ("force" = Option<bool>, Query, description = "drain the worker even if it is the last one"),
    ),
    responses(
        (status = 200, description = "The worker, which is to leave", body = WorkerBody),
        (status = 409, description = "It is the last one", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 404, description = "There is none", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 503, description = "The metadata store does not answer", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn drain(
    State(state): State<ApiState>,
    Name(name): Name<WorkerId>,
    Params(params): Params<DrainParams>,
) -> Result<(Extension<Subject>, Json<WorkerBody>), Problem> {
    if !params.force {
        check_not_last(&state, &name).await?;
    }
    let marked = state.metadata().mark_leaving(&name).await?;
    let worker = marked.ok_or_else(|| ApiState::no_worker(&name))?;
    let subject = Extension(Subject(name.to_string()));
    Ok((subject, Json(WorkerBody::from(&worker))))
}

/// How a worker is taken out.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrainParams {
    #[serde(default)]
    force: bool,
}

/// Refuses to drain the only worker that is not leaving, unless a pool starts another.
async fn check_not_last(state: &ApiState, name: &WorkerId) -> Result<(), Problem> {
    let view = View::from(state.metadata().snapshot().await?);
    let mut staying = view.workers.values().filter(|worker| worker.stays());
    let is_last = staying.all(|worker| worker.id == *name);
    let stays = view.workers.get(name).is_some_and(Worker::stays);
    if !stays || !is_last || view.has_pools() {
        return Ok(());
    }
    let detail = format!(
        "worker `{name}` is the last one: nobody would be left to answer queries; start another one first, or take \
         it out with `force=true` (`--force`)"
    );
    Err(Problem::new(Code::InUse, detail))
}

/// What a worker did, and how well the durations of its actions were predicted.
#[utoipa::path(get, operation_id = "workers_stats", path = "/v1/workers/{worker}/stats",
    tag = "cluster",
    params(("worker" = String, Path, description = "its name")),
    responses(
        (status = 200, description = "Since the worker's start", body = StatsBody),
        (status = 404, description = "There is none", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 503, description = "The worker does not answer", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn stats(
    State(state): State<ApiState>,
    Name(name): Name<WorkerId>,
) -> Result<Json<StatsBody>, Problem> {
    let part = state.worker(&name)?;
    let stats = part.client.stats().await.map_err(|error| {
        let detail = format!("worker `{name}` does not answer: {error}");
        Problem::new(Code::Unavailable, detail).retry_after_ms(1000)
    })?;
    let body = StatsBody::new(&part.device, &part.client.info(), &stats);
    Ok(Json(body))
}

/// Shows which processes lead, and which stores answer. It works even while stores cannot be reached.
#[utoipa::path(get, operation_id = "cluster_get", path = "/v1/cluster", tag = "cluster",
    responses((status = 200, description = "As this process sees it", body = ClusterBody)))]
pub async fn get(State(state): State<ApiState>) -> Json<ClusterBody> {
    Json(ClusterBody::look(&state).await)
}

/// Instances in any state.
#[utoipa::path(get, operation_id = "instances_list", path = "/v1/instances", tag = "cluster",
    params(
        ("after" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<u32>, Query, description = "most instances; all if left out", minimum = 1, maximum = 1000),
    ),
    responses((status = 200, description = "Sorted by variant and worker", body = InstancesBody)))]
pub async fn instances(
    State(state): State<ApiState>,
    Params(params): Params<PageParams>,
) -> Result<Json<InstancesBody>, Problem> {
    let instances = state.metadata().instances().await?;
    // No character of a name sorts before the space.
    let place = |of: &&Instance| format!("{} {}", of.key.variant, of.key.worker);
    let page = params.cut(&instances, place)?;
    let instances = page.items.into_iter().map(InstanceBody::from).collect();
    let next = page.next;
    Ok(Json(InstancesBody { instances, next }))
}

impl From<&Instance> for InstanceBody {
    fn from(instance: &Instance) -> Self {
        Self {
            variant: instance.key.variant.to_string(),
            worker: instance.key.worker.to_string(),
            application: instance.application.to_string(),
            state: instance.state.as_str(),
            load: instance.load,
            since_ms: instance.since_ms,
            version: instance.version,
            reason: instance.reason.clone(),
        }
    }
}

impl From<&Worker> for WorkerBody {
    fn from(worker: &Worker) -> Self {
        Self {
            name: worker.id.to_string(),
            device: worker.record.device.to_string(),
            device_type: worker
                .record
                .device_type
                .as_deref()
                .map(DeviceTypeBody::from),
            endpoint: worker.record.endpoint.as_deref().map(str::to_owned),
            leaving: worker.leaving,
            draining: worker.record.draining,
            cores: worker.record.cores,
            memory_bytes: worker.record.memory_bytes,
            memory_used_bytes: worker.record.memory_used_bytes,
            utilization: worker.record.utilization,
            lease_until_ms: worker.lease_until_ms,
        }
    }
}

impl From<&DeviceType> for DeviceTypeBody {
    fn from(of: &DeviceType) -> Self {
        Self {
            name: of.name.to_string(),
            engines: of.engines.iter().map(ToString::to_string).collect(),
            slots: of.slots,
            memory_bytes: of.memory_bytes,
            price_per_hour_usd: of.price_per_hour_usd,
            start_ms: of.start_ms,
        }
    }
}

impl From<&HardwareWarning> for WarningBody {
    fn from(warning: &HardwareWarning) -> Self {
        Self {
            code: warning.code(),
            worker: warning.worker().to_string(),
            message: warning.to_string(),
        }
    }
}
