//! `cargo xtask gpu-test`: the CUDA engine on a GPU, in one command.
//!
//! The program that talks to the device is an example of `crates/engine-cuda`, which this command
//! builds, runs and reads; PyTorch is measured beside it where a Python has it. Exits with 2 where
//! there is no GPU.

mod table;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Result;
use serde_json::Value;

use crate::provision::{self, Provisioned, nvrtc, python};
use crate::shell::{self, say};

/// Exit status where there is no GPU.
const NO_DEVICE: u8 = 2;

/// What a driver makes for its devices; the second is that of Windows' subsystem for Linux.
const DEVICE_FILES: [&str; 2] = ["/dev/nvidiactl", "/dev/dxg"];

/// Options of `cargo xtask gpu-test`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Compile the kernels for compute capabilities 8.0 and 9.0 and stop; needs no GPU
    #[arg(long)]
    compile_only: bool,
    /// Print one JSON object per line instead of tables
    #[arg(long)]
    json: bool,
    /// Number of the device
    #[arg(long, default_value_t = 0)]
    device: u32,
    /// Runs of the latency figure
    #[arg(long, default_value_t = 100_000)]
    runs: u32,
}

/// Runs the suite and prints what it found.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if !arguments.compile_only && !DEVICE_FILES.iter().any(|file| Path::new(file).exists()) {
        say(
            "no NVIDIA GPU can be seen from here (`/dev/nvidiactl` is missing): install the driver, \
             525 or newer, or pass the GPU through to the container. `--compile-only` needs none",
        );
        return Ok(ExitCode::from(NO_DEVICE));
    }
    let provisioned = provision::runtime()?;
    let (code, mut records) = if arguments.compile_only {
        suite(&mut compile(&provisioned)?)?
    } else {
        suite(&mut measure(&provisioned, arguments))?
    };
    let mut code = code;
    if !arguments.compile_only && code != NO_DEVICE {
        let (compared, found) = providers(&provisioned, arguments)?;
        code = code.max(compared);
        records.extend(found);
        records.extend(torch());
    }
    match arguments.json {
        true => table::lines(&records),
        false => table::print(&records),
    }
    Ok(ExitCode::from(code))
}

/// Compiling needs neither optimised code nor a device.
fn compile(provisioned: &Provisioned) -> Result<Command> {
    let nvrtc = nvrtc::ensure(&provisioned.cache, &provisioned.python)?;
    let mut command = example(provisioned, "dev");
    command
        .arg("--compile-only")
        .env("SEXTANT_CUDA_LIBRARIES", nvrtc);
    Ok(command)
}

fn measure(provisioned: &Provisioned, arguments: &Arguments) -> Command {
    let mut command = example(provisioned, "release");
    command
        .args(["--device", &arguments.device.to_string()])
        .args(["--runs", &arguments.runs.to_string()]);
    command
}

/// The same with ONNX Runtime's providers of GPUs; nothing where nobody names a library that has them.
fn providers(provisioned: &Provisioned, arguments: &Arguments) -> Result<(u8, Vec<Value>)> {
    let Some(library) = std::env::var_os("SEXTANT_GPU_ONNXRUNTIME") else {
        say(
            "not compared with ONNX Runtime's providers: `pip install onnxruntime-gpu` and name its \
             `libonnxruntime.so.*` in `SEXTANT_GPU_ONNXRUNTIME`",
        );
        return Ok((0, Vec::new()));
    };
    let mut command = measure(provisioned, arguments);
    command.arg("--providers").env("ORT_DYLIB_PATH", library);
    suite(&mut command)
}

fn example(provisioned: &Provisioned, profile: &str) -> Command {
    let mut command = shell::command("cargo");
    command
        .args(["run", "--quiet", "--package", "sextant-engine-cuda"])
        .args(["--profile", profile, "--example", "gpu_suite", "--"])
        .env("ORT_DYLIB_PATH", &provisioned.onnxruntime);
    command
}

/// Runs the example: its exit status and what it found.
fn suite(command: &mut Command) -> Result<(u8, Vec<Value>)> {
    let output = shell::results(command)?;
    let code = output
        .status
        .code()
        .and_then(|code| u8::try_from(code).ok());
    Ok((code.unwrap_or(1), shell::objects(&output.stdout)))
}

/// The same network with PyTorch; nothing where there is none.
fn torch() -> Vec<Value> {
    let interpreter = std::env::var_os("SEXTANT_TORCH_PYTHON").unwrap_or_else(|| "python3".into());
    let mut script = python::script(&PathBuf::from(interpreter), "assets/resnet50_torch.py");
    match shell::output(&mut script) {
        Ok(output) => shell::objects(output.as_bytes()),
        Err(error) => {
            say(format!("not compared with PyTorch: {error:#}"));
            Vec::new()
        }
    }
}
