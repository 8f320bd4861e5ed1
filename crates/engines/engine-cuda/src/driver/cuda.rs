//! The real driver: NVIDIA's driver interface, cuBLASLt, cuDNN and NVRTC through cudarc.
//!
//! Entry points: [`CudaDriver::open`]; [`CudaDevice::open`] for a device on which another library computes.
//!
//! All libraries are loaded at run time (`cuda/libraries.rs`); a missing one gives an [`Error::Unavailable`] that says
//! what to install. Kernels are compiled and loaded when the device is opened (`cuda/modules.rs`). Algorithms of
//! cuBLASLt and cuDNN are chosen when an operation is prepared, and kept (`cuda/matmul.rs`, `cuda/convolution.rs`):
//! what runs for a batch does not depend on when it runs.
//!
//! cudarc's safe types hold contexts, streams, events and modules. Its safe copies and launches work on typed
//! allocations that they track with events. This engine has one arena and orders its work itself, so it makes these
//! calls on the level below. This is the only `unsafe` code of the workspace: each use says why it is sound.
#![expect(unsafe_code, reason = "calls into NVIDIA's libraries")]

mod clock;
mod convolution;
mod errors;
mod libraries;
mod matmul;
mod memory;
mod modules;
mod objects;
mod paged;

use std::{sync::Arc, sync::OnceLock, time::Duration};

use cudarc::driver::{CudaContext, result, sys};
use sextant_engine::Error;

use self::{
    clock::Clock,
    convolution::Convolutions,
    errors::{driver_error, unavailable},
    matmul::Matmuls,
    memory::Memory,
    modules::Modules,
    objects::Objects,
};
use super::{Driver, Event, Graph, Priority, Properties, Reservation, StagingAddress, Stream};
use crate::{
    kernels,
    operation::{
        Activation, Address, Affine, Binary, BinaryFunction, Convolution, Method, Operand,
        Operation, Sizes,
    },
};

/// A kernel copies host memory up to this size. The device's copy engine finishes the work of one stream before it
/// turns to another, so the inputs of a batch would wait for all the weights of a model that is being loaded.
const KERNEL_COPY_BYTES: u64 = 2 << 20;

/// A device of this machine.
pub struct CudaDriver {
    properties: Properties,
    versions: Versions,
    context: Arc<CudaContext>,
    clock: Clock,
    modules: Modules,
    matmuls: Matmuls,
    convolutions: Option<Convolutions>,
    objects: Objects,
    memory: OnceLock<Memory>,
}

/// The versions that were found, for reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versions {
    /// The CUDA version that the graphics driver supports, as `12080`.
    pub driver: i32,
    /// cuBLASLt, as `120804`.
    pub cublaslt: usize,
    /// cuDNN, as `90800`, where there is one.
    pub cudnn: Option<usize>,
    /// NVRTC.
    pub nvrtc: (i32, i32),
}

/// A device of this machine on which another library computes: its description and its free memory.
pub struct CudaDevice {
    properties: Properties,
    context: Arc<CudaContext>,
}

// === impl CudaDevice ===

impl CudaDevice {
    /// Opens device `ordinal`. Only the graphics driver is needed. Libraries in the configured folders are loaded, so
    /// that the library that computes finds them.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the graphics driver or the device is missing, [`Error::Failed`] when the device
    /// refuses.
    pub fn open(ordinal: u32) -> Result<Self, Error> {
        libraries::preload_for_providers();
        libraries::require_driver()?;
        let context = open_context(ordinal)?;
        Ok(Self {
            properties: properties(&context, ordinal)?,
            context,
        })
    }

    /// The description of the device.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Free device memory now, bytes.
    ///
    /// # Errors
    /// [`Error::Failed`] when the device does not answer.
    pub fn free_bytes(&self) -> Result<u64, Error> {
        free_bytes(&self.context)
    }
}

// === impl CudaDriver ===

