//! The sections. The text of every field is its documentation in `docs/config.md`.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Serialize};
use sextant_types::DeviceTypeName;

use super::{
    Roles,
    autoscaler::{Autoscaler, Pool},
    fleet::{Auth, Fleet, Metadata, Objects, Registry, Tls},
    health::Health,
    pipelines::{Pipelines, Python},
    schedule::{Agreement, Cache, Claims, Dispatcher, Placement, Schedule},
    section::{Section, section},
    worker::{Cuda, Emulated, EmulatedType, Remote, Worker},
};

const ANY: f64 = f64::INFINITY;

section! {
    /// Where the service listens, what it does and where it keeps its data.
    Config in "" {
        /// Address and port of the HTTP API; port 0 takes a free one.
        listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 8080));
        /// Parts of the service that this process runs.
        roles: Roles = Roles::default();
        /// Folder of the registry and the artefact store; created when missing.
        data_dir: PathBuf = PathBuf::from("./data");
        /// ONNX Runtime shared library that the engine `ort` loads.
        onnxruntime_library: Option<PathBuf> = None,
            unset "`ORT_DYLIB_PATH`, then the package `onnxruntime` beside `sextant`, then the library in the cache folder";
        /// OpenVINO's shared library `libopenvino_c`, which the engine `openvino` loads, beside those that it
        /// needs itself.
        openvino_library: Option<PathBuf> = None,
            unset "the library in the cache folder";
        sections {
            /// What is logged.
            log: Log;
            /// Who runs what: instances, leases, leaders.
            metadata: Metadata;
            /// Applications, models, variants, jobs and keys.
            registry: Registry;
            /// Models, validation sets, inputs and outputs of jobs.
            objects: Objects;
            /// The processes that work together, and how they reach each other.
            fleet: Fleet;
            /// Who may ask.
            auth: Auth;
            /// Encryption of the HTTP API and of gRPC.
            tls: Tls;
            /// Which pages of other origins may ask, in browsers.
            cors: Cors;
            /// The Open Inference Protocol over gRPC.
            grpc: Grpc;
            /// The Open Inference Protocol.
            v2: V2;
            /// Where batches run.
            worker: Worker;
            /// What lies between a query and the worker.
            dispatcher: Dispatcher;
            /// What registration generates and measures.
            variants: Variants;
            /// What resources cost.
            prices: Prices;
            /// When instances come and go.
            autoscaler: Autoscaler;
            /// What is refused.
            limits: Limits;
            /// Applications that several steps answer.
            pipelines: Pipelines;
            /// Offline jobs.
            jobs: Jobs;
            /// What is kept for how long.
            storage: Storage;
            /// The asynchronous runtime.
            runtime: Runtime;
        }
    }
}

section! {
    /// What is logged to standard error.
    Log in "log" {
        /// Least level, or a filter such as `info,sextant_dispatcher=debug`.
        level: String = "info".to_owned();
        /// Lines for people or one JSON object per line.
        format: LogFormat = LogFormat::Text;
    }
}

section! {
    /// Browsers: pages of other origins that may ask this service with a script.
    Cors in "cors" {
        /// Their origins, such as `https://app.example.com`; `*` stands for all. Keys are asked for as elsewhere.
        origins: Vec<String> = Vec::new();
    }
}

section! {
    /// gRPC: the Open Inference Protocol, health and reflection. It is served where HTTP is, too.
    Grpc in "grpc" {
        /// Address and port of its own for gRPC, as clients expect that were written for two ports; port 0 takes a
        /// free one. Encryption, keys and limits are those of `listen`, and so are the routes.
        listen: Option<SocketAddr> = None, unset "the port of `listen` alone";
    }
}

