//! How many workers there are, and who starts and ends them.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Serialize};
use sextant_scaling::{Policy, UnknownPolicy};
use sextant_types::DeviceTypeName;

use super::section::section;

const ANY: f64 = f64::INFINITY;

section! {
    /// The autoscaler decides how many workers there should be and what is desired on them. The dispatcher loads and
    /// unloads by its decisions, and providers start and end workers by them.
    Autoscaler in "autoscaler" {
        /// Time between two decisions, milliseconds; the autoscaler sees changes of variants and workers at once.
        period_ms: u64 = 1000, within 10.0..=3_600_000.0;
        /// Time without queries after which a loaded variant that is not desired on its worker may be unloaded,
        /// seconds.
        idle_unload_s: u64 = 600, within 1.0..=ANY;
        /// Share of each worker's memory that is filled with variants before anyone asks for them: the variants on
        /// the frontier of their application, and one variant of every other model.
        warm_memory_share: f64 = 0.5, within 0.0..=1.0;
        /// The planner. `sextant` plans the cheapest workers that have time for all queries; variants share a worker
        /// by turns. `ilp` solves the integer program of INFaaS exactly; each variant on a worker is paid for
        /// separately.
        policy: ScalingPolicy = ScalingPolicy::default();
        /// How long workers stay that the plan no longer needs, seconds. Within this time their number changes its
        /// direction at most once.
        hold_s: u64 = 600, within 0.0..=86_400.0;
        /// Time without queries after which an application needs no worker, seconds.
        idle_s: u64 = 600, within 1.0..=86_400.0;
        /// Longest time that an application's first query after a pause may have to wait for a worker to start and a
        /// variant to load there, seconds. If every worker that could answer takes longer, one worker stays for the
        /// application although nobody asks it, even with `least = 0`.
        cold_start_s: Option<f64> = None, unset "any time", within 0.0..=ANY;
        /// Most that all workers of all types may cost, US dollars an hour. The `least` workers of each pool stay
        /// whatever they cost.
        budget_per_hour_usd: Option<f64> = None, unset "no bound", within 0.0..=ANY;
        /// `docker`: the socket of the Docker engine.
        docker_socket: PathBuf = PathBuf::from("/var/run/docker.sock");
        /// `kubernetes`: the namespace of the workloads.
        kubernetes_namespace: Option<String> = None, unset "the one in which this process runs";
        /// `keda`: address and port at which KEDA asks for the desired number of workers.
        keda_listen: Option<SocketAddr> = None, unset "KEDA is not answered";
        sections {
            /// Workers that are started and ended by load.
            pools: BTreeMap<DeviceTypeName, Pool>;
        }
    }
}

section! {
    /// Workers that are started and ended by load, one table for each type of device; the table's name is the type's.
    /// Needs `metadata.url`, because the workers are found through the metadata store.
    Pool in "autoscaler.pools" each "NAME" {
        /// Fewest workers. With 0 the last worker is ended if nobody asks; the next query then waits for a worker to
        /// start.
        least: u32 = 1, within 0.0..=100_000.0;
        /// Most workers.
        most: u32 = 4, within 0.0..=100_000.0;
        /// What starts and ends the workers. `process`: child processes on this machine. `command`: a program of
        /// yours. `docker`: containers of a Docker engine. `kubernetes`: pods of a workload. `keda`: KEDA, which asks
        /// for the desired number. The demo's binary has only the first two.
        provider: ProviderKind = ProviderKind::Process;
        /// `process` and `docker`: settings of the workers besides those of this process, each as
        /// `section.key=value`; `{pool}` stands for the type's name.
        settings: Vec<String> = Vec::new();
        /// Cores of each worker. `process`: each child is bound to its own share of this process's cores, one after
        /// the other. `docker`: the most cores that a container may use.
        cores: Option<u16> = None,
            unset "`process`: an equal share of this process's cores; `docker`: its machine's",
            within 1.0..=65_535.0;
        /// `process`: this machine's GPUs, one for each worker in this order, if the pool's `settings` contain
        /// `worker.devices=cuda`; an empty list means the GPUs from 0 on.
        gpus: Vec<u32> = Vec::new(), within 0.0..=65_535.0;
        /// `process` and `docker`: whether the workers also have the role `variant-gen` and make variants for the
        /// engines of their devices; this needs `registry.url`.
        registers: Option<bool> = None, unset "with GPUs, where `registry.url` is set";
        /// Memory of each worker for everything, bytes; half of it is for models. `docker`: a container
        /// that takes more is ended.
        total_memory_bytes: Option<u64> = None,
            unset "`process`: an equal share of this process's; `docker`: its machine's",
            within 67_108_864.0..=ANY;
        /// `command`: the program and its first arguments; the autoscaler appends `list`, `up` or `down`.
        command: Vec<String> = Vec::new();
        /// `command`: longest time of a call, milliseconds.
        command_timeout_ms: u64 = 30_000, within 100.0..=3_600_000.0;
        /// `docker`: the image; its program is `sextant`.
        image: String = "sextant".to_owned();
        /// `docker`: the network that the containers join.
        network: Option<String> = None, unset "the engine's own";
        /// `docker`: a name under which the network finds all containers of the pool, besides their own names.
        alias: Option<String> = None, unset "none";
        /// `docker`: labels of the containers, each as `name=value`.
        labels: Vec<String> = Vec::new();
        /// `docker`: most processes and threads of a container.
        threads: u32 = 4096, within 16.0..=4_194_304.0;
        /// `kubernetes`: the workload, `deployment/NAME` or `statefulset/NAME`.
        workload: Option<String> = None, unset "none";
        /// Longest time that a worker which is asked to end may take; then it is ended, seconds.
        end_s: u64 = 60, within 1.0..=86_400.0;
        /// Engines of the device, used until a worker of the type has been seen: with `least = 0` nothing else says
        /// what the device can run.
        engines: Vec<String> = Vec::new();
        /// Batches that the device runs side by side, used until a worker of the type has been seen.
        slots: u16 = 1, within 1.0..=65_535.0;
        /// Memory of the device for variants, bytes, used until a worker of the type has been seen.
        memory_bytes: u64 = 8 << 30, within 1_048_576.0..=ANY;
    }
}

/// Who starts and ends workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProviderKind {
    /// Child processes on this machine.
    Process,
    /// A program of the user's.
    Command,
    /// Containers of a Docker engine.
    Docker,
    /// Pods of a Deployment or a StatefulSet.
    Kubernetes,
    /// KEDA.
    Keda,
}

/// A planner by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ScalingPolicy(pub Policy);

// === impl ProviderKind ===

impl ProviderKind {
    /// The words of the configuration.
    pub(super) const NAMES: &'static [&'static str] =
        &["process", "command", "docker", "kubernetes", "keda"];

    /// `process`, ..
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

// === impl ScalingPolicy ===

impl ScalingPolicy {
    /// The words of the configuration.
    pub(super) const NAMES: &'static [&'static str] = &["sextant", "ilp"];
}

impl TryFrom<String> for ScalingPolicy {
    type Error = UnknownPolicy;

    fn try_from(name: String) -> Result<Self, UnknownPolicy> {
        name.parse().map(Self)
    }
}

impl From<ScalingPolicy> for String {
    fn from(policy: ScalingPolicy) -> Self {
        policy.0.name().to_owned()
    }
}
