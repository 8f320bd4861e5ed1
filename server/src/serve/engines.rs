//! The engines of the CPU that the configuration names and this machine has.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use sextant_engine::{
    Engine, Error, LoadRequest,
    emulated::{EmulatedEngine, EmulatedModel},
};
use sextant_engine_ort::OrtEngine;

use sextant_config::Config;

/// The libraries that engines load, as a process is told of them that has no configuration.
#[derive(Debug, Default, clap::Args)]
pub struct Libraries {
    /// The ONNX Runtime library.
    #[arg(long)]
    onnxruntime: Option<PathBuf>,
    /// The OpenVINO library.
    #[arg(long)]
    openvino: Option<PathBuf>,
}

impl Libraries {
    /// Those of the engines with these names.
    pub(super) fn of(config: &Config, engines: &[&str]) -> anyhow::Result<Self> {
        let mut libraries = Self::default();
        if engines.contains(&"ort") {
            libraries.onnxruntime = Some(library(config)?);
        }
        #[cfg(feature = "openvino")]
        if engines.contains(&"openvino") {
            libraries.openvino = Some(openvino_library(config)?);
        }
        Ok(libraries)
    }

    /// As flags.
    pub(super) fn flags(self) -> Vec<OsString> {
        let named = [
            ("--onnxruntime", self.onnxruntime),
            ("--openvino", self.openvino),
        ];
        let named = named
            .into_iter()
            .filter_map(|(flag, path)| Some((flag, path?)));
        named
            .flat_map(|(flag, path)| [flag.into(), path.into()])
            .collect()
    }

    /// Where they lie.
    pub(super) fn paths(&self) -> Vec<&Path> {
        [&self.onnxruntime, &self.openvino]
            .into_iter()
            .filter_map(Option::as_deref)
            .collect()
    }

    /// A configuration with these libraries and engines, and nothing else that is not usual.
    pub(super) fn configure(self, engines: Vec<String>) -> Config {
        let mut config = Config::default();
        config.variants.engines.0 = engines;
        config.onnxruntime_library = self.onnxruntime;
        config.openvino_library = self.openvino;
        config
    }
}

/// Builds the configured engines, in the configured order. OpenVINO is left out where nobody has asked for it
/// and its library is not there.
pub(super) fn build(config: &Config) -> anyhow::Result<Vec<Arc<dyn Engine>>> {
    let names = config.variants.engines.0.iter();
    let names = names.filter(|name| *name != "openvino" || !is_spared(config));
    names.map(|name| engine(name, config)).collect()
}

#[cfg(feature = "openvino")]
fn is_spared(config: &Config) -> bool {
    let usual = config.variants.engines == Config::default().variants.engines;
    let is_missing = config.openvino_library.is_none() && openvino_library(config).is_err();
    if usual && is_missing {
        tracing::warn!(
            "models run without OpenVINO, whose library is missing: `pip install openvino` and set \
             `openvino_library`, or run `cargo xtask provision` in a checkout"
        );
    }
    usual && is_missing
}

#[cfg(not(feature = "openvino"))]
fn is_spared(_: &Config) -> bool {
    false
}

#[cfg(feature = "openvino")]
fn openvino_library(config: &Config) -> anyhow::Result<PathBuf> {
    let configured = config.openvino_library.as_deref();
    sextant_engine_openvino::OpenvinoEngine::find_library(configured).with_context(|| {
        if let Some(path) = configured {
            return format!("`openvino_library`: no such file: `{}`", path.display());
        }
        "OpenVINO's library is missing: `pip install openvino` and set `openvino_library` to its \
         `libopenvino_c.so` (in a checkout, `cargo xtask provision` does both), or leave `openvino` out of \
         `variants.engines`"
            .to_owned()
    })
}

#[cfg(feature = "openvino")]
fn openvino(config: &Config) -> anyhow::Result<Arc<dyn Engine>> {
    let library = openvino_library(config)?;
    let engine = sextant_engine_openvino::OpenvinoEngine::new(&library)
        .with_context(|| format!("`{}` cannot be used", library.display()))?;
    Ok(Arc::new(engine))
}

/// Loads an engine, and tells what was found: its library, and the version that is known to work.
pub(super) fn look(name: &str, config: &Config) -> anyhow::Result<String> {
    engine(name, config)?;
    Ok(match name {
        "ort" => {
            let version = sextant_engine_ort::LIBRARY_VERSION;
            format!(
                "ONNX Runtime, tested with {version}: `{}`",
                library(config)?.display()
            )
        }
        #[cfg(feature = "openvino")]
        "openvino" => {
            let version = sextant_engine_openvino::LIBRARY_VERSION;
            format!(
                "OpenVINO, tested with {version}: `{}`",
                openvino_library(config)?.display()
            )
        }
        _ => "part of this program".to_owned(),
    })
}

/// Whether a service leaves an engine out whose library is missing.
pub(super) fn is_left_out(name: &str, config: &Config) -> bool {
    name == "openvino" && is_spared(config)
}

/// Each engine that is usual, by name, or what it misses here.
pub fn each() -> Vec<(String, anyhow::Result<Arc<dyn Engine>>)> {
    let config = Config::default();
    let names = config.variants.engines.0.clone().into_iter();
    names
        .map(|name| {
            let engine = engine(&name, &config);
            (name, engine)
        })
        .collect()
}

fn engine(name: &str, config: &Config) -> anyhow::Result<Arc<dyn Engine>> {
    match name {
        "ort" => onnx_runtime(config),
        #[cfg(feature = "openvino")]
        "openvino" => openvino(config),
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
        if let Some(path) = configured {
            return format!("`onnxruntime_library`: no such file: `{}`", path.display());
        }
        format!(
            "the ONNX Runtime library is missing: download version {} from \
             https://github.com/microsoft/onnxruntime/releases and set `onnxruntime_library` or \
             `ORT_DYLIB_PATH` to its `libonnxruntime.so` (in a checkout, `cargo xtask provision` does both), \
             or leave `ort` out of `variants.engines`",
            sextant_engine_ort::LIBRARY_VERSION
        )
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
    let model = sextant_onnx::decode(&request.model.graph).map_err(invalid)?;
    let info = sextant_onnx::inspect(&request.model.graph).map_err(invalid)?;
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
