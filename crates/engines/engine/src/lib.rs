//! The engine trait: an engine runs batches.
//!
//! Entry points: [`Engine`], [`LoadedModel`], [`emulated::EmulatedEngine`], [`conformance`]. [`ModelFile`] is what
//! engines load; [`check_inputs`], [`LiveMap`], [`Pool`], [`find_library`] and [`python_packages`] are what engines
//! share; an [`Interrupt`] ends a run or a load.
//!
//! **Invariant:** this package knows nothing of queues, deadlines or the reason for a batch. Calls block the calling
//! thread; the worker owns the threads.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use sextant_types::{DataType, Digest, NamedTensor, Optimization, Precision, Signature, Tensor};

pub mod conformance;
pub mod emulated;
mod file;
mod inputs;
mod interrupt;
mod library;
mod live;
mod memory_file;
pub mod pages;
mod pool;
mod python;
mod shortage;

pub use file::{GRAPH_FILE, ModelFile, ScratchFolder, WeightsFolder, read_range, sweep};
pub use inputs::{blame_empty, check_indices, check_inputs, check_integers};
pub use interrupt::Interrupt;
pub use library::{cache_folder, find_library};
pub use live::LiveMap;
pub use memory_file::{MemoryFiles, RESERVED_FILES, reserve_memory_files};
pub use pool::Pool;
pub use python::python_packages;
pub use shortage::Shortage;

/// What an engine can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// Precisions that are worth generating for this engine, `Fp32` first.
    pub precisions: Vec<Precision>,
    /// Distinct graph optimisation levels.
    pub optimizations: Vec<Optimization>,
    /// Whether intra-op threads make a difference; otherwise only 1 is generated.
    pub threads: bool,
    /// Element types accepted as inputs and outputs.
    pub data_types: Vec<DataType>,
}

/// How to load an artefact.
#[derive(Debug, Clone)]
pub struct LoadRequest {
    /// Key of the artefact; loads of one artefact share one copy of its weights.
    pub artefact: Digest,
    /// The ONNX file.
    pub model: ModelFile,
    /// Number format of weights and arithmetic. Engines whose artefacts differ by precision find it in the file; the
    /// others convert while they load.
    pub precision: Precision,
    /// Graph optimisation.
    pub optimization: Optimization,
    /// Intra-op threads, at least 1; the calling thread is one of them.
    pub threads: u16,
}

/// Why an engine could not load or run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The engine's library is missing or of a wrong version.
    #[error("engine `{engine}` is not available: {reason}")]
    Unavailable {
        /// Engine name.
        engine: &'static str,
        /// What to do about it.
        reason: String,
    },
    /// The file is not a model that can be read.
    #[error("the model cannot be loaded: {0}")]
    InvalidModel(String),
    /// The engine has no implementation of an operator (named in the text).
    #[error("the engine cannot run the model: {0}")]
    Unsupported(String),
    /// The batch failed while it ran.
    #[error("the engine failed: {0}")]
    Failed(String),
    /// The inputs do not fit the model.
    #[error("the inputs do not fit the model: {0}")]
    InvalidInput(String),
    /// The batch was ended because an [`Interrupt`] was raised; the handle stays usable.
    #[error("it was ended after it had taken too long")]
    Interrupted,
    /// The batch needs more memory than a batch can have; the handle stays usable.
    #[error("it needs more memory than it may take: {0}")]
    MemoryExceeded(String),
    /// The process that ran the model ended with this batch, and because of it; the handle stays usable.
    #[error("{0}")]
    Crashed(String),
    /// The process that ran the model ended during this batch, for another reason; the handle stays usable, also for
    /// this batch.
    #[error("the engine starts again: {0}")]
    Restarted(String),
    /// No memory of the engine's device is left for a load or a batch.
    #[error("the device has no memory for it: {0}")]
    OutOfMemory(Shortage),
    /// The process or server that ran the model is gone, or did not answer within its time limit; the handle is no
    /// longer usable.
    #[error("the engine was lost: {0}")]
    Lost(String),
    /// The process or server that ran the model had gone before it got this batch; the handle is no longer usable.
    #[error("the engine is gone: {0}")]
    Gone(String),
}

impl Error {
    /// Whether the handle is no longer usable.
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Gone(_))
    }
}

/// The device of an engine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Device {
    /// The cores of this machine; any number of models side by side.
    Cpu,
    /// A device with an executor and memory of its own: one batch at a time.
    Dedicated {
        /// `cuda:0`, `emulated:3`, `triton`.
        name: String,
        /// Its page cache.
        memory: DeviceMemory,
    },
}

/// The page cache of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceMemory {
    /// Size of a page, bytes.
    pub page_bytes: u64,
    /// Number of pages.
    pub pages: u64,
}

/// Stack of threads that load and run models. Some engines recurse by the depth of the graph, with half a kilobyte for
/// each node of a chain. The system provides the stack as it is used.
pub const STACK_BYTES: usize = 256 << 20;

/// An engine. One value per process and kind; shared by all threads.
///
/// Contract: `load` may be called concurrently; loading the same artefact twice yields two
/// handles that share weights. Dropping the last handle of an artefact unloads it and gives its
/// memory back. Nothing is cached beyond live handles.
pub trait Engine: Send + Sync {
    /// Short stable name, part of variant ids: `ort`, `rten`, `emulated`.
    fn name(&self) -> &'static str;