section! {
    /// The Open Inference Protocol, over HTTP and gRPC.
    V2 in "v2" {
        /// Whether clients of this machine may register files of `/dev/shm`, from which their inputs are read and
        /// into which their outputs are written. Whoever may ask queries then has the service read and write every
        /// plain file there that its user may.
        shared_memory: bool = false;
        /// Whether answers over gRPC are in `raw_output_contents` even where a query has its inputs in typed fields, as
        /// Triton answers; without it an answer comes in the form of its query.
        raw_answers: bool = false;
    }
}

section! {
    /// What a registration generates and measures.
    Variants in "variants" {
        /// Engines of the CPU that variants are made for. `emulated` runs there unless devices are
        /// emulated.
        engines: Engines = Engines::default();
        /// Whether models are registered here. With `false` a process with the role `variant-gen` only
        /// adds variants for its own engines to models that others have registered.
        register: bool = true;
        /// Whether models are measured in a process of their own, so that one that crashes an engine, takes
        /// all memory or never ends fails its own registration and nothing else.
        isolate: bool = true;
        /// Memory that this process may take, bytes. What it needs beyond a model's weights is part of it.
        memory_bytes: Option<u64> = None, unset "half of what the process may use",
            within 268_435_456.0..=ANY;
        /// Longest time that one load or one run there computes, milliseconds; what takes longer is ended. On a machine that
        /// has no time for it, it may take ten times as long.
        longest_step_ms: u64 = 60_000, within 100.0..=86_400_000.0;
        /// The same of all loads and runs of one configuration, milliseconds.
        longest_configuration_ms: u64 = 3_600_000, within 100.0..=86_400_000.0;
        /// Most registrations at once. One runs alone, so that nothing disturbs what it measures, unless it is slow.
        max_registrations: Option<u16> = None, unset "as many as have memory, from 2 to 4", within 1.0..=64.0;
        /// Time after which a registration is slow, milliseconds: one of another application then begins beside it.
        slow_registration_ms: u64 = 5_000, within 0.0..=86_400_000.0;
        /// Most intra-op threads of a variant, never more than the worker's cores.
        max_threads: Option<u16> = None, unset "the worker's cores", within 1.0..=65_535.0;
        /// Largest maximum batch of a variant, rows.
        max_batch: u16 = 64, within 1.0..=64.0;
        /// On a type of device on which no variant has been measured, a variant is taken to need so
        /// many times what it needs where it was registered, and half as much again.
        estimate_factor: f64 = 1.0, within 0.01..=100.0;
        /// There it is measured where it is loaded, while the worker's slots are no busier than this, as
        /// a share; 0 leaves it at the estimate unless a worker does nothing at all.
        profile_below_utilization: f64 = 0.3, within 0.0..=1.0;
        /// How thoroughly: `quick` tries only one thread and all, and measures with few runs; `thorough` takes
        /// many runs and measures in full what is clearly slower, too.
        effort: Effort = Effort::Default;
        /// Time after which a registration measures no further configurations, seconds. Each engine's first one
        /// is measured in any case.
        budget_s: Option<u64> = None, unset "all configurations are tried", within 1.0..=86_400.0;
        /// Time spent on measuring one batch size of one variant, milliseconds.
        profile_ms_per_batch: Option<u64> = None, unset "20, 60 or 250 by `effort`", within 1.0..=60_000.0;
        /// Rows per batch while accuracy is measured.
        evaluation_batch: u32 = 32, within 1.0..=1024.0;
    }
}

section! {
    /// What resources cost: the base of every variant's price.
    Prices in "prices" {
        /// One core of a processor whose type has no price of its own, for an hour, US dollars.
        core_hour_usd: f64 = sextant_types::Prices::default().core_hour_usd, within 0.0..=ANY;
        /// One gibibyte of such a processor's memory for variants, for an hour, US dollars.
        memory_gib_hour_usd: f64 = sextant_types::Prices::default().memory_gib_hour_usd,
            within 0.0..=ANY;
        sections {
            /// What devices cost, by the name of their type.
            devices: BTreeMap<DeviceTypeName, DevicePrice>;
        }
    }
}

