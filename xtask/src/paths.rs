//! Paths of files and folders.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the repository")
        .to_path_buf()
}

/// The folder of build outputs that are not cargo's: `target/<name>`.
pub fn target(name: &str) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root().join("target"), |dir| root().join(dir))
        .join(name)
}

/// The same folder, emptied of everything from an earlier run.
pub fn empty_target(name: &str) -> Result<PathBuf> {
    let folder = target(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// The folder of what is downloaded or built once: `$SEXTANT_CACHE`, otherwise `$XDG_CACHE_HOME/sextant`, otherwise
/// `~/.cache/sextant`. The server looks for the ONNX Runtime library in the same place.
pub fn cache() -> Result<PathBuf> {
    let folder = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let cache = match folder("SEXTANT_CACHE") {
        Some(cache) => cache,
        None => folder("XDG_CACHE_HOME")
            .or_else(|| folder("HOME").map(|home| home.join(".cache")))
            .context("set `SEXTANT_CACHE` or `HOME`: there is no folder to keep downloads in")?
            .join("sextant"),
    };
    std::fs::create_dir_all(&cache)
        .with_context(|| format!("cannot create the cache folder `{}`", cache.display()))?;
    Ok(std::path::absolute(cache)?)
}

/// SHA-256 of a file, in hexadecimal.
pub fn sha256(path: &Path) -> Result<String> {
    let context = || format!("cannot read `{}`", path.display());
    let mut file = std::fs::File::open(path).with_context(context)?;
    let mut hasher = Sha256::new();
    std::io::copy(&mut file, &mut hasher).with_context(context)?;
    Ok(hex::encode(hasher.finalize()))
}
