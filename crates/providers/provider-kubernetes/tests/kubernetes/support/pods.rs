//! A pod.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// A pod as the API server stores it.
#[derive(Clone)]
pub(crate) struct Fake {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// The workload whose labels it has.
    pub(crate) workload: String,
    /// Kind and name of its creator.
    pub(crate) owner: (String, String),
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) created: Timestamp,
    pub(crate) born: Instant,
    pub(crate) ready: Instant,
    pub(crate) deleted: Option<Instant>,
    /// Whether it has ended and stays in the API.
    pub(crate) failed: bool,
    /// Whether no node has room for it.
    pub(crate) unschedulable: bool,
}

impl Fake {
    pub(crate) fn new(name: String, uid: u64, workload: &str, owner: (&str, &str)) -> Self {
        let now = Instant::now();
        Self {
            name,
            uid: format!("uid-{uid}"),
            workload: workload.to_owned(),
            owner: (owner.0.to_owned(), owner.1.to_owned()),
            annotations: BTreeMap::new(),
            created: Timestamp::now(),
            born: now,
            ready: now,
            deleted: None,
            failed: false,
            unschedulable: false,
        }
    }

    pub(crate) fn ready_after(mut self, ready_ms: u64) -> Self {
        self.ready = self.born + Duration::from_millis(ready_ms);
        self
    }

    pub(crate) fn is_ready(&self) -> bool {
        !self.failed && !self.unschedulable && self.ready <= Instant::now()
    }

    /// The order in which pods end: those that are not ready first, then by their cost.
    pub(crate) fn rank(&self) -> (bool, i64, std::cmp::Reverse<Instant>) {
        let cost = self
            .annotations
            .get("controller.kubernetes.io/pod-deletion-cost");
        let cost = cost.and_then(|cost| cost.parse().ok()).unwrap_or(0);
        (self.is_ready(), cost, std::cmp::Reverse(self.born))
    }

    pub(crate) fn json(&self) -> Value {
        let ready = self.is_ready();
        let phase = match (self.failed, ready) {
            (true, _) => "Failed",
            (false, true) => "Running",
            (false, false) => "Pending",
        };
        let mut metadata = json!({
            "name": self.name,
            "namespace": super::NAMESPACE,
            "uid": self.uid,
            "labels": { "app": self.workload },
            "annotations": self.annotations,
            "creationTimestamp": self.created.to_string(),
            "ownerReferences": [{
                "apiVersion": "apps/v1",
                "kind": self.owner.0,
                "name": self.owner.1,
                "uid": "owner",
                "controller": true,
            }],
        });
        if self.deleted.is_some() {
            metadata["deletionTimestamp"] = json!(Timestamp::now().to_string());
        }
        let mut status = json!({ "phase": phase, "startTime": self.created.to_string() });
        if self.unschedulable {
            status = json!({
                "phase": "Pending",
                "conditions": [{
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
                }],
            });
        }
        if ready {
            status["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
        }
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status })
    }
}
