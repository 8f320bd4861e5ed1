//! `/v1/storage`: what uses the artefact store, and the release of what nothing uses.

use std::time::Duration;

use axum::{
    Extension, Json,
    extract::{Request, State},
    http::StatusCode,
};
use serde::{Deserialize, Serialize};
use sextant_storage::{Amount, Kind, SweepReport, Usage, Use};
use utoipa::ToSchema;

use crate::{
    ApiState,
    auth::Subject,
    json,
    problem::{Problem, ProblemBody},
};

/// Who uses what.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Storage)]
pub struct StorageBody {
    /// Sorted by kind, application and model; every object counts once.
    uses: Vec<UseBody>,
    /// Objects in the store.
    objects: u64,
    /// Bytes of all.
    bytes: u64,
    /// Most bytes that the store may hold, if `limits.storage_bytes` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_bytes: Option<u64>,
}

/// What somebody uses.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StorageUse)]
pub struct UseBody {
    /// `model`, `validation` and `variant` (files of models), `input`, `output`, `parts` and `notes` (files
    /// of jobs), `file` (files that no job names), or `unreferenced` (files that nothing uses).
    kind: &'static str,
    /// The application, if it belongs to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    application: Option<String>,
    /// The model, if it belongs to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// How many objects.
    objects: u64,
    /// Bytes of all.
    bytes: u64,
}

/// How to sweep.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewSweep)]
pub struct SweepBody {
    /// The sweep removes blobs to which nothing refers and that were last stored longer ago than this,
    /// seconds; the default is `storage.grace_s`. If this is less than an upload takes, an upload in progress
    /// may be refused and must be sent again.
    grace_s: Option<u64>,
}

/// What a sweep removed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Sweep)]
pub struct FreedBody {
    /// Bytes of everything that was removed.
    bytes: u64,
    /// Blobs to which nothing referred.
    blobs: AmountBody,
    /// Parts of ended jobs.
    parts: AmountBody,
    /// Notes on the webhooks of removed jobs.
    notes: AmountBody,
    /// Ended jobs that were removed.
    jobs: u64,
    /// Models that were removed because their registration had failed.
    models: u64,
    /// Entries of the audit record that were removed.
    audit: u64,
}

/// A number of objects and their size.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StorageAmount)]
pub struct AmountBody {
    /// How many.
    objects: u64,
    /// Bytes of all.
    bytes: u64,
}

/// Shows what uses the artefact store. It takes as long as listing the store.
#[utoipa::path(get, operation_id = "storage_get", path = "/v1/storage", tag = "storage",
    responses((status = 200, description = "Who uses what", body = StorageBody)))]
pub async fn get(State(state): State<ApiState>) -> Result<Json<StorageBody>, Problem> {
    Ok(Json(state.storage().usage().await?.into()))
}

/// Removes now what nobody needs, and reports what was removed.
#[utoipa::path(post, operation_id = "storage_sweep", path = "/v1/storage/sweep", tag = "storage",
    request_body = Option<SweepBody>,
    responses(
        (status = 200, description = "What was removed", body = FreedBody),
        (status = 400, description = "The body is not such a document", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn sweep(
    State(state): State<ApiState>,
    request: Request,
) -> Result<(Extension<Subject>, Json<FreedBody>), Problem> {
    let bytes = state.collect_document(request.into_body()).await?;
    let body: SweepBody = match bytes.is_empty() {
        true => SweepBody::default(),
        false => json::owned(&bytes)?,
    };
    let grace = body.grace_s.map(Duration::from_secs);
    let freed = state.storage().sweep(grace).await?;
    // Models may be among the released files.
    state.refresh().await?;
    Ok((Extension(Subject("storage".to_owned())), Json(freed.into())))
}

/// Assigns the artefact store to this registry, whatever registry it belonged to. Sweeps then remove the
/// files that the registry does not name.
#[utoipa::path(post, operation_id = "storage_adopt", path = "/v1/storage/adopt", tag = "storage",
    responses((status = 204, description = "Registry and store belong together")))]
pub async fn adopt(
    State(state): State<ApiState>,
) -> Result<(Extension<Subject>, StatusCode), Problem> {
    state.storage().adopt().await?;
    Ok((
        Extension(Subject("storage".to_owned())),
        StatusCode::NO_CONTENT,
    ))
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Model => "model",
        Kind::Validation => "validation",
        Kind::Variant => "variant",
        Kind::Pipeline => "pipeline",
        Kind::Input => "input",
        Kind::Output => "output",
        Kind::Parts => "parts",
        Kind::Notes => "notes",
        Kind::File => "file",
        Kind::Unreferenced => "unreferenced",
    }
}

impl From<Usage> for StorageBody {
    fn from(usage: Usage) -> Self {
        Self {
            uses: usage.uses.into_iter().map(UseBody::from).collect(),
            objects: usage.total.objects,
            bytes: usage.total.bytes,
            limit_bytes: usage.limit_bytes,
        }
    }
}

impl From<(Use, Amount)> for UseBody {
    fn from((used, amount): (Use, Amount)) -> Self {
        Self {
            kind: name(used.kind),
            application: used.application.map(|name| name.to_string()),
            model: used.model.map(|name| name.to_string()),
            objects: amount.objects,
            bytes: amount.bytes,
        }
    }
}

impl From<Amount> for AmountBody {
    fn from(Amount { objects, bytes }: Amount) -> Self {
        Self { objects, bytes }
    }
}

impl From<SweepReport> for FreedBody {
    fn from(freed: SweepReport) -> Self {
        Self {
            bytes: freed.bytes(),
            blobs: freed.blobs.into(),
            parts: freed.parts.into(),
            notes: freed.notes.into(),
            jobs: freed.jobs,
            models: freed.models,
            audit: freed.audit,
        }
    }
}
