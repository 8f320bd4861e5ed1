//! The calls of the API server, each with the time limit of the settings.

use std::{future::Future, time::Duration};

use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    autoscaling::v1::Scale,
    core::v1::Pod,
};
use kube::{
    Client,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::json;
use sextant_provider::Error;
use sextant_types::DeviceTypeName;
use tokio::time::timeout;

use crate::{
    DELETION_COST, ENDING, Kind, Settings, Workload,
    error::{CONFLICT, NOT_FOUND, away, failed, no_such_workload, refused},
};

/// Far below 0, the default of pods.
const FIRST_TO_GO: &str = "-1000";

/// One workload and its pods.
pub(crate) struct Api {
    workloads: kube::Api<DynamicObject>,
    pods: kube::Api<Pod>,
    pool: DeviceTypeName,
    name: String,
    /// The workload's name, for people.
    pub(crate) workload: String,
    timeout_ms: u64,
}

/// The desired number of a workload's pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replicas {
    pub(crate) count: u32,
    /// Changes with every write of the workload.
    version: String,
    /// Labels that its pods have and other pods do not.
    selector: String,
}

/// The result of a write that must not undo another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    /// It was written.
    Yes,
    /// Somebody else has written since the read.
    Outdated,
}

// === impl Api ===

impl Api {
    pub(crate) fn new(
        client: Client,
        settings: &Settings,
        pool: &DeviceTypeName,
        workload: &Workload,
    ) -> Self {
        let own = client.default_namespace().to_owned();
        let namespace = settings.namespace.clone().unwrap_or(own);
        let resource = match workload.kind {
            Kind::Deployment => ApiResource::erase::<Deployment>(&()),
            Kind::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
        };
        Self {
            workloads: kube::Api::namespaced_with(client.clone(), &namespace, &resource),
            pods: kube::Api::namespaced(client, &namespace),
            pool: pool.clone(),
            name: workload.name.clone(),
            workload: format!("{} `{namespace}/{}`", workload.kind.name(), workload.name),
            timeout_ms: settings.timeout_ms,
        }
    }

    pub(crate) async fn replicas(&self) -> Result<Replicas, Error> {
        let call = format!("reading the scale of {}", self.workload);
        let scale = self
            .made(&call, self.workloads.get_scale(&self.name))
            .await?;
        match scale {
            Ok(scale) => replicas(scale)
                .map_err(|missing| refused(format!("{call} was answered without `{missing}`"))),
            Err(error) if code(&error) == NOT_FOUND => {
                Err(no_such_workload(&self.pool, &self.workload))
            }
            Err(error) => Err(failed(&call, error)),
        }
    }

    /// Writes the number of replicas, unless the workload was written since `read`.
    pub(crate) async fn write(&self, read: &Replicas, count: u32) -> Result<WriteOutcome, Error> {
        let call = format!("writing the scale of {}", self.workload);
        let patch = Patch::Merge(json!({
            "metadata": { "resourceVersion": read.version },
            "spec": { "replicas": count },
        }));
        let parameters = PatchParams::default();
        let scale = self.workloads.patch_scale(&self.name, &parameters, &patch);
        match self.made(&call, scale).await? {
            Ok(_) => Ok(WriteOutcome::Yes),
            Err(error) if code(&error) == CONFLICT => Ok(WriteOutcome::Outdated),
            Err(error) if code(&error) == NOT_FOUND => {
                Err(no_such_workload(&self.pool, &self.workload))
            }
            Err(error) => Err(failed(&call, error)),
        }
    }

    /// All pods that the selector finds, including those that are not the workload's.
    pub(crate) async fn pods(&self, of: &Replicas) -> Result<Vec<Pod>, Error> {
        let call = format!("listing the pods of {}", self.workload);
        let parameters = ListParams::default().labels(&of.selector);
        let pods = self.made(&call, self.pods.list(&parameters)).await?;
        Ok(pods.map_err(|error| failed(&call, error))?.items)
    }

    /// Marks a pod to end before others. A pod that is gone is no error.
    pub(crate) async fn mark(&self, pod: &str) -> Result<(), Error> {
        let call = format!("annotating pod `{pod}` of {}", self.workload);
        let annotations = json!({ DELETION_COST: FIRST_TO_GO, ENDING: "true" });
        let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
        let parameters = PatchParams::default();
        match self
            .made(&call, self.pods.patch(pod, &parameters, &patch))
            .await?
        {
            Ok(_) => Ok(()),
            Err(error) if code(&error) == NOT_FOUND => Ok(()),
            Err(error) => Err(failed(&call, error)),
        }
    }

    /// The result of a call, if it came in time.
    async fn made<T>(
        &self,
        call: &str,
        answer: impl Future<Output = kube::Result<T>>,
    ) -> Result<kube::Result<T>, Error> {
        let limit = Duration::from_millis(self.timeout_ms);
        let late = |_| {
            away(format!(
                "{call} was not answered within {} ms",
                self.timeout_ms
            ))
        };
        timeout(limit, answer).await.map_err(late)
    }
}

/// The HTTP code with which the server refused; 0 if there was no answer.
fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}

/// The contents of a scale, or the name of what it lacks.
fn replicas(scale: Scale) -> Result<Replicas, &'static str> {
    let spec = scale.spec.ok_or("spec")?;
    let status = scale.status.ok_or("status")?;
    // An empty selector finds the pods of all workloads.
    let selector = status.selector.filter(|selector| !selector.is_empty());
    Ok(Replicas {
        // The API omits a 0.
        count: u32::try_from(spec.replicas.unwrap_or(0)).map_err(|_| "spec.replicas")?,
        version: scale
            .metadata
            .resource_version
            .ok_or("metadata.resourceVersion")?,
        selector: selector.ok_or("status.selector")?,
    })
}