impl CudaDriver {
    /// Opens device `ordinal` and compiles the kernels for it, which takes seconds.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the graphics driver, a library or the device is missing;
    /// [`Error::Failed`] when the device refuses.
    pub fn open(ordinal: u32) -> Result<Self, Error> {
        libraries::preload();
        libraries::require()?;
        let context = open_context(ordinal)?;
        let properties = properties(&context, ordinal)?;
        let modules = Modules::load(&context, properties.compute_capability)?;
        let matmuls = Matmuls::new()?;
        let convolutions = match libraries::has_cudnn() {
            true => Some(Convolutions::new()?),
            false => None,
        };
        let versions = Versions {
            driver: libraries::driver_version()?,
            cublaslt: matmuls.version(),
            cudnn: convolutions.as_ref().map(Convolutions::version),
            nvrtc: modules.version(),
        };
        tracing::info!(device = properties.name, ?versions, "opened a CUDA device");
        Ok(Self {
            properties,
            versions,
            clock: Clock::new(&context),
            modules,
            matmuls,
            convolutions,
            objects: Objects::new(context.clone()),
            memory: OnceLock::new(),
            context,
        })
    }

    /// Compiles the kernels for a compute capability as [`Self::open`] does, without a device. Returns the kernels of
    /// each source with the size of its machine code, bytes.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when NVRTC is missing, [`Error::Failed`] when it refuses a source.
    pub fn compile(capability: (u32, u32)) -> Result<Vec<(Vec<String>, usize)>, Error> {
        libraries::preload();
        libraries::require_compiler()?;
        let images = modules::compile_all(capability)?;
        let sources = kernels::SOURCES.iter();
        let check = |(source, image): (&kernels::Source, Vec<u8>)| {
            let names = source.kernels();
            modules::check_names(&names, &image)?;
            Ok((names, image.len()))
        };
        sources.zip(images).map(check).collect()
    }

    /// The version of the NVRTC that compiles the kernels.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when NVRTC is missing.
    pub fn compiler() -> Result<(i32, i32), Error> {
        libraries::preload();
        libraries::require_compiler()?;
        modules::version()
    }

    /// Number of devices of this machine; 0 if there is no driver.
    pub fn devices() -> u32 {
        if !libraries::has_driver() {
            return 0;
        }
        let count = CudaContext::device_count().unwrap_or(0);
        u32::try_from(count).unwrap_or(0)
    }

    /// The versions that were found.
    pub fn versions(&self) -> &Versions {
        &self.versions
    }

    fn memory(&self) -> Result<&Memory, Error> {
        let missing = || Error::Failed("the device was not started".to_owned());
        self.memory.get().ok_or_else(missing)
    }

    fn bind(&self) -> Result<(), Error> {
        self.context.bind_to_thread().map_err(driver_error)
    }

    /// Launches the kernel of an operation, if there is anything to compute.
    fn launch_kernel(&self, stream: Stream, operation: &Operation) -> Result<(), Error> {
        let Some(launch) = kernels::launch(operation)? else {
            return Ok(());
        };
        let parameters = launch.parameters.relocated(self.memory()?.arena());
        let stream = self.objects.stream(stream)?;
        self.modules.launch(&stream, &launch, &parameters)
    }

    fn convolve(&self, stream: Stream, it: &Convolution) -> Result<(), Error> {
        let missing = || Error::Unsupported("a convolution without cuDNN".to_owned());
        let convolutions = self.convolutions.as_ref().ok_or_else(missing)?;
        let queue = self.objects.stream(stream)?;
        if convolutions.launch(&queue, self.memory()?, it)? {
            return Ok(());
        }
        // cuDNN has computed the products. Each thread of these kernels reads an element before it writes it.
        if let Some(addend) = it.addend {
            self.launch_kernel(stream, &Operation::Binary(add(it, addend)))?;
        }
        self.launch_kernel(stream, &Operation::Affine(finish(it)))
    }
}

/// Whether 16 bytes can be accessed at once.
fn is_wide(from: StagingAddress, to: Address) -> bool {
    (from.get() | to.get()).is_multiple_of(16)
}

