//! Provisions what a fresh machine lacks: the libraries of engines, a Python with pinned packages, tools, servers.
//!
//! Every step first checks what exists, prints what it finds or does, and leaves its results in the cache folder, so
//! that a second run needs no network. Downloads come only from package registries (PyPI, crates.io, the system's
//! packages) and are checked against pinned versions or checksums.

pub mod compose;
pub mod helm;
pub mod needs;
pub mod nextest;
pub mod nvrtc;
pub mod onnxruntime;
pub mod openvino;
pub mod perf_analyzer;
pub mod python;
pub mod sdk;
pub mod system;
pub mod tools;
pub mod wheel;
pub mod wheelhouse;

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::paths;

/// The paths of what is provisioned.
pub struct Provisions {
    /// The cache folder.
    pub cache: PathBuf,
    /// The ONNX Runtime library.
    pub onnxruntime: PathBuf,
    /// A Python interpreter that has onnx, onnxruntime and numpy.
    pub python: PathBuf,
    /// The folders of the cache that were made or found.
    pub folders: Vec<PathBuf>,
}

/// What the tests need, and what runs them.
pub struct ForTests {
    /// What the tests and the service need.
    pub provisioned: Provisions,
    /// `cargo-nextest`.
    pub nextest: PathBuf,
}

/// What `cargo xtask provision` makes for `cargo xtask test`.
pub struct Everything {
    /// What the tests need.
    pub tests: ForTests,
    /// `cargo-deny`; without it everything except the dependencies can be tested.
    pub deny: Result<PathBuf>,
}

impl Provisions {
    /// Adds the folder of the cache that contains a file.
    fn has(&mut self, file: &Path) {
        let inside = file.strip_prefix(&self.cache);
        let folder = inside.ok().and_then(|inside| inside.components().next());
        self.folders
            .extend(folder.map(|folder| self.cache.join(folder)));
    }
}

/// Provisions what serving and the demo need.
pub fn runtime() -> Result<Provisions> {
    let cache = paths::cache()?;
    let python = python::ensure(&cache)?;
    let onnxruntime = onnxruntime::ensure(&cache, &python)?;
    let openvino = openvino::ensure(&cache, &python)?;
    let mut provisioned = Provisions {
        cache,
        onnxruntime: onnxruntime.clone(),
        python: python.clone(),
        folders: Vec::new(),
    };
    for file in [python, onnxruntime, openvino] {
        provisioned.has(&file);
    }
    Ok(provisioned)
}

/// Provisions also what a fleet needs: the servers that hold its state.
pub fn stores() -> Result<Provisions> {
    let mut provisioned = runtime()?;
    needs::install(needs::SERVERS)?;
    let s3 = tools::s3_server(&provisioned.cache)?;
    provisioned.has(&s3);
    Ok(provisioned)
}

/// Provisions everything that the tests call. Each command that installs or runs tests uses this.
pub fn for_tests() -> Result<ForTests> {
    let mut provisioned = stores()?;
    needs::install(needs::SDK.iter().chain(needs::BROWSER).chain(needs::TOOLS))?;
    let sdk = sdk::ensure(&provisioned.cache)?;
    provisioned.has(&sdk);
    let models = sdk::ensure_models(&provisioned.cache)?;
    provisioned.has(&models);
    let wheels = wheelhouse::ensure(&provisioned.cache, &provisioned.python)?;
    provisioned.has(&wheels);
    Ok(ForTests {
        nextest: nextest::ensure(&provisioned.cache, &provisioned.python)?,
        provisioned,
    })
}

/// Provisions also what the other checks need.
pub fn everything() -> Result<Everything> {
    let tests = for_tests()?;
    Ok(Everything {
        deny: tools::cargo_deny(&tests.provisioned.cache),
        tests,
    })
}
