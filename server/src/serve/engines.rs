//! The engines that the configuration asks for and this machine has.

use std::sync::Arc;

use anyhow::Context;
use sextant_engine::Engine;
use sextant_engine_ort::OrtEngine;

use crate::config::Config;

/// Builds the configured engines, in the configured order.
pub(super) fn build(config: &Config) -> anyhow::Result<Vec<Arc<dyn Engine>>> {
    config.variants.engines.0.iter().map(|name| engine(name, config)).collect()
}

fn engine(name: &str, config: &Config) -> anyhow::Result<Arc<dyn Engine>> {
    match name {
        "ort" => onnx_runtime(config),
        #[cfg(feature = "rten")]
        "rten" => Ok(Arc::new(sextant_engine_rten::RtenEngine::new())),
        other => anyhow::bail!("engine `{other}` is not part of this build"),
    }
}

fn onnx_runtime(config: &Config) -> anyhow::Result<Arc<dyn Engine>> {
    let configured = config.onnxruntime_library.as_deref();
    let library = OrtEngine::find_library(configured).with_context(|| {
        "the ONNX Runtime library is missing: run `cargo xtask provision`, set \
         `onnxruntime_library` or `ORT_DYLIB_PATH`, or leave `ort` out of `variants.engines`"
    })?;
    let engine = OrtEngine::new(&library)
        .with_context(|| format!("`{}` cannot be used", library.display()))?;
    Ok(Arc::new(engine))
}
