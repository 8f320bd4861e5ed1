//! Memory of eight ways to run one model against that of one, and against the file's weights.
//!
//! `cargo run --release -p sextant-engine-ort --example shared_weights`. Prints one JSON object per
//! line. The ways differ in threads and rows of a batch. `Optimization::All` holds its weights
//! twice, as they are and packed for matrix products; `Optimization::Basic` holds them once.
//!
//! Measured in a process whose allocator gives freed memory back at once
//! (`MALLOC_MMAP_THRESHOLD_`): what the C library keeps for later is no copy of anything.
#![expect(clippy::print_stdout, reason = "results go to standard output")]

use std::{env, error::Error, fs, os::unix::process::CommandExt, process::Command, sync::Arc};

use bytes::Bytes;
use sextant_engine::{Engine, LoadRequest, LoadedModel, conformance::random_inputs};
use sextant_engine_ort::OrtEngine;
use sextant_onnx::builder;
use sextant_types::{Digest, Optimization, Precision};

/// Four layers of 26 MB.
const WIDTHS: [usize; 5] = [2560; 5];

/// Threads and rows of a batch.
const VARIANTS: [(u16, usize); 8] = [
    (1, 1),
    (1, 2),
    (1, 4),
    (1, 8),
    (2, 1),
    (2, 2),
    (2, 4),
    (2, 8),
];

const THRESHOLD: &str = "MALLOC_MMAP_THRESHOLD_";

fn main() -> Result<(), Box<dyn Error>> {
    if env::var_os(THRESHOLD).is_none() {
        // Replaces this process; comes back only where that fails.
        return Err(Command::new(env::current_exe()?)
            .env(THRESHOLD, "65536")
            .exec()
            .into());
    }
    let library = OrtEngine::find_library(None)
        .ok_or("ONNX Runtime's library is missing: run `cargo xtask provision`")?;
    let engine = OrtEngine::new(&library)?;
    // What the library needs for itself is there before the model comes.
    let small = builder::mlp(&[64; 2], 1);
    run(&*load(&engine, &small, (1, Optimization::All, 2))?, 1)?;
    for (artefact, level) in [(2, Optimization::Basic), (3, Optimization::All)] {
        let held = measure(&engine, artefact, level)?;
        let metric = |name: &str| match level {
            Optimization::All => format!("shared_weights_{name}"),
            Optimization::Basic => format!("shared_weights_basic_{name}"),
        };
        line(&metric("ratio"), held.all / held.one, "ratio");
        line(&metric("file_ratio"), held.all / held.file, "ratio");
        line(&metric("held_mb"), held.all / 1e6, "MB");
    }
    Ok(())
}

/// Bytes.
struct MemoryUse {
    /// By the first way to run the model.
    one: f64,
    /// By all of them.
    all: f64,
    /// The weights in the file.
    file: f64,
}

fn measure(
    engine: &OrtEngine,
    artefact: u8,
    level: Optimization,
) -> Result<MemoryUse, Box<dyn Error>> {
    let before = resident_bytes()?;
    let mut handles = Vec::new();
    let mut held = Vec::new();
    for (threads, rows) in VARIANTS {
        // The service holds the file only while it loads.
        let model = builder::mlp(&WIDTHS, 1);
        let handle = load(engine, &model, (artefact, level, threads))?;
        drop(model);
        run(&*handle, rows)?;
        handles.push(handle);
        held.push(resident_bytes()? - before);
    }
    Ok(MemoryUse {
        one: held[0],
        all: held[held.len() - 1],
        file: handles[0].weights_bytes() as f64,
    })
}

fn load(
    engine: &OrtEngine,
    model: &Bytes,
    (artefact, optimization, threads): (u8, Optimization, u16),
) -> Result<Arc<dyn LoadedModel>, sextant_engine::Error> {
    engine.load(&LoadRequest {
        artefact: Digest::from_bytes([artefact; 32]),
        model: model.clone().into(),
        precision: Precision::Fp32,
        optimization,
        threads,
    })
}

fn run(model: &dyn LoadedModel, rows: usize) -> Result<(), sextant_engine::Error> {
    let inputs = random_inputs(model.signature(), &[rows], 1);
    model.run(&inputs).map(drop)
}

fn line(metric: &str, value: f64, unit: &str) {
    println!(
        "{{\"experiment\":\"worker\",\"metric\":\"{metric}\",\"value\":{value},\"unit\":\"{unit}\"}}"
    );
}

fn resident_bytes() -> Result<f64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next());
    let kibibytes: f64 = kibibytes
        .ok_or("no `VmRSS` in /proc/self/status")?
        .parse()?;
    Ok(kibibytes * 1024.0)
}
