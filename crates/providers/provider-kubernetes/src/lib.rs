//! Machines that are pods: each pool is a Deployment or a StatefulSet. This crate changes only its number of replicas.
//!
//! The cluster holds all state. The desired number of machines is the `replicas` of the workload's `scale`. It is read,
//! and written only if nobody has written in between, so that two callers never add up. Kubernetes chooses which pods
//! end, so those that are to end are marked first:
//!
//! - Pods of a Deployment get the annotation [`DELETION_COST`], which makes Kubernetes end them first, and [`ENDING`],
//!   by which a successor finds them after a crash. Kubernetes does not end them first in every case: pods that are not
//!   ready go before them. If marked pods are still there after that, the replicas are lowered again, until all marked
//!   pods have ended. The next [`grow`](sextant_provider::Provider::grow) replaces pods that ended in their place.
//! - Pods of a StatefulSet end from the last one down. Of the named pods, only the last ones without a gap are ended.
//!   The others go on, and are not listed as ending. Use a Deployment if it matters which pods end.
//!
//! Kubernetes creates and ends pods shortly after the replicas were written. A call waits for that, at most
//! [`Settings::settle_ms`]. A pod's own `terminationGracePeriodSeconds` limits how long it may finish its work; a
//! pool's `end_ms` has no effect on it. Kubernetes replaces a pod that ends by itself.
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

/// The annotation that makes Kubernetes end a Deployment's pod before others, with the value -1000.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The annotation of a Deployment's pod that was told to end, with the value `true`.
pub const ENDING: &str = "sextant/ending";

/// The name of the provider in its errors.
const PROVIDER: &str = "kubernetes";

/// The workloads, and the time limits of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The namespace of the workloads. `None` for that of the client's own configuration: inside a cluster the one in
    /// which this process runs.
    pub namespace: Option<String>,
    /// The workload of each pool. Two pools must not share one.
    pub pools: BTreeMap<DeviceTypeName, Workload>,
    /// Longest time that the API server may take for an answer, ms.
    pub timeout_ms: u64,
    /// Longest time that Kubernetes may take to create or end pods after a change of the replicas, ms.
    pub settle_ms: u64,
}

/// A workload whose pods are a pool's machines. Nothing else may change its replicas: no HorizontalPodAutoscaler and no
/// KEDA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
}

/// The kind of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Its pods are alike; the chosen pods end.
    Deployment,
    /// Its pods are numbered from 0; the last pods end.
    StatefulSet,
}

/// Changes the replicas of workloads. Needs a Tokio runtime with its clock and I/O.
pub struct Kubernetes {
    client: Client,
    settings: Settings,
}

// === impl Kubernetes ===

impl Kubernetes {
    /// Uses a client of the caller's. Calls nothing: if a workload does not exist, the first call fails.
    pub fn new(client: Client, settings: Settings) -> Self {
        Self { client, settings }
    }

    /// Uses the cluster in which this process runs, with its service account, or else the cluster in the kubeconfig.
    /// Calls nothing.
    ///
    /// # Errors
    /// [`Error::Away`] if there is neither, or if the configuration is not usable.
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

/// A call that its caller drops stops there. What it has written counts, and the next call continues.
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
    /// The name in the API: `Deployment`, `StatefulSet`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
        }
    }
}