section! {
    /// What a device of a type costs, one table for each type. `GET /v1/workers` has the types of the
    /// fleet. Set the same prices in every process that has workers.
    DevicePrice in "prices.devices" each "NAME" {
        /// One device for an hour, US dollars.
        hour_usd: Option<f64> = None,
            unset "a processor's cores and memory; 3.06, one V100 on demand, for any other device",
            within 0.0..=ANY;
        /// Time until a new worker of the type is up, seconds.
        start_s: u64 = sextant_types::device::START_MS / 1000, within 0.0..=86_400.0;
    }
}

section! {
    /// What is refused.
    Limits in "limits" {
        /// Largest body of a request that is not an upload, and the most that the fields of a form hold, bytes.
        max_body_bytes: usize = 16 << 20, within 1024.0..=ANY;
        /// Most bytes that all requests hold at once, the files of uploads excepted: their bodies, counted as they arrive;
        /// tensors, what engines make of strings, and outputs, before they are made; answers, until they are
        /// written. Beyond them requests are refused. The last quarter is for small ones: bodies up to a 4096th of
        /// this, and what is made of them up to a 256th. Never less than twice `limits.max_body_bytes`.
        max_body_bytes_in_flight: usize = 1 << 30, within 1024.0..=ANY;
        /// Largest uploaded model, validation set or artefact, bytes.
        max_model_bytes: u64 = 16 << 30, within 1024.0..=ANY;
        /// Files of models from this size on are not read into memory: engines map them where the artefact store or
        /// its cache has them, bytes.
        map_model_bytes: u64 = 512 << 20, within 1.0..=ANY;
        /// Most bytes that the artefact store may hold.
        storage_bytes: Option<u64> = None, unset "what the disk has", within 1.0..=ANY;
        /// Most queries that wait for one variant.
        max_queue_per_variant: u32 = 4096, within 1.0..=ANY;
        /// Most queries that are being answered; more are refused at once. A query counts from the last
        /// byte of its body on.
        max_concurrent_queries: usize = 4096, within 1.0..=ANY;
        /// Longest time for the body of a request that is not an upload, milliseconds.
        body_timeout_ms: u64 = 30_000, within 100.0..=ANY;
        /// Most open connections of the HTTP API. Where there are as many, the longest idle ones are closed
        /// for new ones. Never more than seven eighths of the file descriptors that the process may open.
        max_connections: usize = 10_000, within 1.0..=ANY;
        /// Longest time for the head of a request, and for the first byte of a connection, milliseconds.
        head_timeout_ms: u64 = 15_000, within 100.0..=ANY;
        /// Longest time without a request on an open connection, milliseconds.
        idle_timeout_ms: u64 = 120_000, within 100.0..=ANY;
        /// Least bytes a second that an upload brings or that a client takes of an answer, averaged over
        /// the grace; 0 is no such limit.
        min_transfer_bytes_per_s: u64 = 1024, within 0.0..=ANY;
        /// Time over which the rates of uploads and answers are averaged, milliseconds.
        transfer_grace_ms: u64 = 30_000, within 100.0..=ANY;
        /// Longest time that a shutdown waits for requests in flight, milliseconds.
        drain_timeout_ms: u64 = 30_000, within 0.0..=ANY;
        /// Time for which a service that is told to stop answers as before, but for `/health/ready`, before
        /// it takes no more connections, milliseconds. Give balancers as long as they take to notice.
        shutdown_delay_ms: u64 = 0, within 0.0..=600_000.0;
    }
}

section! {
    /// Offline jobs.
    Jobs in "jobs" {
        /// Jobs pause while online queries keep more than this share of the cores busy.
        pause_utilization: f64 = 0.4, within 0.0..=1.0;
        /// Secret that messages to webhooks are signed with (HMAC-SHA256).
        webhook_secret: Option<String> = None, unset "they are not signed";
        /// Whether webhooks may name addresses of the machine's own network link, where clouds keep
        /// their credentials.
        webhook_allow_link_local: bool = false;
    }
}

