//! A pod as a machine.

use k8s_openapi::{
    api::core::v1::{Pod, PodStatus},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
};
use sextant_provider::{Machine, MachineId, State};
use sextant_types::WorkerId;

use crate::{ENDING, Kind, Workload};

/// A pod of a workload that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LivePod {
    /// Its name, which is also its worker's.
    pub(crate) name: String,
    /// The provider's id: its name, or its uid if names are reused.
    pub(crate) id: MachineId,
    /// Its number, if it belongs to a StatefulSet.
    pub(crate) ordinal: Option<u32>,
    /// Whether Kubernetes ends it.
    pub(crate) leaves: bool,
    /// Whether it was told to end.
    pub(crate) marked: bool,
    ready: bool,
    since_ms: u64,
}

// === impl LivePod ===

impl LivePod {
    /// `None` if it is not the workload's, or has ended.
    pub(crate) fn read(pod: Pod, workload: &Workload) -> Option<Self> {
        let Pod {
            metadata, status, ..
        } = pod;
        let status = status.unwrap_or_default();
        let (name, uid) = (metadata.name.clone()?, metadata.uid.clone()?);
        if !owned(&metadata, workload) || has_ended(&status) {
            return None;
        }
        let since = status.start_time.as_ref();
        let since = since.or(metadata.creation_timestamp.as_ref());
        Some(Self {
            id: MachineId(match workload.kind {
                Kind::Deployment => name.clone(),
                Kind::StatefulSet => format!("{name}/{uid}"),
            }),
            ordinal: ordinal(&name, workload),
            leaves: metadata.deletion_timestamp.is_some(),
            marked: marked(&metadata),
            ready: is_ready(&status),
            since_ms: since.map_or(0, unix_ms),
            name,
        })
    }

    /// The pod as the provider lists it.
    pub(crate) fn machine(&self, ends: bool) -> Machine {
        Machine {
            id: self.id.clone(),
            worker: WorkerId::new(&*self.name).ok(),
            state: match (ends, self.ready) {
                (true, _) => State::Ending,
                (false, true) => State::Running,
                (false, false) => State::Starting,
            },
            since_ms: self.since_ms,
        }
    }
}

/// Whether it was created for the workload. A Deployment owns its pods through ReplicaSets, whose names begin with the
/// Deployment's.
fn owned(metadata: &ObjectMeta, workload: &Workload) -> bool {
    let controls = |owner: &&OwnerReference| owner.controller == Some(true);
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(controls).is_some_and(|owner| {
        let rest = owner.name.strip_prefix(&workload.name);
        match workload.kind {
            Kind::Deployment => {
                owner.kind == "ReplicaSet" && rest.is_some_and(|rest| rest.starts_with('-'))
            }
            Kind::StatefulSet => owner.kind == workload.kind.name() && rest == Some(""),
        }
    })
}

/// Whether the pod has ended. An ended pod stays in the API for a while.
fn has_ended(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

fn is_ready(status: &PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    status.phase.as_deref() == Some("Running")
        && conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn marked(metadata: &ObjectMeta) -> bool {
    let annotations = metadata.annotations.as_ref();
    annotations.is_some_and(|annotations| annotations.contains_key(ENDING))
}

fn ordinal(name: &str, workload: &Workload) -> Option<u32> {
    let number = name.strip_prefix(&workload.name)?.strip_prefix('-')?;
    match workload.kind {
        Kind::Deployment => None,
        Kind::StatefulSet => number.parse().ok(),
    }
}

fn unix_ms(time: &Time) -> u64 {
    u64::try_from(time.0.as_millisecond()).unwrap_or(0)
}
