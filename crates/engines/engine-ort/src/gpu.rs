//! ONNX Runtime on an NVIDIA GPU, through one of its execution providers.
//!
//! Entry point: [`GpuEngine::new`].
//!
//! A model has one session at each precision, because one batch runs at a time on a device. The processor computes the
//! operators for which the provider has no kernel, between copies: every model that runs on the processor runs here, if
//! not faster. Weights and activations lie in an arena of the session. The arena grows up to the memory of the device's
//! pages, and is released with the model.

use std::{
    fmt,
    ops::RangeInclusive,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use ort::{
    environment::Environment,
    ep::{self, ArenaExtendStrategy, ExecutionProviderDispatch, cuda::ConvAlgorithmSearch},
    session::{
        Session,
        builder::{GraphOptimizationLevel, SessionBuilder},
    },
};
use sextant_engine::{
    Capabilities, Device, DeviceMemory, Engine, Error, Interrupt, LiveMap, LoadRequest,
    LoadedModel, check_indices,
};
use sextant_types::{
    DataType, Digest, NamedTensor, Optimization, Precision, Signature, Tensor, TensorSpec,
};

use crate::{failure, library, model::Sessions, weights::WEIGHTS_FOLDER};

/// The provider that computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// ONNX Runtime's kernels for CUDA.
    Cuda,
    /// NVIDIA's TensorRT, and CUDA for what it leaves out.
    TensorRt,
    /// The processor instead of a GPU, for tests on machines without one.
    Cpu,
}

/// The properties of a GPU that the engine needs.
#[derive(Clone)]
pub struct Gpu {
    /// Its number: the `0` in `cuda:0`.
    pub ordinal: u32,
    /// Its maker's name of it.
    pub model: String,
    /// Whether it multiplies TF32 and bf16: from compute capability 8.0.
    pub is_ampere: bool,
    /// The memory that models may take.
    pub memory: DeviceMemory,
    /// Bytes of its memory that are free now, if the driver reports them.
    pub free_bytes: Arc<dyn Fn() -> Option<u64> + Send + Sync>,
    /// Most rows of batches that TensorRT is prepared for.
    pub largest_batch: u64,
    /// Where TensorRT keeps the measured times of its kernels, so that later loads are faster.
    pub timings: Option<PathBuf>,
}

/// ONNX Runtime on a GPU. Cheap to clone; clones share the device.
#[derive(Clone)]
pub struct GpuEngine {
    shared: Arc<Shared>,
}

/// An artefact at a precision.
type Key = (Digest, Precision);

struct Shared {
    environment: Environment,
    provider: Provider,
    gpu: Gpu,
    models: LiveMap<Key, GpuModel>,
    /// Number of loads and unloads that have begun or ended: the memory of a run is not known while this changes.
    moves: AtomicU64,
    /// Number of loads in progress: the memory of a run is not known then, either.
    moving: AtomicU64,
}

struct GpuModel {
    sessions: Sessions,
    shared: Arc<Shared>,
    /// The allowed values of inputs that are looked up in tables: for other values, kernels of GPUs answer zeros
    /// silently.
    indices: Vec<(String, RangeInclusive<i64>)>,
    weights_bytes: u64,
    /// Bytes of the device's memory that it has taken, with its weights.
    taken: AtomicU64,
}

// === impl Provider ===

impl Provider {
    /// The engine's name in variant ids.
    pub const fn engine(self) -> &'static str {
        match self {
            Self::Cuda => "ort-cuda",
            Self::TensorRt => "ort-tensorrt",
            Self::Cpu => "ort-cpu",
        }
    }
}

// === impl GpuEngine ===

impl GpuEngine {
    /// Loads the library at `library`, which a process has only once, and with it the provider.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the library does not have the provider, or if something that the provider needs is
    /// missing.
    pub fn new(library: &std::path::Path, provider: Provider, gpu: Gpu) -> Result<Self, Error> {
        let shared = Shared {
            environment: library::environment(library)?,
            provider,
            gpu,
            models: LiveMap::default(),
            moves: AtomicU64::new(0),
            moving: AtomicU64::new(0),
        };
        let trial = shared.provided(None, Precision::Fp32);
        trial.map_err(|error| Error::Unavailable {
            engine: provider.engine(),
            reason: missing(provider, error.message()),
        })?;
        Ok(Self {
            shared: Arc::new(shared),
        })
    }
}

