//! The interpreter of the tests.

use std::path::PathBuf;

/// One that has NumPy.
///
/// # Panics
/// Where there is none: what to do stands in the message.
pub fn interpreter() -> PathBuf {
    let from = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
    if let Some(path) = from("SEXTANT_PYTHON") {
        return path;
    }
    let cache = from("SEXTANT_CACHE")
        .or_else(|| from("XDG_CACHE_HOME").map(|cache| cache.join("sextant")))
        .or_else(|| from("HOME").map(|home| home.join(".cache/sextant")))
        .unwrap_or_default();
    let path = cache.join("python/bin/python");
    assert!(
        path.exists(),
        "no Python with NumPy at `{}`: run `cargo xtask provision`, or set SEXTANT_PYTHON",
        path.display()
    );
    path
}
