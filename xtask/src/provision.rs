//! What a fresh machine lacks: the libraries of engines, a Python with pinned packages, tools,
//! servers.
//!
//! Every step looks first, prints what it found or does, and leaves what it made in the cache
//! folder, so that a second run needs no network. Downloads come from package registries only
//! (PyPI, crates.io, the system's packages) and are checked against pinned versions or checksums.

pub mod compose;
pub mod helm;
pub mod nvrtc;
pub mod onnxruntime;
pub mod openvino;
pub mod perf_analyzer;
pub mod python;
pub mod sdk;
pub mod servers;
pub mod system;
pub mod tools;
pub mod wheel;

use std::path::PathBuf;

use anyhow::Result;

use crate::paths;

/// Where the provisioned things are.
pub struct Provisioned {
    /// The cache folder.
    pub cache: PathBuf,
    /// The ONNX Runtime library.
    pub onnxruntime: PathBuf,
    /// A Python interpreter that has onnx, onnxruntime and numpy.
    pub python: PathBuf,
}

/// What serving and the demo need.
pub fn runtime() -> Result<Provisioned> {
    let cache = paths::cache()?;
    let python = python::ensure(&cache)?;
    let onnxruntime = onnxruntime::ensure(&cache, &python)?;
    openvino::ensure(&cache, &python)?;
    Ok(Provisioned {
        cache,
        onnxruntime,
        python,
    })
}

/// What the tests and checks need as well.
pub fn everything() -> Result<Provisioned> {
    let provisioned = runtime()?;
    tools::cargo_deny(&provisioned.cache)?;
    tools::s3_server(&provisioned.cache)?;
    servers::ensure()?;
    sdk::ensure(&provisioned.cache)?;
    Ok(provisioned)
}