/// Advice if a provider cannot be used.
fn missing(provider: Provider, message: &str) -> String {
    let needs = match provider {
        Provider::Cuda | Provider::Cpu => "CUDA 13 (cuBLAS, cuRAND, the runtime) and cuDNN 9",
        Provider::TensorRt => "TensorRT 10, CUDA 13 (cuBLAS, the runtime) and cuDNN 9",
    };
    format!(
        "{}; set `onnxruntime_library` to the `libonnxruntime.so.{}` of the Python package `onnxruntime-gpu`, beside \
         which the providers lie, and install {needs} where the loader finds them",
        failure::shorten(message),
        crate::LIBRARY_VERSION
    )
}

impl Engine for GpuEngine {
    fn name(&self) -> &'static str {
        self.shared.provider.engine()
    }

    fn capabilities(&self) -> Capabilities {
        let is_ampere = self.shared.gpu.is_ampere;
        let further: &[Precision] = match self.shared.provider {
            Provider::Cuda if is_ampere => &[Precision::Tf32],
            Provider::TensorRt if is_ampere => &[Precision::Fp16, Precision::Bf16],
            Provider::TensorRt => &[Precision::Fp16],
            Provider::Cuda | Provider::Cpu => &[],
        };
        Capabilities {
            precisions: [&[Precision::Fp32], further].concat(),
            optimizations: vec![Optimization::All],
            threads: false,
            data_types: DataType::ALL.to_vec(),
        }
    }

    fn device(&self) -> Device {
        Device::Dedicated {
            name: format!("cuda:{}", self.shared.gpu.ordinal),
            memory: self.shared.gpu.memory,
        }
    }

    fn device_model(&self) -> Option<String> {
        Some(self.shared.gpu.model.clone())
    }

    fn maps_weights(&self) -> bool {
        true
    }

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error> {
        let key = (request.artefact, request.precision);
        let model = self
            .shared
            .models
            .get_or_make(key, || Shared::open(&self.shared, request))?;
        Ok(model)
    }

    fn resident_weights_bytes(&self) -> u64 {
        let models = self.shared.models.values();
        models.iter().map(|model| model.weights_bytes).sum()
    }
}

impl fmt::Debug for GpuEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { provider, gpu, .. } = &*self.shared;
        write!(f, "{} on cuda:{}", provider.engine(), gpu.ordinal)
    }
}

// === impl Shared ===

impl Shared {
    fn open(this: &Arc<Self>, request: &LoadRequest) -> Result<GpuModel, Error> {
        let info = sextant_onnx::inspect(&request.model.graph)
            .map_err(|error| Error::InvalidModel(error.to_string()))?;
        let moving = MoveGuard::new(this);
        let before = this.free();
        let session = this.session(&info.signature, request)?;
        let taken = before.saturating_sub(this.free());
        drop(moving);
        let again = {
            let (this, signature, request) = (
                Arc::downgrade(this),
                info.signature.clone(),
                request.clone(),
            );
            move || match this.upgrade() {
                Some(this) => this.session(&signature, &request),
                None => Err(Error::Lost("the engine is gone".to_owned())),
            }
        };
        Ok(GpuModel {
            sessions: Sessions::new(info.signature, session, 1, again)?,
            shared: Arc::clone(this),
            indices: info.indices,
            weights_bytes: info.weights_bytes,
            taken: AtomicU64::new(taken),
        })
    }

    fn session(&self, signature: &Signature, request: &LoadRequest) -> Result<Session, Error> {
        let profile = match self.provider {
            Provider::TensorRt => Some(Profile::new(signature, self.gpu.largest_batch)?),
            Provider::Cuda | Provider::Cpu => None,
        };
        let located = request.model.located()?;
        let open = || -> Result<Session, ort::Error> {
            let mut builder = self.provided(profile.as_ref(), request.precision)?;
            match &located {
                None => builder.commit_from_memory(&request.model.graph),
                Some((graph, folder)) => builder
                    .with_config_entry(WEIGHTS_FOLDER, folder.path().to_string_lossy())?
                    .commit_from_memory(graph),
            }
        };
        open().map_err(|error| match failure::is_allocation(error.message()) {
            true => Error::OutOfMemory(failure::shorten(error.message()).into()),
            false => failure::load(&error),
        })
    }

