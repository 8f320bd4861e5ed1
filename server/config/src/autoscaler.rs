//! How many workers there are, and who starts and ends them.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Serialize};
use sextant_scaling::{Policy, UnknownPolicy};
use sextant_types::DeviceTypeName;

use super::section::section;

const ANY: f64 = f64::INFINITY;

section! {
    /// How many workers there should be, and what should be loaded on them. The dispatcher loads and
    /// unloads by it, providers start and end workers by it.
    Autoscaler in "autoscaler" {
        /// Time between two looks at variants and workers, milliseconds; what changes is seen at once.
        period_ms: u64 = 1000, within 10.0..=3_600_000.0;
        /// What is loaded, is not among those that should be and has had no query for so long may be
        /// unloaded, seconds.
        idle_unload_s: u64 = 600, within 1.0..=ANY;
        /// Share of each worker's memory that is filled with variants before anyone asks for them: those
        /// that no other of their application beats in everything, and one of every other model.
        warm_memory_share: f64 = 0.5, within 0.0..=1.0;
        /// Who plans. `sextant`: the cheapest workers that have time for everything, which variants share
        /// by turns. `ilp`: the integer program of INFaaS, solved exactly, where each variant on a worker is paid
        /// for itself.
        policy: ScalingPolicy = ScalingPolicy::default();
        /// How long workers stay that are not planned for any more, seconds. Within this time their
        /// number changes its direction once at most.
        hold_s: u64 = 600, within 0.0..=86_400.0;
        /// What nobody has asked for in this time needs no worker, seconds.
        idle_s: u64 = 600, within 1.0..=86_400.0;
        /// Longest that an application's first query after a pause may have to wait for a worker to start
        /// and a variant to load there, seconds. Where every worker that could answer takes longer, one
        /// stays for it although nobody asks, and `least = 0` does not let it go.
        cold_start_s: Option<f64> = None, unset "any time", within 0.0..=ANY;
        /// Most that all workers of all types may cost, US dollars an hour. The `least` of each pool
        /// stays whatever it costs.
        budget_per_hour_usd: Option<f64> = None, unset "no bound", within 0.0..=ANY;
        /// `docker`: the engine's socket.
        docker_socket: PathBuf = PathBuf::from("/var/run/docker.sock");
        /// `kubernetes`: the namespace of the workloads.
        kubernetes_namespace: Option<String> = None, unset "the one in which this process runs";
        /// `keda`: address and port on which KEDA asks how many workers are wanted.
        keda_listen: Option<SocketAddr> = None, unset "KEDA is not answered";
        sections {
            /// Workers that are started and ended by load.
            pools: BTreeMap<DeviceTypeName, Pool>;
        }
    }
}

section! {
    /// Workers that are started and ended by load, one table for each type of device; the table's name
    /// is the type's. Needs `metadata.url`, by which workers are found.
    Pool in "autoscaler.pools" each "NAME" {
        /// Fewest workers. 0 lets the last one go when nobody asks; the next query then waits for a
        /// start.
        least: u32 = 1, within 0.0..=100_000.0;
        /// Most workers.
        most: u32 = 4, within 0.0..=100_000.0;
        /// Who starts and ends them. `process`: child processes on this machine. `command`: a program
        /// of yours. `docker`: containers of a Docker engine. `kubernetes`: pods of a workload. `keda`:
        /// KEDA, which asks how many are wanted. The demo's binary has the first two alone.
        provider: ProviderKind = ProviderKind::Process;
        /// `process` and `docker`: settings of the workers beside this process's, each as
        /// `section.key=value`; `{pool}` stands for the type's name.
        settings: Vec<String> = Vec::new();
        /// Cores of each worker. `process`: the children are held to them, one after the other of this
        /// process's. `docker`: most that a container may use.
        cores: Option<u16> = None,
            unset "`process`: an equal share of this process's cores; `docker`: its machine's",
            within 1.0..=65_535.0;
        /// `process`: this machine's GPUs, one for each worker in this order, where the pool's `settings` say
        /// `worker.devices=cuda`; an empty list is those from 0 on.
        gpus: Vec<u32> = Vec::new(), within 0.0..=65_535.0;
        /// `process` and `docker`: whether the workers make variants for the engines of their devices as well, by the
        /// role `variant-gen`; it takes `registry.url`.
        registers: Option<bool> = None, unset "with GPUs, where `registry.url` is set";
        /// Memory of each worker for everything, bytes; half of it is for models. `docker`: a container
        /// that takes more is ended.
        total_memory_bytes: Option<u64> = None,
            unset "`process`: an equal share of this process's; `docker`: its machine's",
            within 67_108_864.0..=ANY;
        /// `command`: the program and its first arguments; it is called with `list`, `up` or `down`
        /// behind them.
        command: Vec<String> = Vec::new();
        /// `command`: longest time of a call, milliseconds.
        command_timeout_ms: u64 = 30_000, within 100.0..=3_600_000.0;
        /// `docker`: the image; its program is `sextant`.
        image: String = "sextant".to_owned();
        /// `docker`: the network that the containers join.
        network: Option<String> = None, unset "the engine's own";
        /// `docker`: a name by which the network finds all containers of the pool, beside their own ones.
        alias: Option<String> = None, unset "none";
        /// `docker`: labels of the containers, each as `name=value`.
        labels: Vec<String> = Vec::new();
        /// `docker`: most processes and threads of a container.
        threads: u32 = 4096, within 16.0..=4_194_304.0;
        /// `kubernetes`: the workload, `deployment/NAME` or `statefulset/NAME`.
        workload: Option<String> = None, unset "none";
        /// Longest time from being asked to end until being ended, seconds.
        end_s: u64 = 60, within 1.0..=86_400.0;
        /// Engines of the device, as long as no worker of the type was seen: with `least = 0` nothing
        /// else says what it could run.
        engines: Vec<String> = Vec::new();
        /// Batches that the device runs side by side, as long as no worker of the type was seen.
        slots: u16 = 1, within 1.0..=65_535.0;
        /// Memory of the device for variants, bytes, as long as no worker of the type was seen.
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
