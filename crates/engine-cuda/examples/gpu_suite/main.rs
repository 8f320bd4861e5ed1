//! The GPU suite: what `cargo xtask gpu-test` runs.
//!
//! Compares every operator and whole networks with ONNX Runtime, then measures. Prints one JSON object
//! per line: `experiment`, `cell`, `metric`, `value`, `unit`. Exits with 2 where there is no device,
//! with 1 where something is wrong or differs too much.
//!
//! `--compile-only` compiles the kernels for compute capabilities 8.0 and 9.0 and needs no device;
//! `--operators-only` compares operators and stops. `--providers` does the same for ONNX Runtime's providers of GPUs,
//! where the library that `ORT_DYLIB_PATH` names has them.
#![expect(clippy::print_stdout, reason = "results go to standard output")]

mod agreement;
mod figures;
mod providers;
mod record;

use std::{process::ExitCode, sync::Arc};

use sextant_engine::Error;
use sextant_engine_cuda::{
    Config, CudaEngine,
    driver::{Driver, cuda::CudaDriver},
};

use record::record;

const USAGE: &str = "usage: gpu_suite [--compile-only] [--operators-only] [--providers] [--device N] [--runs N] [--seed N]";

/// What is asked for.
struct Arguments {
    compile_only: bool,
    /// Only agreement, operator by operator, in little memory.
    operators_only: bool,
    /// ONNX Runtime's providers in place of Sextant's own engine.
    providers: bool,
    device: u32,
    /// Runs of the latency figure.
    runs: usize,
    seed: u64,
}

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprintln!("{problem}; {USAGE}");
            return ExitCode::FAILURE;
        }
    };
    let done = match &arguments {
        Arguments {
            compile_only: true, ..
        } => compile(),
        Arguments {
            providers: true, ..
        } => providers::run(arguments.device, arguments.seed),
        _ => run(&arguments),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error @ Error::Unavailable { .. }) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Compiles all kernels for the devices that most servers have.
fn compile() -> Result<bool, Error> {
    for (major, minor) in [(8, 0), (9, 0)] {
        let sources = CudaDriver::compile((major, minor))?;
        let kernels: usize = sources.iter().map(|(names, _)| names.len()).sum();
        let bytes: usize = sources.iter().map(|(_, bytes)| bytes).sum();
        let cell = format!("sm_{major}{minor}");
        record(&cell, "kernels_compiled", kernels as f64, "kernels");
        record(&cell, "machine_code", bytes as f64, "bytes");
    }
    Ok(true)
}

/// Whether everything agreed.
fn run(arguments: &Arguments) -> Result<bool, Error> {
    let driver = CudaDriver::open(arguments.device)?;
    describe(&driver);
    if arguments.operators_only {
        let engine = CudaEngine::new(Arc::new(driver), small())?;
        return agreement::operators(&engine, arguments.seed);
    }
    let bandwidth = figures::host_to_device(&driver)?;
    // The measurement took memory that the engine is to have.
    drop(driver);
    let driver = Arc::new(CudaDriver::open(arguments.device)?);
    let engine = CudaEngine::new(driver, Config::default())?;
    let agreed = agreement::check(&engine, arguments.seed)?;
    figures::latency(&engine, arguments.runs)?;
    figures::loading(&engine, bandwidth)?;
    figures::throughput(&engine)?;
    Ok(agreed)
}

/// What operators need.
fn small() -> Config {
    Config {
        page_bytes: 1 << 20,
        pages: Some(64),
        workspace_bytes: 64 << 20,
        io_bytes: 16 << 20,
        scratch_bytes: 32 << 20,
        largest_batch: 4,
        host_bytes: 64 << 20,
    }
}

fn describe(driver: &CudaDriver) {
    let properties = driver.properties();
    let versions = driver.versions();
    let device = &properties.name;
    let (major, minor) = properties.compute_capability;
    let known = [
        ("memory", properties.memory_bytes as f64, "bytes"),
        (
            "compute_capability",
            f64::from(major * 10 + minor),
            "tenths",
        ),
        ("driver_version", f64::from(versions.driver), "version"),
        (
            "nvrtc_version",
            f64::from(versions.nvrtc.0 * 1000 + versions.nvrtc.1 * 10),
            "version",
        ),
        ("cublaslt_version", versions.cublaslt as f64, "version"),
        (
            "cudnn_version",
            versions.cudnn.unwrap_or(0) as f64,
            "version",
        ),
    ];
    for (metric, value, unit) in known {
        record(device, metric, value, unit);
    }
}

// === impl Arguments ===

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = Self {
            compile_only: false,
            operators_only: false,
            providers: false,
            device: 0,
            runs: 100_000,
            seed: 20_260,
        };
        while let Some(word) = words.next() {
            let mut number = || {
                let value = words.next().unwrap_or_default();
                let wrong = |_| format!("`{word}` needs a number, not `{value}`");
                value.parse::<u64>().map_err(wrong)
            };
            match word.as_str() {
                "--compile-only" => arguments.compile_only = true,
                "--operators-only" => arguments.operators_only = true,
                "--providers" => arguments.providers = true,
                "--device" => arguments.device = number()? as u32,
                "--runs" => arguments.runs = number()?.max(1000) as usize,
                "--seed" => arguments.seed = number()?,
                _ => return Err(format!("`{word}` is not known")),
            }
        }
        Ok(arguments)
    }
}
