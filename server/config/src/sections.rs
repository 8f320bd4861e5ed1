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
        /// Folder of the registry and the artefact store; the service creates it if it does not exist.
        data_dir: PathBuf = PathBuf::from("./data");
        /// ONNX Runtime shared library that the engine `ort` loads.
        onnxruntime_library: Option<PathBuf> = None,
            unset "`ORT_DYLIB_PATH`, then the package `onnxruntime` beside `sextant`, then the library in the cache folder";
        /// OpenVINO's shared library `libopenvino_c`, which the engine `openvino` loads. The libraries that it needs
        /// must lie beside it.
        openvino_library: Option<PathBuf> = None,
            unset "the library in the cache folder";
        sections {
            /// What is logged.
            log: Log;
            /// The metadata store: which process runs what, with instances, leases and leaders.
            metadata: Metadata;
            /// The registry: applications, models, variants, jobs and keys.
            registry: Registry;
            /// The artefact store: models, validation sets, inputs and outputs of jobs.
            objects: Objects;
            /// The processes of the fleet, and how they reach each other.
            fleet: Fleet;
            /// Authentication: who may use the service.
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
            /// Limits beyond which the service refuses requests.
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
        /// Lowest level that is logged, or a filter such as `info,sextant_dispatcher=debug`.
        level: String = "info".to_owned();
        /// Lines for people or one JSON object per line.
        format: LogFormat = LogFormat::Text;
    }
}

section! {
    /// Pages of other origins whose scripts may call this service from a browser.
    Cors in "cors" {
        /// Origins of these pages, such as `https://app.example.com`; `*` stands for all. Their requests need keys as
        /// all others do.
        origins: Vec<String> = Vec::new();
    }
}

section! {
    /// gRPC: the Open Inference Protocol, health and reflection. The port of the HTTP API serves gRPC too.
    Grpc in "grpc" {
        /// A separate address and port for gRPC, for clients that expect two ports; port 0 takes a free one.
        /// Encryption, keys, limits and routes are the same as at `listen`.
        listen: Option<SocketAddr> = None, unset "the port of `listen` alone";
    }
}

section! {
    /// The Open Inference Protocol, over HTTP and gRPC.
    V2 in "v2" {
        /// Whether clients on this machine may register files of `/dev/shm`, from which the service reads their
        /// inputs and into which it writes their outputs. Every client that may ask queries can then make the service
        /// read and write every plain file there that the service's user may read and write.
        shared_memory: bool = false;
        /// Whether answers over gRPC use `raw_output_contents` even if the query has its inputs in typed fields, as
        /// Triton's answers do. If `false`, an answer has the form of its query.
        raw_answers: bool = false;
    }
}

section! {
    /// What a registration generates and measures.
    Variants in "variants" {
        /// Engines of the CPU for which variants are made. `emulated` runs on the CPU unless devices are emulated.
        engines: Engines = Engines::default();
        /// Whether this process registers models. If `false`, a process with the role `variant-gen` only adds
        /// variants for its own engines to models that other processes have registered.
        register: bool = true;
        /// Whether models are measured in a separate process. If a model crashes an engine, takes all memory or never
        /// ends, then only its own registration fails.
        isolate: bool = true;
        /// Memory that this separate process may take, bytes: for a model's weights and for everything else.
        memory_bytes: Option<u64> = None, unset "half of what the process may use",
            within 268_435_456.0..=ANY;
        /// Longest computing time of one load or one run in the separate process, milliseconds; a longer one is
        /// ended. On a busy machine it may take ten times as long by the clock.
        longest_step_ms: u64 = 60_000, within 100.0..=86_400_000.0;
        /// Longest computing time of all loads and runs of one configuration together, milliseconds.
        longest_configuration_ms: u64 = 3_600_000, within 100.0..=86_400_000.0;
        /// Most registrations at once. A registration runs alone unless it is slow, so that nothing disturbs its
        /// measurements.
        max_registrations: Option<u16> = None, unset "as many as have memory, from 2 to 4", within 1.0..=64.0;
        /// Time after which a registration is slow, milliseconds: a registration of another application may then
        /// begin beside it.
        slow_registration_ms: u64 = 5_000, within 0.0..=86_400_000.0;
        /// Most intra-op threads of a variant, never more than the worker's cores.
        max_threads: Option<u16> = None, unset "the worker's cores", within 1.0..=65_535.0;
        /// Largest maximum batch of a variant, rows.
        max_batch: u16 = 64, within 1.0..=64.0;
        /// Factor by which the times of a variant are estimated on a type of device on which no variant has been
        /// measured: its times where it was registered, multiplied by this factor, and half as much again.
        estimate_factor: f64 = 1.0, within 0.01..=100.0;
        /// On such a type of device a worker that has the variant loaded measures it while the worker's slots are no
        /// busier than this, as a share. With 0 it measures only while it does nothing at all.
        profile_below_utilization: f64 = 0.3, within 0.0..=1.0;
        /// How thoroughly variants are measured: `quick` tries only one thread and all threads, and measures with few
        /// runs; `thorough` measures with many runs, and also measures in full variants that are clearly slower.
        effort: Effort = Effort::Default;
        /// Time after which a registration measures no further configurations, seconds. It measures the first
        /// configuration of each engine in any case.
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
        /// Price of one core for an hour, US dollars, of a processor whose type has no price of its own.
        core_hour_usd: f64 = sextant_types::Prices::default().core_hour_usd, within 0.0..=ANY;
        /// Price of one gibibyte of such a processor's memory for variants for an hour, US dollars.
        memory_gib_hour_usd: f64 = sextant_types::Prices::default().memory_gib_hour_usd,
            within 0.0..=ANY;
        sections {
            /// What devices cost, by the name of their type.
            devices: BTreeMap<DeviceTypeName, DevicePrice>;
        }
    }
}