    /// The builder of a session, without a provider.
    fn builder(&self) -> Result<SessionBuilder, ort::Error> {
        Ok(Session::builder(&self.environment)?
            .with_intra_threads(1)?
            .with_inter_threads(1)?
            .with_parallel_execution(false)?
            .with_intra_op_spinning(false)?
            .with_inter_op_spinning(false)?
            .with_memory_pattern(false)?
            .with_optimization_level(GraphOptimizationLevel::All)?)
    }

    /// The same with the provider, and the processor after it.
    fn provided(
        &self,
        profile: Option<&Profile>,
        precision: Precision,
    ) -> Result<SessionBuilder, ort::Error> {
        let processor = ep::CPU::default().with_arena_allocator(false).build();
        let providers: Vec<ExecutionProviderDispatch> = match self.provider {
            Provider::Cuda => vec![self.cuda(precision), processor],
            Provider::TensorRt => vec![
                self.tensorrt(profile, precision),
                self.cuda(precision),
                processor,
            ],
            Provider::Cpu => vec![processor],
        };
        Ok(self.builder()?.with_execution_providers(providers)?)
    }

    /// Convolutions use the algorithm that cuDNN's rules name: measuring all of them would make the first batch of each
    /// size take seconds.
    fn cuda(&self, precision: Precision) -> ExecutionProviderDispatch {
        let DeviceMemory { page_bytes, pages } = self.gpu.memory;
        let most = usize::try_from(page_bytes.saturating_mul(pages)).unwrap_or(usize::MAX);
        ep::CUDA::default()
            .with_device_id(self.ordinal())
            .with_memory_limit(most)
            .with_arena_extend_strategy(ArenaExtendStrategy::SameAsRequested)
            .with_conv_algorithm_search(ConvAlgorithmSearch::Heuristic)
            .with_tf32(precision == Precision::Tf32)
            .build()
            .error_on_failure()
    }

    fn tensorrt(
        &self,
        profile: Option<&Profile>,
        precision: Precision,
    ) -> ExecutionProviderDispatch {
        let mut provider = ep::TensorRT::default()
            .with_device_id(self.ordinal())
            .with_fp16(precision == Precision::Fp16)
            .with_bf16(precision == Precision::Bf16);
        if let Some(Profile { least, usual, most }) = profile {
            provider = provider
                .with_profile_min_shapes(least)
                .with_profile_opt_shapes(usual)
                .with_profile_max_shapes(most);
        }
        if let Some(folder) = &self.gpu.timings {
            provider = provider
                .with_timing_cache(true)
                .with_timing_cache_path(folder.to_string_lossy());
        }
        provider.build().error_on_failure()
    }

    fn ordinal(&self) -> i32 {
        i32::try_from(self.gpu.ordinal).unwrap_or(i32::MAX)
    }

    /// The number of loads and unloads so far; `None` while one is in progress.
    fn settled(&self) -> Option<u64> {
        let moves = self.moves.load(Ordering::Acquire);
        (self.moving.load(Ordering::Acquire) == 0).then_some(moves)
    }

    /// Free memory of the device, bytes; 0 if not known, so that nothing seems taken.
    fn free(&self) -> u64 {
        (self.gpu.free_bytes)().unwrap_or(0)
    }
}

/// A load in progress.
struct MoveGuard<'a>(&'a Shared);

impl<'a> MoveGuard<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.moving.fetch_add(1, Ordering::AcqRel);
        shared.moves.fetch_add(1, Ordering::AcqRel);
        Self(shared)
    }
}

impl Drop for MoveGuard<'_> {
    fn drop(&mut self) {
        self.0.moves.fetch_add(1, Ordering::AcqRel);
        self.0.moving.fetch_sub(1, Ordering::AcqRel);
    }
}

// === impl GpuModel ===

impl LoadedModel for GpuModel {
    fn signature(&self) -> &Signature {
        self.sessions.signature()
    }

    fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<Tensor>, Error> {
        self.run_interruptible(inputs, &Interrupt::default())
    }

    fn run_interruptible(
        &self,
        inputs: &[NamedTensor],
        interrupt: &Interrupt,
    ) -> Result<Vec<Tensor>, Error> {
        check_indices(&self.indices, inputs)?;
        let settled = self.shared.settled();
        let before = self.shared.free();
        let outputs = self.sessions.run(inputs, interrupt);
        let grown = before.saturating_sub(self.shared.free());
        // Otherwise the growth may belong to another model.
        if grown > 0 && settled.is_some() && settled == self.shared.settled() {
            self.taken.fetch_add(grown, Ordering::AcqRel);
        }
        outputs
    }

