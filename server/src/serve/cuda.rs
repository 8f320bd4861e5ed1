//! The GPUs of this machine.

use std::sync::Arc;

use sextant_engine::Engine;

use sextant_config::Cuda;

/// The GPU of that number, or all that are visible.
pub(super) fn open(ordinal: Option<u32>, settings: &Cuda) -> anyhow::Result<Vec<Arc<dyn Engine>>> {
    match ordinal {
        Some(ordinal) => Ok(vec![engine(ordinal, settings)?]),
        None => {
            let count = visible();
            anyhow::ensure!(
                count > 0,
                "device `cuda` is listed in `worker.devices`, yet no GPU is visible: check the \
                 driver with `nvidia-smi`, or take it out"
            );
            (0..count)
                .map(|ordinal| engine(ordinal, settings))
                .collect()
        }
    }
}

#[cfg(feature = "cuda")]
fn visible() -> u32 {
    sextant_engine_cuda::driver::cuda::CudaDriver::devices()
}

#[cfg(feature = "cuda")]
fn engine(ordinal: u32, settings: &Cuda) -> anyhow::Result<Arc<dyn Engine>> {
    use anyhow::Context;
    use sextant_engine_cuda::{Config, CudaEngine, driver::cuda::CudaDriver};

    let open = || {
        let driver = CudaDriver::open(ordinal)?;
        let config = Config {
            page_bytes: settings.page_bytes,
            pages: settings.pages,
            workspace_bytes: settings.workspace_bytes,
            io_bytes: settings.io_bytes,
            host_bytes: settings.host_bytes,
            ..Config::default()
        };
        CudaEngine::new(Arc::new(driver), config)
    };
    let engine = open().with_context(|| format!("device `cuda:{ordinal}` cannot be opened"))?;
    Ok(Arc::new(engine))
}

#[cfg(not(feature = "cuda"))]
fn visible() -> u32 {
    1
}

#[cfg(not(feature = "cuda"))]
fn engine(ordinal: u32, _: &Cuda) -> anyhow::Result<Arc<dyn Engine>> {
    anyhow::bail!(
        "device `cuda:{ordinal}` cannot be opened: this program was built without the feature \
         `cuda`; build it with the feature, or take the device out of `worker.devices`"
    )
}
