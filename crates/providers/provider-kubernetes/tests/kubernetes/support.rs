//! A simulated cluster: an API server with the necessary calls, and what Kubernetes does behind it a little later.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use http::{Method, Request, Response};
use kube::{Client, client::Body};
use sextant_provider::{Error, Machine, MachineId, Pool, Provider, State};
use sextant_provider_kubernetes::{Kind, Kubernetes, Settings, Workload};
use sextant_types::DeviceTypeName;

mod answers;
mod controller;
mod pods;
mod state;

pub(crate) use pods::Fake;
pub(crate) use state::{Fault, FaultKind, World};

/// The namespace of everything.
pub(crate) const NAMESPACE: &str = "fleet";

/// Longest wait for a state.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A cluster. Clones are the same one.
#[derive(Clone, Default)]
pub(crate) struct Cluster(Arc<Mutex<World>>);

impl Cluster {
    /// A cluster with one workload, `workers`, of pool `cpu-8`, which should have this number of pods and has them.
    pub(crate) async fn with(kind: Kind, replicas: u32) -> Self {
        let cluster = Self::default();
        cluster
            .world()
            .add("workers", kind, replicas, 600_000, true);
        until("all run", async || {
            let running = cluster.world().running("workers");
            (running == replicas as usize).then_some(())
        })
        .await;
        cluster
    }

    /// The present state.
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        let mut world = self.0.lock().expect("no test panicked with it");
        world.advance(Instant::now());
        world
    }

    /// Another client, like that of another process.
    pub(crate) fn client(&self) -> Client {
        let (service, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let cluster = self.clone();
        tokio::spawn(async move {
            let mut hanging = Vec::new();
            while let Some((request, reply)) = handle.next_request().await {
                match cluster.answered(request).await {
                    Some(response) => reply.send_response(response),
                    None => hanging.push(reply),
                }
            }
        });
        Client::new(service, "default")
    }

    async fn answered(&self, request: Request<Body>) -> Option<Response<Body>> {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await.expect("a body");
        self.world().answer(&head.method, &head.uri, &body)
    }

    /// A provider with pool `cpu-8`.
    pub(crate) fn provider(&self, kind: Kind) -> Kubernetes {
        Kubernetes::new(self.client(), one_pool(kind))
    }

    /// The same with this time limit for answers.
    pub(crate) fn impatient(&self, kind: Kind, timeout_ms: u64) -> Kubernetes {
        let settings = Settings {
            timeout_ms,
            ..one_pool(kind)
        };
        Kubernetes::new(self.client(), settings)
    }

    /// The same with a short wait for what Kubernetes does.
    pub(crate) fn hasty(&self, kind: Kind) -> Kubernetes {
        let settings = Settings {
            settle_ms: 100,
            ..one_pool(kind)
        };
        Kubernetes::new(self.client(), settings)
    }

    /// Makes the next call fail whose path has this end, or all such calls.
    pub(crate) fn inject(
        &self,
        method: &Method,
        path_end: &'static str,
        times: u32,
        what: FaultKind,
    ) {
        self.world().faults.push(Fault {
            method: method.clone(),
            path_end,
            times,
            what,
        });
    }

    pub(crate) fn replicas(&self) -> u32 {
        self.world().workloads["workers"].replicas
    }
}

fn one_pool(kind: Kind) -> Settings {
    let name = "workers".to_owned();
    settings([("cpu-8".to_owned(), Workload { kind, name })])
}

pub(crate) fn settings(pools: impl IntoIterator<Item = (String, Workload)>) -> Settings {
    let pools: BTreeMap<DeviceTypeName, Workload> = pools
        .into_iter()
        .map(|(name, workload)| (DeviceTypeName::new(&*name).expect("a name"), workload))
        .collect();
    Settings {
        namespace: Some(NAMESPACE.to_owned()),
        pools,
        timeout_ms: 60_000,
        settle_ms: 5000,
    }
}

pub(crate) fn pool() -> Pool {
    Pool {
        device_type: DeviceTypeName::new("cpu-8").expect("a name"),
        end_ms: 600_000,
    }
}

/// Looks until there is a result.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) async fn list(provider: &Kubernetes) -> Vec<Machine> {
    provider.list(&pool()).await.expect("list")
}

/// Machines that do not end.
pub(crate) async fn staying(provider: &Kubernetes) -> Vec<MachineId> {
    let machines = list(provider).await.into_iter();
    machines
        .filter(|machine| machine.state != State::Ending)
        .map(|machine| machine.id)
        .collect()
}

/// The text of a refusal.
pub(crate) fn refusal(result: Result<(), Error>) -> String {
    match result.expect_err("refused") {
        Error::Refused { reason, .. } => reason,
        other => panic!("{other}"),
    }
}

/// The text of an error about an unreachable server.
pub(crate) fn absence(result: Result<(), Error>) -> String {
    match result.expect_err("away") {
        Error::Away { reason, .. } => reason,
        other => panic!("{other}"),
    }
}
