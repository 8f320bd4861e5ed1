//! `/v1/audit`: who changed what.

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use sextant_registry::{Audit, AuditFilter};
use utoipa::ToSchema;

use crate::{ApiState, extract::Params, page, problem::Problem};

/// Entries of a page if no limit is given.
const PAGE: u32 = 100;

/// Which entries to list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditParams {
    actor: Option<String>,
    action: Option<String>,
    subject: Option<String>,
    since_ms: Option<u64>,
    after: Option<String>,
    before: Option<String>,
    limit: Option<u32>,
}

/// Something that was done.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub struct EntryBody {
    /// Its name.
    id: String,
    /// When it was done, milliseconds since the Unix epoch.
    at_ms: u64,
    /// Who did it: the id of a key, `administrator`, or `anonymous` if the service needs no keys.
    actor: String,
    /// What was done: `application.create`, `key.revoke`, ..
    action: String,
    /// To what: a name or an id.
    subject: String,
    /// What else is known of it.
    #[schema(value_type = Object)]
    detail: serde_json::Value,
}

/// What was done.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuditEntries)]
pub struct EntriesBody {
    /// Newest first.
    entries: Vec<EntryBody>,
    /// Where the next page begins: `?after=`.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Lists who changed what, newest first.
#[utoipa::path(get, operation_id = "audit_list", path = "/v1/audit", tag = "keys",
    params(
        ("actor" = Option<String>, Query, description = "only by this one"),
        ("action" = Option<String>, Query, description = "only this, as `key.create`"),
        ("subject" = Option<String>, Query, description = "only of this name or id"),
        ("since_ms" = Option<u64>, Query, description = "only from this time on"),
        ("after" = Option<String>, Query, description = "`next` of the page before"),
        ("before" = Option<String>, Query, description = "an older name of `after`"),
        ("limit" = Option<u32>, Query, description = "most entries; 100 if left out", minimum = 1, maximum = 1000),
    ),
    responses((status = 200, description = "Newest first", body = EntriesBody)))]
pub async fn list(
    State(state): State<ApiState>,
    Params(params): Params<AuditParams>,
) -> Result<Json<EntriesBody>, Problem> {
    let limit = page::limit(params.limit)?.unwrap_or(PAGE);
    let filter = AuditFilter {
        actor: params.actor,
        action: params.action,
        subject: params.subject,
        since_ms: params.since_ms,
        before: params.after.or(params.before),
        limit: Some(limit + 1),
    };
    let entries = state.registry().audit(&filter).await?;
    let page = page::cut_off(entries, limit, |entry| entry.id.clone());
    let entries = page.items.into_iter().map(EntryBody::from).collect();
    let next = page.next;
    Ok(Json(EntriesBody { entries, next }))
}

impl From<Audit> for EntryBody {
    fn from(entry: Audit) -> Self {
        Self {
            id: entry.id,
            at_ms: entry.at_ms,
            actor: entry.actor,
            action: entry.action,
            subject: entry.subject,
            detail: entry.detail,
        }
    }
}
