//! The fleet at a glance.

use std::{fmt, time::Duration};

use serde::Serialize;
use sextant_metadata::{Leader, Snapshot};
use sextant_objects::ListRequest;
use sextant_types::time::unix_ms;
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::ApiState;

/// How long a store may take to answer before it counts as unreachable.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who leads, and which stores answer.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Cluster)]
pub struct ClusterBody {
    /// The processes that have the roles which only one process may have, sorted by role; empty if one
    /// process has all roles and its own stores.
    leaders: Vec<LeaderBody>,
    /// This id changes when the metadata store has lost its content; absent while the store cannot be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    life: Option<u64>,
    /// Workers that hold a lease, and those of them that leave.
    workers: CountBody,
    /// `metadata`, `registry` and `artefacts`.
    stores: Vec<StoreBody>,
}

/// The process that has a role which only one process may have.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Leader)]
pub struct LeaderBody {
    /// `dispatcher` or `autoscaler`.
    role: String,
    /// An id that is unique to this run of its process.
    holder: String,
    /// Address at which others reach it.
    endpoint: String,
    /// Grows with each change of the holder.
    token: u64,
    /// When another may take over, milliseconds since the Unix epoch.
    lease_until_ms: u64,
    /// Whether its lease has lapsed and nobody has taken over.
    lapsed: bool,
}

/// Workers, counted.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = WorkerCount)]
pub struct CountBody {
    /// All of them.
    total: usize,
    /// Those that are being taken out and still serve.
    leaving: usize,
    /// Those that finish what they have accepted and leave.
    draining: usize,
}

/// A store that processes share.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Store)]
pub struct StoreBody {
    /// `metadata`, `registry` or `artefacts`.
    name: &'static str,
    /// `ok` or `away`.
    state: &'static str,
    /// Why it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

// === impl ClusterBody ===

impl ClusterBody {
    /// Asks all stores at once.
    pub(super) async fn look(state: &ApiState) -> Self {
        let one = ListRequest {
            prefix: String::new(),
            after: None,
            limit: 1,
        };
        let (metadata, registry, artefacts) = tokio::join!(
            ask(state.metadata().snapshot()),
            ask(state.registry().keys_revision()),
            ask(state.objects().list(&one)),
        );
        let stores = vec![
            StoreBody::new("metadata", metadata.as_ref().err()),
            StoreBody::new("registry", registry.as_ref().err()),
            StoreBody::new("artefacts", artefacts.as_ref().err()),
        ];
        let snapshot = metadata.ok();
        let now_ms = unix_ms();
        let leaders = snapshot.iter().flat_map(|snapshot| &snapshot.leaders);
        Self {
            leaders: leaders
                .map(|leader| LeaderBody::new(leader, now_ms))
                .collect(),
            life: snapshot.as_ref().map(|snapshot| snapshot.life),
            workers: snapshot.as_ref().map(CountBody::from).unwrap_or_default(),
            stores,
        }
    }
}

async fn ask<T, E: fmt::Display>(answer: impl Future<Output = Result<T, E>>) -> Result<T, String> {
    match timeout(PATIENCE, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {PATIENCE:?}")),
    }
}

impl LeaderBody {
    fn new(leader: &Leader, now_ms: u64) -> Self {
        Self {
            role: leader.candidate.role.to_string(),
            holder: leader.candidate.holder.to_string(),
            endpoint: leader.candidate.endpoint.to_string(),
            token: leader.token,
            lease_until_ms: leader.lease_until_ms,
            lapsed: leader.lease_until_ms <= now_ms,
        }
    }
}

impl From<&Snapshot> for CountBody {
    fn from(snapshot: &Snapshot) -> Self {
        let workers = &snapshot.workers;
        let staying = workers.iter().filter(|worker| worker.stays()).count();
        let draining = workers.iter().filter(|worker| worker.record.draining);
        let draining = draining.count();
        Self {
            total: workers.len(),
            leaving: workers.len() - staying - draining,
            draining,
        }
    }
}

impl StoreBody {
    fn new(name: &'static str, reason: Option<&String>) -> Self {
        Self {
            name,
            state: if reason.is_none() { "ok" } else { "away" },
            reason: reason.cloned(),
        }
    }
}
