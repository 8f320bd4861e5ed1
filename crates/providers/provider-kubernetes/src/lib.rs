//! Machines that are pods: each pool is a Deployment or a StatefulSet, of which this crate changes the
//! number of replicas and nothing else.
//!
//! The cluster holds all state. How many machines there should be is the `replicas` of the workload's
//! `scale`; it is read, and written only if nobody has written in between, so that two callers never add
//! up. Kubernetes chooses which pods end, so those that are to end are marked first:
//!
//! - Pods of a Deployment get the annotation [`DELETION_COST`], by which Kubernetes takes them first, and
//!   [`ENDING`], by which whoever comes after a crash finds them. Kubernetes does not take them first in
//!   every case: pods that are not ready go before them. Marked pods that are still there when it is done are
//!   taken off the replicas again, until all have ended; what ended in their place is replaced by the next
//!   [`grow`](sextant_provider::Provider::grow).
//! - Pods of a StatefulSet end from the last one down. Of those named, only the last ones without a gap are
//!   ended; the others go on, and are not listed as ending. Use a Deployment where it matters which end.
//!
//! Kubernetes makes and ends pods a little after the replicas were written. A call waits for that, for
//! [`Settings::settle_ms`] at most. How long a pod may finish what it has is the pod's own
//! `terminationGracePeriodSeconds`; a pool's `end_ms` does not reach it. A pod that ends by itself is
//! replaced by Kubernetes.
//!
//! Entry point: [`Kubernetes`].

use std::collections::BTreeMap;

use async_trait::async_trait;
use kube::{Client, Config};
use sextant_provider::{Error, Machine, MachineId, Pool, Provider};
use sextant_types::DeviceTypeName;

mod api;
mod error;
mod look;
mod pod;
mod workload;

use workload::ScaledWorkload;

/// The annotation by which Kubernetes takes a Deployment's pod before others, with the value -1000.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The annotation of a Deployment's pod that was told to end, with the value `true`.
pub const ENDING: &str = "sextant/ending";

/// How its errors name it.
const PROVIDER: &str = "kubernetes";

/// Which workloads there are, and how long the cluster is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The namespace of the workloads; that of the client's own configuration where there is none: in a
    /// cluster the one in which this process runs.
    pub namespace: Option<String>,
    /// The workload of each pool. Two pools must not share one.
    pub pools: BTreeMap<DeviceTypeName, Workload>,
    /// Longest time that the API server may take for an answer, ms.
    pub timeout_ms: u64,
    /// How long Kubernetes may take to make or end pods after the replicas have changed, ms.
    pub settle_ms: u64,
}

/// A workload whose pods are a pool's machines. Nobody else may change its replicas: no
/// HorizontalPodAutoscaler, no KEDA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: String,
}

/// What a workload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Its pods are alike; those that were chosen end.
    Deployment,
    /// Its pods are numbered from 0; the last ones end.
    StatefulSet,
}

/// Changes the replicas of workloads. Needs a Tokio runtime with its clock and I/O.
pub struct Kubernetes {
    client: Client,
    settings: Settings,
}

// === impl Kubernetes ===

impl Kubernetes {
    /// Over a client of the caller's. Asks for nothing: a workload that is not there is an error of the
    /// first call.
    pub fn new(client: Client, settings: Settings) -> Self {
        Self { client, settings }
    }

    /// Over the cluster in which this process runs, by its service account, or else over the one of the
    /// kubeconfig. Asks for nothing.
    ///
    /// # Errors
    /// [`Error::Away`] where there is neither, or what is there is not usable.
    pub async fn connect(settings: Settings) -> Result<Self, Error> {
        let config = Config::infer().await.map_err(error::no_cluster)?;
        let client = Client::try_from(config).map_err(error::no_cluster)?;
        Ok(Self::new(client, settings))
    }

    fn scaled(&self, pool: &Pool) -> Result<ScaledWorkload, Error> {
        let name = &pool.device_type;
        let workload = self.settings.pools.get(name);
        let workload = workload.ok_or_else(|| error::no_workload(name))?;
        let api = api::Api::new(self.client.clone(), &self.settings, name, workload);
        Ok(ScaledWorkload::new(
            api,
            workload.clone(),
            self.settings.settle_ms,
        ))
    }
}

/// A call that its caller gives up stops there. What it has written counts, and the next call goes on.
#[async_trait]
impl Provider for Kubernetes {
    fn name(&self) -> &'static str {
        PROVIDER
    }

    async fn list(&self, pool: &Pool) -> Result<Vec<Machine>, Error> {
        self.scaled(pool)?.list().await
    }

    async fn grow(&self, pool: &Pool, count: u32) -> Result<(), Error> {
        self.scaled(pool)?.grow(count).await
    }

    async fn end(&self, pool: &Pool, machines: &[MachineId]) -> Result<(), Error> {
        if machines.is_empty() {
            return Ok(());
        }
        self.scaled(pool)?.end(machines).await
    }
}

// === impl Kind ===

impl Kind {
    /// As in the API: `Deployment`, `StatefulSet`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
        }
    }
}
