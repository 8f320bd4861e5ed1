//! Containers: the engine that runs them, and images that need no registry of images.

use std::fs::File;

use anyhow::{Context, Result, bail};

use crate::paths;

pub mod engine;
pub mod images;
pub mod stand_ins;

/// A lock for commands whose containers always have the same names; it is held while such a command runs.
pub fn alone(command: &str) -> Result<File> {
    let path = paths::cache()?.join(format!("{command}.lock"));
    let file = File::create(&path);
    let file = file.with_context(|| format!("cannot create `{}`", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(_) => {
            bail!("another `cargo xtask {command}` runs on this machine: wait for its end")
        }
    }
}