    fn weights_bytes(&self) -> u64 {
        self.weights_bytes
    }

    /// Memory of its arena without the weights: as much as its largest batch so far has needed.
    fn working_bytes(&self) -> Option<u64> {
        let taken = self.taken.load(Ordering::Acquire);
        Some(taken.saturating_sub(self.weights_bytes))
    }
}

impl Drop for GpuModel {
    /// The session's memory is released after this; a run that sees the change does not measure.
    fn drop(&mut self) {
        self.shared.moves.fetch_add(1, Ordering::AcqRel);
    }
}

/// The shapes that TensorRT is prepared for, as its provider reads them: `x:1x3x224x224,mask:1x128`.
#[derive(Debug, PartialEq, Eq)]
struct Profile {
    least: String,
    usual: String,
    most: String,
}

/// Rows of the batches that TensorRT chooses its kernels for.
const USUAL_BATCH: u64 = 16;

impl Profile {
    /// Batches with one row, the usual number of rows, and `largest` rows.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if another dimension than the batch's is open: TensorRT would choose its kernels again,
    /// which takes seconds, whenever an input is larger than all before.
    fn new(signature: &Signature, largest: u64) -> Result<Self, Error> {
        let at = |rows: u64| -> Result<String, Error> {
            let inputs = signature.inputs.iter();
            let shapes = inputs.map(|input| shape(input, signature.batched.then_some(rows)));
            Ok(shapes.collect::<Result<Vec<_>, _>>()?.join(","))
        };
        Ok(Self {
            least: at(1)?,
            usual: at(USUAL_BATCH.min(largest))?,
            most: at(largest)?,
        })
    }
}

fn shape(input: &TensorSpec, rows: Option<u64>) -> Result<String, Error> {
    let open = || {
        Error::Unsupported(format!(
            "input `{}` has an open dimension beside the batch's, and TensorRT chooses its kernels for given sizes",
            input.name
        ))
    };
    let unreadable = |letter: char| matches!(letter, ':' | ',');
    if input.name.contains(unreadable) {
        return Err(Error::Unsupported(format!(
            "input `{}` has `:` or `,` in its name, with which TensorRT's shapes are written",
            input.name
        )));
    }
    let sizes = input.shape.iter().enumerate().map(|(at, size)| {
        let size = size.or(rows.filter(|_| at == 0)).ok_or_else(open)?;
        Ok(size.to_string())
    });
    let sizes: Vec<String> = sizes.collect::<Result<_, Error>>()?;
    Ok(format!("{}:{}", input.name, sizes.join("x")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(inputs: &[(&str, &[Option<u64>])], batched: bool) -> Signature {
        let spec = |(name, shape): &(&str, &[Option<u64>])| TensorSpec {
            name: (*name).to_owned(),
            data_type: DataType::Fp32,
            shape: shape.to_vec(),
        };
        Signature {
            inputs: inputs.iter().map(spec).collect(),
            outputs: Vec::new(),
            batched,
        }
    }

    #[test]
    fn shapes_are_those_of_one_row_and_of_many() {
        let image: &[Option<u64>] = &[None, Some(3), Some(8), Some(8)];
        let both = signature(&[("x", image), ("mask", &[None, Some(4)])], true);
        let wanted = Profile {
            least: "x:1x3x8x8,mask:1x4".to_owned(),
            usual: "x:16x3x8x8,mask:16x4".to_owned(),
            most: "x:64x3x8x8,mask:64x4".to_owned(),
        };
        assert_eq!(Profile::new(&both, 64), Ok(wanted));
        let fixed = signature(&[("x", &[Some(2), Some(4)])], false);
        let profile = Profile::new(&fixed, 64).expect("fixed sizes");
        assert_eq!(
            (profile.least, profile.most),
            ("x:2x4".into(), "x:2x4".into())
        );
    }

    #[test]
    fn open_dimensions_and_names_that_cannot_be_written_are_refused() {
        for (inputs, says) in [
            (("tokens", [None, None]), "`tokens` has an open dimension"),
            (("x:0", [None, Some(4)]), "`x:0` has `:` or `,`"),
        ] {
            let (name, shape) = inputs;
            let error = Profile::new(&signature(&[(name, &shape)], true), 64).expect_err("refused");
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
