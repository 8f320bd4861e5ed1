//! `cargo xtask wheel`: builds the Python wheel with the service's binary and the client.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{
    paths, provision, server,
    shell::{self, say},
};

/// Options of `cargo xtask wheel`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Put this binary into the wheel [default: one with all features, built with optimisation]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Where the wheel goes
    #[arg(long, value_name = "FOLDER", default_value = "dist")]
    to: PathBuf,
}

/// Builds what is missing and writes the wheel.
pub fn run(arguments: &Arguments) -> Result<()> {
    let binary = match &arguments.binary {
        Some(binary) => binary.clone(),
        None => server::build()?,
    };
    let wheel = write(&binary, &arguments.to)?;
    let size = std::fs::metadata(&wheel).context("the wheel is not there")?;
    say(format!(
        "`{}`: {} MB; `pip install` it, then `sextant serve`",
        wheel.display(),
        size.len() / 1_000_000
    ));
    Ok(())
}

/// Writes the wheel that carries a binary into a folder and returns its path.
pub fn write(binary: &Path, to: &Path) -> Result<PathBuf> {
    let python = provision::python::ensure(&paths::cache()?)?;
    let stripped = stripped(binary)?;
    let written = shell::output(
        provision::python::script(&python, "wheel.py")
            .arg("--binary")
            .arg(&stripped)
            .arg("--to")
            .arg(to),
    )?;
    Ok(PathBuf::from(written.trim()))
}

/// A copy of the binary without symbols, which users of the wheel do not need.
fn stripped(binary: &Path) -> Result<PathBuf> {
    let folder = paths::root().join("target/wheel");
    std::fs::create_dir_all(&folder)?;
    let copy = folder.join("sextant");
    shell::run(shell::command("strip").arg("-o").arg(&copy).arg(binary))?;
    Ok(copy)
}
