//! Models for performance work, with realistic shapes and costs and random weights.

use std::path::PathBuf;

use anyhow::Result;

use crate::provision::{self, python};
use crate::{paths, shell};

/// Options of `cargo xtask models`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Write only these (default: all)
    names: Vec<String>,
}

/// Writes the requested models into `target/models`.
pub fn run(arguments: &Arguments) -> Result<()> {
    let provisioned = provision::runtime()?;
    let names: Vec<&str> = arguments.names.iter().map(String::as_str).collect();
    write(&provisioned.python, &names).map(|_| ())
}

/// Writes the named models, or all, unless they exist; returns their folder.
pub fn write(python: &std::path::Path, names: &[&str]) -> Result<PathBuf> {
    let folder = paths::target("models");
    shell::run(python::script(python, "models.py").arg(&folder).args(names))?;
    Ok(folder)
}