/// Adds the addend of a convolution, in place.
fn add(it: &Convolution, addend: Address) -> Binary {
    let flat = |address| Operand {
        address,
        strides: [1, 0, 0, 0, 0, 0],
    };
    let count = it.batch * it.out_channels * it.window.out_count();
    Binary {
        function: BinaryFunction::Add,
        a: flat(it.y),
        b: flat(addend),
        y: it.y,
        sizes: Sizes {
            rank: 1,
            sizes: [count, 1, 1, 1, 1, 1],
        },
        activation: Activation::None,
        element: it.element,
    }
}

/// Applies bias and activation of a convolution, in place.
fn finish(it: &Convolution) -> Affine {
    let positions = it.window.out_count();
    let (outer, inner) = match it.channels_last {
        true => (it.batch * positions, 1),
        false => (it.batch, positions),
    };
    Affine {
        x: it.y,
        y: it.y,
        scale: None,
        shift: it.bias,
        outer,
        channels: it.out_channels,
        inner,
        activation: it.activation,
        element: it.element,
    }
}

impl Driver for CudaDriver {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn free_bytes(&self) -> Result<u64, Error> {
        free_bytes(&self.context)
    }

    fn clock_mhz(&self) -> Result<u32, Error> {
        self.clock.now_mhz()
    }

    fn has_convolution(&self) -> bool {
        self.convolutions.is_some()
    }

    fn page_granularity(&self) -> Option<u64> {
        paged::granularity(&self.context)
    }

    fn start(&self, reservation: &Reservation) -> Result<bool, Error> {
        let memory = Memory::new(&self.context, reservation)?;
        let has_windows = memory.has_windows();
        let again = |_| Error::Failed("the device was started twice".to_owned());
        self.memory.set(memory).map_err(again)?;
        Ok(has_windows)
    }

    fn map(&self, window: Address, pages: &[u32]) -> Result<(), Error> {
        self.bind()?;
        self.memory()?.map(window, pages)
    }

    fn create_stream(&self, priority: Priority) -> Result<Stream, Error> {
        self.objects.create_stream(priority)
    }

    fn synchronize(&self, stream: Stream) -> Result<(), Error> {
        let stream = self.objects.stream(stream)?;
        stream.synchronize().map_err(driver_error)
    }

    fn write_staging(&self, to: StagingAddress, bytes: &[u8]) -> Result<(), Error> {
        self.memory()?.write_staging(to, bytes)
    }

    fn read_staging(&self, from: StagingAddress, bytes: &mut [u8]) -> Result<(), Error> {
        self.memory()?.read_staging(from, bytes)
    }

    fn copy_in(
        &self,
        stream: Stream,
        from: StagingAddress,
        to: Address,
        bytes: u64,
    ) -> Result<(), Error> {
        self.bind()?;
        let stream = self.objects.stream(stream)?;
        let memory = self.memory()?;
        if bytes > KERNEL_COPY_BYTES || !bytes.is_multiple_of(16) || !is_wide(from, to) {
            return memory.copy_in(&stream, from, to, bytes);
        }
        let (source, target) = memory.mapped(from, to, bytes)?;
        let launch = kernels::copy_between(source, target, bytes);
        self.modules
            .launch(&stream, &launch, launch.parameters.bytes())
    }

    fn copy_out(
        &self,
        stream: Stream,
        from: Address,
        to: StagingAddress,
        bytes: u64,
    ) -> Result<(), Error> {
        self.bind()?;
        let stream = self.objects.stream(stream)?;
        self.memory()?.copy_out(&stream, from, to, bytes)
    }

    fn copy_within(
        &self,
        stream: Stream,
        from: Address,
        to: Address,
        bytes: u64,
    ) -> Result<(), Error> {
        self.bind()?;
        let stream = self.objects.stream(stream)?;
        self.memory()?.copy_within(&stream, from, to, bytes)
    }

    fn create_event(&self) -> Result<Event, Error> {
        self.objects.create_event()
    }

