//! The GPUs of this machine.

use std::sync::Arc;

use sextant_engine::Engine;

use sextant_config::Config;

/// The engine that is Sextant's own.
const OWN: &str = "cuda";

/// The GPU of that number, or all that are visible: the engines of each.
pub(super) fn open(
    ordinal: Option<u32>,
    config: &Config,
) -> anyhow::Result<Vec<Vec<Arc<dyn Engine>>>> {
    let names = &config.worker.cuda.engines.0;
    anyhow::ensure!(
        !names.is_empty() && (names.len() == 1 || names.iter().all(|name| name != OWN)),
        "`worker.cuda.engines` is {names:?}: name `cuda` alone, which takes all memory of the GPU when it starts, or \
         `ort-cuda`, `ort-tensorrt` or both"
    );
    match ordinal {
        Some(ordinal) => Ok(vec![device::open(ordinal, config)?]),
        None => {
            let count = device::visible();
            anyhow::ensure!(
                count > 0,
                "device `cuda` is listed in `worker.devices`, yet no GPU is visible: check the \
                 driver with `nvidia-smi`, or take it out"
            );
            (0..count)
                .map(|ordinal| device::open(ordinal, config))
                .collect()
        }
    }
}

#[cfg(feature = "cuda")]
mod device {
    use std::{fs, path::PathBuf, sync::Arc};

    use anyhow::Context;
    use sextant_config::{Config, Cuda};
    use sextant_engine::{DeviceMemory, Engine, cache_folder};
    use sextant_engine_cuda::{
        CudaEngine,
        driver::cuda::{CudaDevice, CudaDriver},
    };
    use sextant_engine_ort::{Gpu, GpuEngine, Provider};

    use super::{super::engines, OWN};

    pub(super) fn visible() -> u32 {
        CudaDriver::devices()
    }

    pub(super) fn open(ordinal: u32, config: &Config) -> anyhow::Result<Vec<Arc<dyn Engine>>> {
        let names = &config.worker.cuda.engines.0;
        let opened = match names.iter().any(|name| name == OWN) {
            true => own(ordinal, &config.worker.cuda).map(|engine| vec![engine]),
            false => onnx_runtime(ordinal, names, config),
        };
        opened.with_context(|| format!("device `cuda:{ordinal}` cannot be opened"))
    }

    fn own(ordinal: u32, settings: &Cuda) -> anyhow::Result<Arc<dyn Engine>> {
        let config = sextant_engine_cuda::Config {
            page_bytes: settings.page_bytes,
            pages: settings.pages,
            workspace_bytes: settings.workspace_bytes,
            io_bytes: settings.io_bytes,
            host_bytes: settings.host_bytes,
            ..sextant_engine_cuda::Config::default()
        };
        let driver = CudaDriver::open(ordinal)?;
        Ok(Arc::new(CudaEngine::new(Arc::new(driver), config)?))
    }

    /// ONNX Runtime's providers of these names, which share the device's memory.
    fn onnx_runtime(
        ordinal: u32,
        names: &[String],
        config: &Config,
    ) -> anyhow::Result<Vec<Arc<dyn Engine>>> {
        let library = engines::library(config)?;
        let settings = &config.worker.cuda;
        let device = CudaDevice::open(ordinal)?;
        let properties = device.properties().clone();
        let page_bytes = settings.page_bytes;
        // The libraries need memory in addition.
        let usual = device.free_bytes()? / 10 * 9 / page_bytes;
        let gpu = Gpu {
            ordinal,
            model: properties.name,
            is_ampere: properties.compute_capability >= (8, 0),
            memory: DeviceMemory {
                page_bytes,
                pages: settings.pages.unwrap_or(usual),
            },
            largest_batch: settings.largest_batch,
            timings: timings(names),
            free_bytes: Arc::new(move || device.free_bytes().ok()),
        };
        let engine = |name: &String| -> anyhow::Result<Arc<dyn Engine>> {
            let provider = [Provider::Cuda, Provider::TensorRt]
                .into_iter()
                .find(|provider| provider.engine() == name)
                .with_context(|| format!("engine `{name}` is not part of this build"))?;
            Ok(Arc::new(GpuEngine::new(&library, provider, gpu.clone())?))
        };
        names.iter().map(engine).collect()
    }

    /// Where TensorRT keeps what it has measured. Without a folder, each load measures anew.
    fn timings(names: &[String]) -> Option<PathBuf> {
        let is_wanted = names.iter().any(|name| name == Provider::TensorRt.engine());
        let folder = cache_folder().filter(|_| is_wanted)?.join("tensorrt");
        match fs::create_dir_all(&folder) {
            Ok(()) => Some(folder),
            Err(error) => {
                let folder = folder.display();
                tracing::warn!(%folder, %error, "TensorRT measures its kernels at every load");
                None
            }
        }
    }
}

#[cfg(not(feature = "cuda"))]
mod device {
    use std::sync::Arc;

    use sextant_config::Config;
    use sextant_engine::Engine;

    pub(super) fn visible() -> u32 {
        1
    }

    pub(super) fn open(ordinal: u32, _: &Config) -> anyhow::Result<Vec<Arc<dyn Engine>>> {
        anyhow::bail!(
            "device `cuda:{ordinal}` cannot be opened: this program was built without the feature \
             `cuda`; build it with the feature, or take the device out of `worker.devices`"
        )
    }
}
