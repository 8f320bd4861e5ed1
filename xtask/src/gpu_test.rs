//! `cargo xtask gpu-test`: tests the CUDA engine on a GPU of this machine, in one command.
//!
//! It builds the kit of `cargo xtask gpu-kit`, runs its script and shows the results. It exits with 2 if there is no
//! GPU.

mod table;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};

use crate::provision::{self, Provisions, nvrtc, python};
use crate::shell::{self, say};
use crate::{gpu_kit, paths};

/// Exit status if there is no GPU.
const NO_DEVICE: u8 = 2;

/// The device files of a driver; the second is that of Windows' subsystem for Linux.
const DEVICE_FILES: [&str; 2] = ["/dev/nvidiactl", "/dev/dxg"];

/// Options of `cargo xtask gpu-test`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Compile the kernels for compute capabilities 8.0 and 9.0 with CUDA 12's and 13's compilers and stop; needs no
    /// GPU
    #[arg(long)]
    compile_only: bool,
    /// Print one JSON object per line instead of tables
    #[arg(long)]
    json: bool,
    /// Number of the device
    #[arg(long, default_value_t = 0)]
    device: u32,
    /// Time for all parts together; what the others leave is the jitter's
    #[arg(long, default_value_t = 470)]
    seconds: u32,
    /// Run these parts alone, separated by commas: `crates/engines/engine-cuda/kit/run.sh` lists them
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// Runs the suite and prints the results.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.compile_only {
        return compile(arguments.json);
    }
    if !DEVICE_FILES.iter().any(|file| Path::new(file).exists()) {
        say(
            "no NVIDIA GPU can be seen from here (`/dev/nvidiactl` is missing): install the driver, \
             525 or newer, or pass the GPU through to the container. `--compile-only` needs none",
        );
        return Ok(ExitCode::from(NO_DEVICE));
    }
    let provisioned = provision::runtime()?;
    measure(&mut script(&provisioned, arguments)?, arguments.json)
}

/// The script of the kit, with what is provisioned here.
fn script(provisioned: &Provisions, arguments: &Arguments) -> Result<Command> {
    let kit = gpu_kit::make(None)?;
    let mut command = shell::command("sh");
    command
        .arg(kit.join("run.sh"))
        .args(["--device", &arguments.device.to_string()])
        .args(["--seconds", &arguments.seconds.to_string()])
        .env("ORT_DYLIB_PATH", &provisioned.onnxruntime)
        .env("OUT", paths::target("gpu-test"));
    if !arguments.only.is_empty() {
        command.args(["--only", &arguments.only.join(" ")]);
    }
    Ok(command)
}

/// Prints lines as they come, or tables at the end.
fn measure(script: &mut Command, json: bool) -> Result<ExitCode> {
    if json {
        let status = script.stdin(Stdio::null()).status();
        let status = status.context("cannot start `sh`")?;
        return Ok(code(status.code()));
    }
    let output = shell::results(script)?;
    table::print(&shell::objects(&output.stdout));
    Ok(code(output.status.code()))
}

/// Compiles the kernels only. This needs neither optimised code nor a device.
fn compile(json: bool) -> Result<ExitCode> {
    let cache = paths::cache()?;
    let python = python::ensure(&cache)?;
    let mut records = Vec::new();
    let mut worst = 0;
    for compiler in &nvrtc::COMPILERS {
        let libraries = compiler.ensure(&cache, &python)?;
        let arguments = ["run", "--quiet", "--package", "sextant-engine-cuda"];
        let output = shell::results(
            shell::command("cargo")
                .args(arguments)
                .args(["--bin", "gpu_suite", "--", "--only", "compile"])
                .env("SEXTANT_CUDA_LIBRARIES", libraries)
                .env_remove("SEXTANT_CUDA_KERNELS"),
        )?;
        worst = worst.max(output.status.code().unwrap_or(1));
        records.extend(shell::objects(&output.stdout));
    }
    match json {
        true => table::lines(&records),
        false => table::print(&records),
    }
    Ok(code(Some(worst)))
}

fn code(status: Option<i32>) -> ExitCode {
    let status = status.and_then(|status| u8::try_from(status).ok());
    ExitCode::from(status.unwrap_or(1))
}
