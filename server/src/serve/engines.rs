//! The engines of the CPU that the configuration asks for and this machine has.

use std::{path::PathBuf, sync::Arc};

use anyhow::Context;
use sextant_engine::{
    Engine, Error, LoadRequest,
    emulated::{EmulatedEngine, EmulatedModel},
};
use sextant_engine_ort::OrtEngine;

use sextant_config::Config;

/// Builds the configured engines, in the configured order.
pub(super) fn build(config: &Config) -> anyhow::Result<Vec<Arc<dyn Engine>>> {
    config
        .variants
        .engines
        .0
        .iter()
        .map(|name| engine(name, config))
        .collect()
}

fn engine(name: &str, config: &Config) -> anyhow::Result<Arc<dyn Engine>> {
    match name {
        "ort" => onnx_runtime(config),
        #[cfg(feature = "rten")]
        "rten" => Ok(Arc::new(sextant_engine_rten::RtenEngine::new())),
        "emulated" => Ok(Arc::new(EmulatedEngine::new(describe))),
        other => anyhow::bail!("engine `{other}` is not part of this build"),
    }
}

/// Where the ONNX Runtime library is.
pub(super) fn library(config: &Config) -> anyhow::Result<PathBuf> {
    let configured = config.onnxruntime_library.as_deref();
    OrtEngine::find_library(configured).with_context(|| {
        "the ONNX Runtime library is missing: run `cargo xtask provision`, set \
         `onnxruntime_library` or `ORT_DYLIB_PATH`, or leave `ort` out of `variants.engines`"
    })
}

fn onnx_runtime(config: &Config) -> anyhow::Result<Arc<dyn Engine>> {
    let library = library(config)?;
    let engine = OrtEngine::new(&library)
        .with_context(|| format!("`{}` cannot be used", library.display()))?;
    Ok(Arc::new(engine))
}

/// Time for one parameter of an emulated model and one row, ms: two operations at 10 Gop/s.
const MS_PER_PARAMETER: f64 = 2.0 / 1e7;

/// Time for each batch of an emulated model, ms.
const MS_PER_BATCH: f64 = 0.1;

/// An emulated model takes as long as the file's `sextant.alpha_ms`, `sextant.beta_ms` and
/// `sextant.load_ms` metadata say, or as its number of parameters suggests.
pub(super) fn describe(request: &LoadRequest) -> Result<EmulatedModel, Error> {
    let invalid = |error: sextant_onnx::Error| Error::InvalidModel(error.to_string());
    let model = sextant_onnx::decode(&request.model).map_err(invalid)?;
    let info = sextant_onnx::inspect(&request.model).map_err(invalid)?;
    let stated = |key: &str| {
        let entry = model
            .metadata_props
            .iter()
            .find(|entry| entry.key() == key)?;
        entry
            .value()
            .parse()
            .ok()
            .filter(|ms: &f64| ms.is_finite() && *ms >= 0.0)
    };
    let suggested = info.parameters as f64 * MS_PER_PARAMETER;
    Ok(EmulatedModel {
        signature: info.signature,
        alpha_ms: stated("sextant.alpha_ms").unwrap_or(suggested),
        beta_ms: stated("sextant.beta_ms").unwrap_or(MS_PER_BATCH),
        load_ms: stated("sextant.load_ms").unwrap_or(info.weights_bytes as f64 / 1e6),
        weights_bytes: info.weights_bytes,
    })
}