section! {
    /// What is kept for how long in the artefact store and in the registry.
    Storage in "storage" {
        /// Time between two sweeps, which give back what nobody needs, seconds; 0 sweeps only when asked to.
        sweep_every_s: u64 = 3600, within 0.0..=31_536_000.0;
        /// Files that were sent or made and that nothing refers to are kept for so long, seconds. An upload
        /// that takes longer may be refused at its end.
        grace_s: u64 = 21_600, within 0.0..=31_536_000.0;
        /// Jobs are listed for so long after their end, seconds; 0 keeps them for ever. With less than a day
        /// what could not be told to a webhook at once may be lost.
        keep_ended_jobs_s: u64 = 2_592_000, within 0.0..=3_153_600_000.0;
        /// Models whose registration failed are listed for so long, seconds; 0 keeps them for ever.
        keep_failed_models_s: u64 = 604_800, within 0.0..=3_153_600_000.0;
        /// Entries of the audit record are kept for so long, seconds; 0 keeps them for ever.
        keep_audit_s: u64 = 0, within 0.0..=3_153_600_000.0;
        /// Time between two looks at feedback, of which goes what is too old or too much for its application, seconds.
        prune_feedback_every_s: u64 = 60, within 1.0..=86_400.0;
    }
}

section! {
    /// The asynchronous runtime that serves connections.
    Runtime in "runtime" {
        /// Its threads.
        threads: Option<u16> = None, unset "one for each core", within 1.0..=1024.0;
    }
}

/// Every section, in the order of the document.
pub(super) static SECTIONS: [Section; 34] = [
    Config::SECTION,
    Log::SECTION,
    Metadata::SECTION,
    Registry::SECTION,
    Objects::SECTION,
    Fleet::SECTION,
    Auth::SECTION,
    Tls::SECTION,
    Cors::SECTION,
    Grpc::SECTION,
    V2::SECTION,
    Worker::SECTION,
    Health::SECTION,
    Cuda::SECTION,
    Emulated::SECTION,
    EmulatedType::SECTION,
    Remote::SECTION,
    Dispatcher::SECTION,
    Schedule::SECTION,
    Claims::SECTION,
    Placement::SECTION,
    Agreement::SECTION,
    Cache::SECTION,
    Variants::SECTION,
    Prices::SECTION,
    DevicePrice::SECTION,
    Autoscaler::SECTION,
    Pool::SECTION,
    Limits::SECTION,
    Pipelines::SECTION,
    Python::SECTION,
    Jobs::SECTION,
    Storage::SECTION,
    Runtime::SECTION,
];

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

impl LogFormat {
    /// The words of the configuration.
    pub(super) const NAMES: &'static [&'static str] = &["text", "json"];
}

impl Variants {
    /// Time spent on measuring one batch size of one variant, milliseconds.
    pub fn time_per_batch_ms(&self) -> u64 {
        self.profile_ms_per_batch.unwrap_or(match self.effort {
            Effort::Quick => 20,
            Effort::Default => 60,
            Effort::Thorough => 250,
        })
    }
}

/// How thoroughly variants are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// To try something out.
    Quick,
    /// For most.
    Default,
    /// Where a registration may take long.
    Thorough,
}

impl Effort {
    /// The words of the configuration.
    pub(super) const NAMES: &'static [&'static str] = &["quick", "default", "thorough"];
}

/// Short names of engines, in order of preference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Engines(pub Vec<String>);

impl Engines {
    /// The engines that exist.
    pub(super) const NAMES: &'static [&'static str] = &["ort", "openvino", "rten", "emulated"];
}

impl Default for Engines {
    /// All real engines that the binary was built with.
    fn default() -> Self {
        let mut names = vec!["ort".to_owned()];
        if cfg!(feature = "openvino") {
            names.push("openvino".to_owned());
        }
        if cfg!(feature = "rten") {
            names.push("rten".to_owned());
        }
        Self(names)
    }
}
