//! The devices of this process, and what their workers may do.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};
use sextant_types::{DeviceTypeName, WorkerId};

use super::{health::Health, section::section};

const ANY: f64 = f64::INFINITY;

section! {
    /// The workers of this process, one for each device. They run batches.
    Worker in "worker" {
        /// The name of the CPU's worker among all workers; the workers of other devices append the device, such as
        /// `local-cuda-0`.
        name: Option<WorkerId> = None, unset "`local`; where `metadata.url` is set, this machine's name";
        /// The devices that run batches: `cpu`, the machine's cores; `cuda:0`, the GPU with that number; `cuda`,
        /// every visible GPU; `emulated:4`, so many emulated devices; `emulated:4@NAME`, so many of a type of
        /// `[worker.emulated.types.NAME]`. Variants are made for the engines of every listed device.
        devices: Devices = Devices::default();
        /// The type of this machine as a device. Machines that cost the same and run every variant alike have the
        /// same type; `[prices.devices.NAME]` has its price.
        device_type: Option<DeviceTypeName> = None, unset "`cpu-` and the number of cores";
        /// Cores that batches may occupy at once.
        cores: Option<u16> = None, unset "all that the process may use", within 1.0..=65_535.0;
        /// Bytes that variants loaded on the CPU may occupy.
        memory_bytes: Option<u64> = None, unset "half of what the process may use",
            within 1_048_576.0..=ANY;
        /// Size of a page of that memory, bytes. Devices with memory of their own have pages of
        /// 16 MiB.
        page_bytes: u64 = 1 << 20, within 4096.0..=1_073_741_824.0;
        /// Bytes of inputs that may wait or run at a worker, including the copies that engines make of strings; the
        /// worker refuses further batches.
        io_bytes: u64 = 768 << 20, within 65_536.0..=ANY;
        /// Where the CPU's engines run models of users. `none`: in this process. `process`: in a separate process for
        /// each artefact, so that an input that crashes an engine or takes all memory ends only its own query.
        /// `keys`: in separate processes for models that were registered with a key that is not an administrator's,
        /// and in this process for others. `resources.isolation` of an application overrides it.
        isolation: WorkerIsolation = WorkerIsolation::Keys;
        /// Memory that such a separate process may take for weights and runs, bytes.
        process_memory_bytes: Option<u64> = None, unset "`worker.memory_bytes`",
            within 67_108_864.0..=ANY;
        /// Cores to which the threads of the CPU's worker are bound, one thread to a core in this order. The
        /// processes of `worker.isolation` are bound to all of these cores. With an empty list the operating system
        /// decides.
        pin: Vec<u32> = Vec::new(), within 0.0..=65_535.0;
        /// How far ahead of its start a batch or load may be sent, milliseconds.
        horizon_ms: u64 = 10_000, within 1.0..=3_600_000.0;
        /// A batch or load counts as stuck when it takes so many times the expected time, and longer than
        /// `worker.stuck_batch_ms` or `worker.stuck_load_ms`.
        stuck_factor: f64 = 10.0, within 1.0..=1e6;
        /// Time before which no batch counts as stuck, milliseconds.
        stuck_batch_ms: u64 = 10_000, within 1.0..=86_400_000.0;
        /// Time before which no load counts as stuck, milliseconds.
        stuck_load_ms: u64 = 60_000, within 1.0..=86_400_000.0;
        sections {
            /// When its instances count as overloaded or interfered.
            health: Health;
            /// GPUs.
            cuda: Cuda;
            /// Emulated devices.
            emulated: Emulated;
            /// Servers that run models, by name.
            remote: BTreeMap<String, Remote>;
        }
    }
}

