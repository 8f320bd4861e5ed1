//! ONNX Runtime's GPU providers: the same comparisons, and the rows with which Sextant's own engine is compared.

use std::sync::Arc;

use sextant_engine::{DeviceMemory, Error};
use sextant_engine_cuda::driver::cuda::CudaDevice;
use sextant_engine_ort::{Gpu, GpuEngine, OrtEngine, Provider};

use crate::{agreement, arguments::Arguments, throughput};

/// Memory for the models that are compared, in pages of 16 MiB.
const PAGES: u64 = 512;

/// Checks that every provider of the library agrees with the processor. A missing provider is an error only if the
/// library has none of them.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let ordinal = arguments.device;
    let device = CudaDevice::open(ordinal)?;
    let missing = || Error::Unavailable {
        engine: "ort",
        reason: "ONNX Runtime is missing: set `ORT_DYLIB_PATH`".to_owned(),
    };
    let library = OrtEngine::find_library(None).ok_or_else(missing)?;
    let properties = device.properties().clone();
    let gpu = Gpu {
        ordinal,
        model: properties.name,
        is_ampere: properties.compute_capability >= (8, 0),
        memory: DeviceMemory {
            page_bytes: 16 << 20,
            pages: PAGES,
        },
        free_bytes: Arc::new(move || device.free_bytes().ok()),
        largest_batch: 64,
        timings: None,
    };
    let mut agreed = true;
    let mut last = None;
    let mut any = false;
    for provider in [Provider::Cuda, Provider::TensorRt] {
        match GpuEngine::new(&library, provider, gpu.clone()) {
            Ok(engine) => {
                any = true;
                // TensorRT rounds factors to TF32 whatever the settings, and refuses open dimensions. Its answers are
                // printed and not judged.
                let is_close = agreement::both(&engine, arguments)?;
                agreed &= is_close || provider == Provider::TensorRt;
                throughput::whole(&engine, arguments)?;
            }
            Err(error) => {
                eprintln!("{}: {error}", provider.engine());
                last = Some(error);
            }
        }
    }
    match last {
        Some(error) if !any => Err(error),
        _ => Ok(agreed),
    }
}