    /// The variants that make sense on this engine.
    fn capabilities(&self) -> Capabilities;

    /// Its device.
    fn device(&self) -> Device {
        Device::Cpu
    }

    /// The maker's name of the device, such as `NVIDIA H200`; `None` if not known.
    fn device_model(&self) -> Option<String> {
        None
    }

    /// Whether the file is one for this engine: an ONNX file, unless the engine has models of its own. It does not say
    /// whether the file can be loaded.
    fn reads(&self, model: &Bytes) -> bool {
        !is_manifest(model)
    }

    /// Whether it maps the weights of large models; other engines hold them in memory as a whole while they load.
    fn maps_weights(&self) -> bool {
        false
    }

    /// Whether a first load prepares something that later loads of the same artefact in this process use; those then
    /// take less time.
    fn keeps_prepared(&self) -> bool {
        false
    }

    /// Whether the engine has all that a load of the artefact at this precision needs: the file may then be left out
    /// ([`ModelFile::absent`]). If that has changed by the time of the load, the load fails.
    fn has_prepared(&self, artefact: &Digest, precision: Precision) -> bool {
        let _ = (artefact, precision);
        false
    }

    /// Prepares an artefact to run.
    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error>;

    /// The same; the load ends with any error if `interrupt` is raised. Engines that cannot end a load go on to its
    /// end.
    fn load_interruptible(
        &self,
        request: &LoadRequest,
        interrupt: &Interrupt,
    ) -> Result<Arc<dyn LoadedModel>, Error> {
        let _ = interrupt;
        self.load(request)
    }

    /// The same engine with each model in a process of its own, if it offers that; it remains the engine of the models
    /// that are loaded by it. [`processes`](Self::processes) and
    /// [`resident_weights_bytes`](Self::resident_weights_bytes) cover both.
    fn isolated(&self) -> Option<Arc<dyn Engine>> {
        None
    }

    /// Other processes in which its models run, by their ids in the system.
    fn processes(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Bytes of weights that live handles hold now, each copy counted once; 0 if an engine cannot tell. Memory that an
    /// engine derives from weights, such as packed copies, is not counted.
    fn resident_weights_bytes(&self) -> u64 {
        0
    }
}

/// Whether a file is a manifest, which names a model that an engine has, rather than the model itself. A manifest is
/// JSON; no ONNX file begins with a brace.
pub fn is_manifest(model: &[u8]) -> bool {
    model.trim_ascii_start().starts_with(b"{")
}

/// A model ready to run.
///
/// Contract: `run` may be called from several threads at once; a failed run leaves the model
/// usable. Inputs come in the signature's order; outputs leave in the signature's order. Results
/// do not depend on earlier runs.
pub trait LoadedModel: Send + Sync {
    /// Inputs and outputs as the engine sees them.
    fn signature(&self) -> &Signature;

    /// Runs one batch: INPUT, EXEC and OUTPUT one after the other.
    fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<Tensor>, Error>;

    /// The same; if `interrupt` is raised, the run fails with [`Error::Interrupted`], soon but not at once, and the
    /// model stays usable. Engines that cannot end a run go on to its end.
    fn run_interruptible(
        &self,
        inputs: &[NamedTensor],
        interrupt: &Interrupt,
    ) -> Result<Vec<Tensor>, Error> {
        let _ = interrupt;
        self.run(inputs)
    }

    /// INPUT alone: copies the inputs to the device, so that EXEC can begin at once. `None` from engines that read the
    /// host's memory; their batches use [`Self::run`].
    fn stage(&self, inputs: &[NamedTensor]) -> Result<Option<Box<dyn StagedBatch>>, Error> {
        let _ = inputs;
        Ok(None)
    }

    /// INPUT of several queries as one batch: their inputs, each of which the model accepts alone, are joined on the
    /// way to the device, and never in memory of the host. `None` if they cannot be joined, and from engines without
    /// this; the caller then joins them.
    fn stage_joined(
        &self,
        parts: &[&[NamedTensor]],
    ) -> Result<Option<Box<dyn StagedBatch>>, Error> {
        let _ = parts;
        Ok(None)
    }

    /// Bytes of weights, shared by all handles of the artefact.
    fn weights_bytes(&self) -> u64;

    /// Recent time of a run in addition to the engine's own time, such as the way to another process and back. The
    /// measurement of the model did not contain it.
    fn overhead(&self) -> Duration {
        Duration::ZERO
    }

    /// Bytes of the device's pages that are held in addition to those of the weights, whatever batch runs; 0 if batches
    /// use memory that the engine has taken once for all. `None` if it is the host's memory, which the growth of the
    /// process shows.
    fn working_bytes(&self) -> Option<u64> {
        None
    }
}

/// A batch whose inputs are on the device. Dropping it gives their memory back.
///
/// Contract: stages of different batches may overlap on different threads, except that one thread
/// at a time executes on a dedicated device.
pub trait StagedBatch: Send {
    /// EXEC: runs the batch and waits for its end. Returns the time on the device's clock, if it has one.
    fn exec(&mut self) -> Result<Option<Duration>, Error>;

    /// OUTPUT: copies the outputs to the host, in the signature's order.
    fn collect(self: Box<Self>) -> Result<Vec<Tensor>, Error>;
}