section! {
    /// Which engines run on each GPU, and how its memory is divided. The engine `cuda` takes all of this memory when
    /// the service starts.
    Cuda in "worker.cuda" {
        /// The engines that run models there: `cuda`, Sextant's own engine, alone; or `ort-cuda`, `ort-tensorrt` or
        /// both. These two are ONNX Runtime's providers of the library `onnxruntime_library`; they run operators
        /// without a kernel on the processor and take memory as they need it.
        engines: GpuEngines = GpuEngines::default();
        /// The type of these GPUs as devices.
        device_type: Option<DeviceTypeName> = None, unset "the GPU's model, such as `nvidia-h200`";
        /// Size of a page, bytes; a multiple of 256. `cuda` rounds it up to what the GPU maps, mostly 2 MiB.
        page_bytes: u64 = 16 << 20, within 65_536.0..=1_073_741_824.0;
        /// Pages for models.
        pages: Option<u64> = None, unset "nine tenths of what the other uses leave",
            within 1.0..=ANY;
        /// Rows of the largest batch for which a model of `ort-tensorrt` is prepared; for a larger batch it chooses
        /// its kernels again.
        largest_batch: u64 = 64, within 1.0..=4096.0;
        /// Memory for the intermediate values of a batch of `cuda`, bytes.
        workspace_bytes: u64 = 1 << 30, within 1_048_576.0..=ANY;
        /// Memory for inputs and outputs of `cuda`, bytes, on the GPU and in the machine.
        io_bytes: u64 = 512 << 20, within 1_048_576.0..=ANY;
        /// Memory of the machine for models of `cuda` that can be loaded without being read again, bytes.
        host_bytes: u64 = 8 << 30, within 0.0..=ANY;
    }
}

section! {
    /// Emulated devices: they take the time that a model's profile says and compute nothing. A file's
    /// metadata `sextant.alpha_ms`, `sextant.beta_ms` and `sextant.load_ms` are its profile.
    Emulated in "worker.emulated" {
        /// Size of a page, bytes.
        page_bytes: u64 = 16 << 20, within 1.0..=ANY;
        /// Pages of each device.
        pages: u64 = 1376, within 1.0..=ANY;
        /// Speed of copies to and from a device, bytes per second.
        copy_bytes_per_s: f64 = 12.3e9, within 1.0..=ANY;
        /// Whether runs and loads have random delays, distributed as Clockwork measured them.
        delays: bool = true;
        /// Whether registration measures on the first device itself, as on a GPU, and not beside it.
        measured: bool = false;
        /// Share of the loads that fail, for tests.
        failing_loads: f64 = 0.0, within 0.0..=1.0;
        /// Share of the batches that fail, for tests.
        failing_runs: f64 = 0.0, within 0.0..=1.0;
        /// Seed of the delays and failures.
        seed: u64 = 0;
        sections {
            /// Types of emulated devices, by name.
            types: BTreeMap<DeviceTypeName, EmulatedType>;
        }
    }
}

section! {
    /// A type of emulated devices, one table for each type: `emulated:2@NAME` in `worker.devices` are two devices of
    /// it. Devices without a type have the type `emulated`. `[prices.devices.NAME]` has the price.
    EmulatedType in "worker.emulated.types" each "NAME" {
        /// How many times as fast as the file's profile says these devices load and run.
        speed: f64 = 1.0, within 0.001..=1000.0;
    }
}

section! {
    /// A server that speaks the Open Inference Protocol and runs models itself, one table for each server. The worker
    /// reaches it at `url`, or starts it with `command`.
    Remote in "worker.remote" each "NAME" {
        /// Address of the server: `http://host:port`, perhaps with a path. `{port}` stands for a free port that the
        /// worker gives a server that it starts.
        url: Option<String> = None,
            unset "`http://127.0.0.1:{port}` for a server that is started";
        /// Program and arguments that start the server; `{port}` stands for the free port. No shell interprets them.
        command: Vec<String> = Vec::new();
        /// Working folder of the program.
        folder: Option<PathBuf> = None, unset "this process's";
        /// Environment variables of the program besides those of this process, each as `NAME=value`.
        environment: Vec<String> = Vec::new();
        /// Longest time until the server is ready, and until it has loaded a model, milliseconds.
        ready_timeout_ms: u64 = 120_000, within 1.0..=86_400_000.0;
        /// Longest time of a batch, milliseconds; if a batch takes longer, the program is ended.
        request_timeout_ms: u64 = 30_000, within 1.0..=86_400_000.0;
        /// Whether tensors are sent as bytes after the JSON; with `auto` the worker asks the server whether it can.
        binary: Binary = Binary::Auto;
        /// Headers of every request, each as `name: value`.
        headers: Vec<String> = Vec::new();
        /// Whether the worker loads and unloads models there, by the model repository extension. If `false`, the
        /// server has loaded them itself.
        loads_models: bool = false;
        /// Memory that loaded models may occupy there, bytes; counted in pages of 16 MiB.
        memory_bytes: u64 = 4 << 30, within 16_777_216.0..=ANY;
        /// Largest answer that the worker reads from the server, bytes.
        max_response_bytes: u64 = 256 << 20, within 1024.0..=ANY;
    }
}

