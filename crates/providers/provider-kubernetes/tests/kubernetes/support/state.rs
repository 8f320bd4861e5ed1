//! The state of a cluster.

use std::{collections::BTreeMap, time::Instant};

use http::Method;
use sextant_provider_kubernetes::Kind;

use super::pods::Fake;

/// Workloads and pods.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) workloads: BTreeMap<String, Scalable>,
    /// By name.
    pub(crate) pods: BTreeMap<String, Fake>,
    pub(crate) faults: Vec<Fault>,
    /// Method and path of each call.
    pub(crate) calls: Vec<(Method, String)>,
    /// Whether Kubernetes does nothing at present.
    pub(crate) stalled: bool,
    /// Number of uids and names that were given.
    pub(crate) given: u64,
}

/// A Deployment or a StatefulSet.
pub(crate) struct Scalable {
    pub(crate) kind: Kind,
    pub(crate) replicas: u32,
    pub(crate) version: u64,
    /// When the replicas were last written.
    pub(crate) written: Instant,
    /// Time that its pods get to finish, ms.
    pub(crate) grace_ms: u64,
    /// Whether its pods end when they are asked to.
    pub(crate) heeds: bool,
    /// Time that its pods take until they are ready, ms.
    pub(crate) ready_ms: u64,
}

/// A fault of calls.
pub(crate) struct Fault {
    pub(crate) method: Method,
    pub(crate) path_end: &'static str,
    /// Number of calls that it affects.
    pub(crate) times: u32,
    pub(crate) what: FaultKind,
}

/// How it fails.
#[derive(Clone)]
pub(crate) enum FaultKind {
    /// With this code and this message.
    Status(u16, &'static str),
    /// It is never answered.
    Hang,
    /// It is answered with this text and code 200.
    Raw(&'static str),
    /// It succeeds, but this happens just before.
    After(fn(&mut World)),
}

impl World {
    pub(crate) fn add(
        &mut self,
        name: &str,
        kind: Kind,
        replicas: u32,
        grace_ms: u64,
        heeds: bool,
    ) {
        let workload = Scalable {
            kind,
            replicas,
            version: 1,
            written: Instant::now(),
            grace_ms,
            heeds,
            ready_ms: 30,
        };
        self.workloads.insert(name.to_owned(), workload);
    }

    /// Writes the replicas as somebody else does.
    pub(crate) fn scale(&mut self, replicas: u32) {
        let workload = self.workloads.get_mut("workers").expect("it is there");
        workload.replicas = replicas;
        workload.version += 1;
        workload.written = Instant::now();
    }

    /// Number of ready pods of a workload.
    pub(crate) fn running(&self, workload: &str) -> usize {
        let pods = self.pods.values();
        pods.filter(|pod| pod.workload == workload && pod.is_ready())
            .count()
    }

    pub(super) fn next(&mut self) -> u64 {
        self.given += 1;
        self.given
    }
}