    fn record(&self, event: Event, stream: Stream) -> Result<(), Error> {
        let stream = self.objects.stream(stream)?;
        let event = self.objects.event(event)?;
        event.record(&stream).map_err(driver_error)
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<(), Error> {
        let stream = self.objects.stream(stream)?;
        let event = self.objects.event(event)?;
        stream.wait(&event).map_err(driver_error)
    }

    fn synchronize_event(&self, event: Event) -> Result<(), Error> {
        let event = self.objects.event(event)?;
        event.synchronize().map_err(driver_error)
    }

    fn elapsed(&self, from: Event, to: Event) -> Result<Duration, Error> {
        self.objects.elapsed(from, to)
    }

    fn prepare(&self, operation: &Operation) -> Result<(), Error> {
        self.bind()?;
        match operation {
            Operation::Gemm(it) => self.matmuls.prepare(self.memory()?, it),
            Operation::Convolution(it) if it.method == Method::Library => {
                let missing = || Error::Unsupported("a convolution without cuDNN".to_owned());
                let convolutions = self.convolutions.as_ref().ok_or_else(missing)?;
                convolutions.prepare(self.memory()?, it)
            }
            // All kernels are loaded; this only checks that there is one for the operation.
            _ => kernels::launch(operation).map(|_| ()),
        }
    }

    fn launch(&self, stream: Stream, operation: &Operation) -> Result<(), Error> {
        self.bind()?;
        match operation {
            Operation::Gemm(it) => {
                let queue = self.objects.stream(stream)?;
                match self.matmuls.launch(&queue, self.memory()?, it)? {
                    true => Ok(()),
                    false => self.launch_kernel(stream, operation),
                }
            }
            Operation::Convolution(it) if it.method == Method::Library => self.convolve(stream, it),
            _ => self.launch_kernel(stream, operation),
        }
    }

    fn begin_capture(&self, stream: Stream) -> Result<(), Error> {
        // Relaxed: the libraries may load their code when they are first used.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        let stream = self.objects.stream(stream)?;
        stream.begin_capture(mode).map_err(driver_error)
    }

    fn end_capture(&self, stream: Stream) -> Result<Graph, Error> {
        self.objects.end_capture(stream)
    }

    fn launch_graph(&self, stream: Stream, graph: Graph) -> Result<(), Error> {
        self.bind()?;
        self.objects.launch_graph(stream, graph)
    }

    fn destroy_graph(&self, graph: Graph) {
        self.objects.destroy_graph(graph);
    }
}

impl Drop for CudaDriver {
    fn drop(&mut self) {
        // Work that still runs addresses the memory that is freed next.
        if let Err(error) = self.context.synchronize() {
            tracing::warn!(%error, "a CUDA device was left in an error");
        }
    }
}

fn open_context(ordinal: u32) -> Result<Arc<CudaContext>, Error> {
    result::init().map_err(|error| {
        unavailable(format!(
            "the NVIDIA driver does not start ({error}): `nvidia-smi` says more; a container needs \
             the GPU passed through"
        ))
    })?;
    let count = CudaContext::device_count().map_err(driver_error)?;
    if i64::from(ordinal) >= i64::from(count) {
        return Err(unavailable(format!(
            "there is no device `cuda:{ordinal}`, the driver shows {count}: check `nvidia-smi` and \
             `CUDA_VISIBLE_DEVICES`"
        )));
    }
    CudaContext::new(ordinal as usize).map_err(driver_error)
}

fn free_bytes(context: &CudaContext) -> Result<u64, Error> {
    let (free, _) = context.mem_get_info().map_err(driver_error)?;
    Ok(free as u64)
}

fn properties(context: &CudaContext, ordinal: u32) -> Result<Properties, Error> {
    let (major, minor) = context.compute_capability().map_err(driver_error)?;
    let compute_capability = (major.unsigned_abs(), minor.unsigned_abs());
    if compute_capability < (7, 0) {
        return Err(unavailable(format!(
            "`cuda:{ordinal}` has compute capability {major}.{minor}, 7.0 is the oldest that is \
             supported"
        )));
    }
    Ok(Properties {
        name: context.name().map_err(driver_error)?,
        ordinal,
        compute_capability,
        memory_bytes: context.total_mem().map_err(driver_error)? as u64,
    })
}
