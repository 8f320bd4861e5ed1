//! `cargo xtask gpu-kit`: builds a folder that measures the CUDA engine on a machine without Rust and without a
//! network.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{
    paths,
    shell::{self, say},
};

/// Largest size of the folder, bytes: the folder must pass over slow connections.
const MOST_BYTES: u64 = 20 << 20;

/// The version of glibc of the oldest system on which it must start.
const OLDEST_GLIBC: (u32, u32) = (2, 36);

/// The scripts beside the program.
const SCRIPTS: [&str; 2] = ["run.sh", "pytorch.py"];

/// Options of `cargo xtask gpu-kit`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The folder that is made [default: target/gpu-kit]
    #[arg(long)]
    to: Option<PathBuf>,
    /// Put the service in, too: the part `service` then measures it as a whole, and the folder has some hundred MiB
    #[arg(long)]
    service: bool,
}

/// Builds the folder and prints how to use it.
pub fn run(arguments: &Arguments) -> Result<()> {
    let folder = make(arguments.to.as_deref())?;
    if arguments.service {
        add_service(&folder)?;
    }
    println!(
        "copy the folder to the machine with the GPU and run there: OUT=results sh {}/run.sh",
        folder
            .file_name()
            .map_or_else(|| ".".into(), |name| name.to_string_lossy())
    );
    Ok(())
}

/// Builds the folder, `target/gpu-kit` unless another one is named, and prints its size.
pub fn make(to: Option<&Path>) -> Result<PathBuf> {
    let folder = match to {
        Some(folder) => std::path::absolute(folder)?,
        None => paths::target("gpu-kit"),
    };
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create `{}`", folder.display()))?;
    let program = folder.join("gpu_suite");
    std::fs::copy(build("sextant-engine-cuda", "gpu_suite")?, &program)?;
    let strip = shell::run(shell::command("strip").arg(&program));
    strip.context("`strip` is missing: install the package `binutils`")?;
    let kit = paths::root().join("crates/engines/engine-cuda/kit");
    for name in SCRIPTS {
        std::fs::copy(kit.join(name), folder.join(name))?;
    }
    check(&folder, &program)?;
    Ok(folder)
}

/// Adds what the part `service` needs.
fn add_service(folder: &Path) -> Result<()> {
    let program = folder.join("sextant");
    std::fs::copy(build("sextant", "sextant")?, &program)?;
    shell::run(shell::command("strip").arg(&program))?;
    let kit = paths::root().join("crates/engines/engine-cuda/kit");
    std::fs::copy(kit.join("service.py"), folder.join("service.py"))?;
    let models = paths::root().join("xtask/models.py");
    std::fs::copy(models, folder.join("models.py"))?;
    say(format!(
        "with the service, {:.0} MiB",
        mebibytes(std::fs::metadata(&program)?.len())
    ));
    Ok(())
}

/// A release build of a program of a package.
fn build(package: &str, program: &str) -> Result<PathBuf> {
    let arguments = ["build", "--release", "--package", package, "--bin", program];
    shell::run(shell::command("cargo").args(arguments))?;
    Ok(paths::target("release").join(program))
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Checks the size, and on which systems the program starts.
fn check(folder: &Path, program: &Path) -> Result<()> {
    let mut bytes = 0;
    for name in SCRIPTS.iter().chain(&["gpu_suite"]) {
        bytes += std::fs::metadata(folder.join(name))?.len();
    }
    let glibc = glibc(&std::fs::read(program)?);
    let (major, minor) = glibc;
    say(format!(
        "{}: {:.1} MiB, for {} with glibc {major}.{minor} or newer",
        folder.display(),
        mebibytes(bytes),
        std::env::consts::ARCH,
    ));
    if bytes > MOST_BYTES {
        bail!("the folder has {bytes} bytes, at most {MOST_BYTES} are allowed");
    }
    if glibc > OLDEST_GLIBC {
        let (major, minor) = OLDEST_GLIBC;
        say(format!(
            "build it on a system with glibc {major}.{minor}, as Debian 12 has, to start it on all that are newer"
        ));
    }
    Ok(())
}

/// The newest version of glibc that a program names.
fn glibc(program: &[u8]) -> (u32, u32) {
    const NAME: &[u8] = b"GLIBC_";
    let places = program.windows(NAME.len()).enumerate();
    let found = places.filter(|(_, bytes)| *bytes == NAME);
    let versions = found.filter_map(|(place, _)| {
        let text = &program[place + NAME.len()..];
        let end = text.iter().position(|byte| *byte == 0)?;
        let text = std::str::from_utf8(&text[..end]).ok()?;
        let (major, minor) = text.split_once('.')?;
        let minor = minor.split('.').next()?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    versions.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::glibc;

    #[test]
    fn the_newest_version_counts() {
        let program = b"..GLIBC_2.9\0x\0GLIBC_2.34\0GLIBC_2.2.5\0GLIBC_PRIVATE\0GLIBC_2.99";
        assert_eq!(glibc(program), (2, 34));
        assert_eq!(glibc(b"static"), (0, 0));
    }
}
