//! Real servers for tests: each on a free port of the loopback interface, with a folder of its own that is removed with
//! it.
//!
//! Entry points: [`redis::Redis`], [`postgres::Postgres`], [`s3::S3`]. The programs come from the system's packages or
//! from the cache folder that `cargo xtask test` fills. If a test finds no program, it fails and names the command that
//! installs it.
//!
//! **Invariant:** nothing is mocked, and nothing outlives its value: a server is killed when it is dropped.

use std::{env, path::PathBuf};

pub mod postgres;
pub mod process;
pub mod redis;
pub mod s3;

/// The folder that `cargo xtask provision` fills.
pub fn cache() -> Option<PathBuf> {
    let folder = |name| env::var_os(name).filter(|value| !value.is_empty());
    folder("SEXTANT_CACHE").map(PathBuf::from).or_else(|| {
        let base = folder("XDG_CACHE_HOME").map(PathBuf::from);
        let base = base.or_else(|| Some(PathBuf::from(folder("HOME")?).join(".cache")));
        Some(base?.join("sextant"))
    })
}

/// The Python interpreter with NumPy and ONNX Runtime for tests: `SEXTANT_PYTHON`, or the one in [`cache`].
///
/// # Panics
/// If there is none; the message says how to get it.
pub fn interpreter() -> PathBuf {
    if let Some(path) = env::var_os("SEXTANT_PYTHON") {
        return path.into();
    }
    let path = cache().unwrap_or_default().join("python/bin/python");
    assert!(
        path.exists(),
        "no Python at `{}`: run `cargo xtask provision`, or set SEXTANT_PYTHON",
        path.display()
    );
    path
}