section! {
    /// What a device of a type costs, one table for each type. `GET /v1/workers` lists the types of the fleet. Set
    /// the same prices in every process that has workers.
    DevicePrice in "prices.devices" each "NAME" {
        /// Price of one device for an hour, US dollars.
        hour_usd: Option<f64> = None,
            unset "a processor's cores and memory; 3.06, one V100 on demand, for any other device",
            within 0.0..=ANY;
        /// Time that a new worker of the type takes to start, seconds.
        start_s: u64 = sextant_types::device::START_MS / 1000, within 0.0..=86_400.0;
    }
}

section! {
    /// Limits beyond which the service refuses requests.
    Limits in "limits" {
        /// Largest body of a request that is not an upload, and largest total of the fields of a form, bytes.
        max_body_bytes: usize = 16 << 20, within 1024.0..=ANY;
        /// Most bytes that all requests hold at once, except for the files of uploads. Bodies count as they arrive.
        /// Tensors, the copies that engines make of strings, and outputs count before they are made. Answers count
        /// until they are written. Beyond the limit the service refuses requests. The last quarter is reserved for
        /// small requests: bodies up to a 4096th of the limit, and what is made from them up to a 256th. Never less
        /// than twice `limits.max_body_bytes`.
        max_body_bytes_in_flight: usize = 1 << 30, within 1024.0..=ANY;
        /// Largest uploaded model, validation set or artefact, bytes.
        max_model_bytes: u64 = 16 << 30, within 1024.0..=ANY;
        /// Size of a model's file from which on it is not read into memory, bytes: engines map the file from the
        /// artefact store or its cache instead.
        map_model_bytes: u64 = 512 << 20, within 1.0..=ANY;
        /// Most bytes that the artefact store may hold.
        storage_bytes: Option<u64> = None, unset "what the disk has", within 1.0..=ANY;
        /// Most queries that wait for one variant.
        max_queue_per_variant: u32 = 4096, within 1.0..=ANY;
        /// Most queries that are being answered at once; the service refuses further ones immediately. A query counts
        /// from the arrival of the last byte of its body.
        max_concurrent_queries: usize = 4096, within 1.0..=ANY;
        /// Longest time in which the body of a request that is not an upload must arrive, milliseconds.
        body_timeout_ms: u64 = 30_000, within 100.0..=ANY;
        /// Most open connections of the HTTP API. At the limit, the service closes the connections that have been
        /// idle longest to take new ones. Never more than seven eighths of the file descriptors that the process may
        /// open.
        max_connections: usize = 10_000, within 1.0..=ANY;
        /// Longest time in which the head of a request, or the first byte on a connection, must arrive, milliseconds.
        head_timeout_ms: u64 = 15_000, within 100.0..=ANY;
        /// Longest time without a request on an open connection, milliseconds.
        idle_timeout_ms: u64 = 120_000, within 100.0..=ANY;
        /// Lowest rate at which an upload must arrive and a client must read an answer, bytes per second, averaged
        /// over `limits.transfer_grace_ms`; 0 sets no such limit.
        min_transfer_bytes_per_s: u64 = 1024, within 0.0..=ANY;
        /// Time over which the rates of uploads and answers are averaged, milliseconds.
        transfer_grace_ms: u64 = 30_000, within 100.0..=ANY;
        /// Longest time that a shutdown waits for requests in flight, milliseconds.
        drain_timeout_ms: u64 = 30_000, within 0.0..=ANY;
        /// Time for which a service that is told to stop continues to answer before it takes no more connections,
        /// milliseconds; only `/health/ready` says at once that the service is not ready. Set it to the time that
        /// load balancers take to notice.
        shutdown_delay_ms: u64 = 0, within 0.0..=600_000.0;
    }
}

section! {
    /// Offline jobs.
    Jobs in "jobs" {
        /// Jobs pause while online queries keep more than this share of the cores busy.
        pause_utilization: f64 = 0.4, within 0.0..=1.0;
        /// Secret with which messages to webhooks are signed (HMAC-SHA256).
        webhook_secret: Option<String> = None, unset "they are not signed";
        /// Whether webhooks may name link-local addresses, at which clouds offer their credentials.
        webhook_allow_link_local: bool = false;
    }
}

section! {
    /// How long the service keeps things in the artefact store and in the registry.
    Storage in "storage" {
        /// Time between two sweeps, which remove files that nobody needs, seconds; 0 sweeps only on request.
        sweep_every_s: u64 = 3600, within 0.0..=31_536_000.0;
        /// How long files are kept to which nothing refers, seconds. An upload that takes longer may be refused at
        /// its end.
        grace_s: u64 = 21_600, within 0.0..=31_536_000.0;
        /// How long jobs are kept after their end, seconds; 0 keeps them for ever. With less than a day, a message
        /// that could not be sent to a webhook at once may be lost.
        keep_ended_jobs_s: u64 = 2_592_000, within 0.0..=3_153_600_000.0;
        /// How long models whose registration failed are kept, seconds; 0 keeps them for ever.
        keep_failed_models_s: u64 = 604_800, within 0.0..=3_153_600_000.0;
        /// How long entries of the audit record are kept, seconds; 0 keeps them for ever.
        keep_audit_s: u64 = 0, within 0.0..=3_153_600_000.0;
        /// Time between two runs that delete feedback that is too old or too much for its application, seconds.
        prune_feedback_every_s: u64 = 60, within 1.0..=86_400.0;
    }
}

section! {
    /// The asynchronous runtime that serves connections.
    Runtime in "runtime" {
        /// Number of threads of the runtime.
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