/// A device of `worker.devices`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceSpec {
    /// The machine's cores.
    Cpu,
    /// The GPU of this number, or all of them.
    Cuda(Option<u32>),
    /// So many emulated devices, of a type or without one.
    Emulated(u32, Option<DeviceTypeName>),
}

/// The devices of this process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Devices(pub Vec<DeviceSpec>);

/// Short names of the engines of GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GpuEngines(pub Vec<String>);

/// Whether tensors travel as bytes behind the JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Binary {
    /// When the server says that it can.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Where engines run what users bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkerIsolation {
    /// In the worker's process.
    None,
    /// In a process for each artefact, of models that were registered with a key that is no administrator's.
    Keys,
    /// In a process for each artefact.
    Process,
}

/// Most emulated devices of one process.
const MOST_EMULATED: u32 = 1024;

// === impl Devices ===

impl Devices {
    /// What may be listed.
    pub(super) const FORMS: &'static str = "`cpu`, `cuda`, `cuda:0` (the GPU's number), `emulated:4` (how many) and `emulated:4@NAME` (of \
         which type), each once";
}

impl Default for Devices {
    fn default() -> Self {
        Self(vec![DeviceSpec::Cpu])
    }
}

impl TryFrom<Vec<String>> for Devices {
    type Error = String;

    fn try_from(texts: Vec<String>) -> Result<Self, String> {
        let mut devices: Vec<DeviceSpec> = Vec::new();
        for text in &texts {
            let device = parse(text).ok_or_else(|| format!("`{text}`: write {}", Self::FORMS))?;
            if devices.iter().any(|other| other.overlaps(&device)) {
                return Err(format!("`{text}` is listed twice"));
            }
            devices.push(device);
        }
        match devices.is_empty() {
            true => Err(format!("no device is listed: write {}", Self::FORMS)),
            false => Ok(Self(devices)),
        }
    }
}

impl From<Devices> for Vec<String> {
    fn from(devices: Devices) -> Self {
        devices.0.iter().map(ToString::to_string).collect()
    }
}

fn parse(text: &str) -> Option<DeviceSpec> {
    let number = |digits: &str| digits.parse::<u32>().ok();
    match text.split_once(':') {
        None if text == "cpu" => Some(DeviceSpec::Cpu),
        None if text == "cuda" => Some(DeviceSpec::Cuda(None)),
        Some(("cuda", digits)) => number(digits).map(|ordinal| DeviceSpec::Cuda(Some(ordinal))),
        Some(("emulated", rest)) => {
            let (digits, name) = match rest.split_once('@') {
                Some((digits, name)) => (digits, Some(DeviceTypeName::new(name).ok()?)),
                None => (rest, None),
            };
            let count = number(digits).filter(|count| (1..=MOST_EMULATED).contains(count))?;
            Some(DeviceSpec::Emulated(count, name))
        }
        _ => None,
    }
}

// === impl DeviceSpec ===

impl DeviceSpec {
    /// Whether both stand for a common device.
    fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Cpu, Self::Cpu) => true,
            (Self::Emulated(_, one), Self::Emulated(_, other)) => one == other,
            (Self::Cuda(one), Self::Cuda(other)) => {
                one.is_none() || other.is_none() || one == other
            }
            _ => false,
        }
    }
}

impl std::fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(None) => f.write_str("cuda"),
            Self::Cuda(Some(ordinal)) => write!(f, "cuda:{ordinal}"),
            Self::Emulated(count, None) => write!(f, "emulated:{count}"),
            Self::Emulated(count, Some(name)) => write!(f, "emulated:{count}@{name}"),
        }
    }
}

// === impl GpuEngines ===

impl GpuEngines {
    /// The engines that exist.
    pub(super) const NAMES: &'static [&'static str] = &["cuda", "ort-cuda", "ort-tensorrt"];
}

impl Default for GpuEngines {
    fn default() -> Self {
        Self(vec!["cuda".to_owned()])
    }
}

// === impl WorkerIsolation ===

impl WorkerIsolation {
    /// The words of the configuration.
    pub(super) const NAMES: &'static [&'static str] = &["none", "keys", "process"];
}

// === impl Binary ===

impl Binary {
    /// The words of the configuration.
    pub(super) const NAMES: &'static [&'static str] = &["auto", "always", "never"];
}
