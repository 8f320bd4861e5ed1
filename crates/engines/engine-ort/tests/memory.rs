//! Further handles of a model cost no further copy of its weights, as the system counts memory, and one while they
//! are made.
//!
//! Measured in a process of its own whose allocator gives freed memory back at once
//! (`MALLOC_MMAP_THRESHOLD_`): what the C library keeps for later is no copy of anything.

use std::{env, process::Command, sync::Arc};

use sextant_engine::{Engine, LoadRequest, LoadedModel, conformance::random_inputs};
use sextant_engine_ort::OrtEngine;
use sextant_onnx::builder;
use sextant_types::{Digest, Optimization, Precision};

/// 40 layers of 1 MiB.
const LAYERS: usize = 40;

/// Set in the process that measures.
const MEASURING: &str = "SEXTANT_TEST_MEASURING";

#[test]
fn further_handles_cost_no_further_copy() {
    if env::var_os(MEASURING).is_some() {
        return measure();
    }
    let output = Command::new(env::current_exe().expect("the test's own path"))
        .args([
            "--exact",
            "further_handles_cost_no_further_copy",
            "--nocapture",
        ])
        .env(MEASURING, "1")
        .env("MALLOC_MMAP_THRESHOLD_", "65536")
        .output()
        .expect("the test can start itself");
    println!("{}", String::from_utf8_lossy(&output.stdout));
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success(),
        "see the measuring process's output"
    );
}

#[expect(
    clippy::print_stdout,
    reason = "the figures are wanted when the test fails"
)]
fn measure() {
    let library = OrtEngine::find_library(None)
        .expect("ONNX Runtime's library is missing: run `cargo xtask provision`");
    let engine = OrtEngine::new(&library).expect("the library can be used");
    let model = builder::mlp(&[512; LAYERS + 1], 1);
    let copy = (LAYERS << 20) as f64;
    let mut handles: Vec<Arc<dyn LoadedModel>> = Vec::new();
    let (mut resident, mut highest) = (Vec::new(), Vec::new());
    for (optimization, threads) in [
        (Optimization::All, 1),
        (Optimization::All, 2),
        (Optimization::All, 1),
        (Optimization::All, 3),
        (Optimization::All, 2),
        (Optimization::Basic, 1),
        (Optimization::Basic, 2),
        (Optimization::Basic, 1),
    ] {
        // From here on the highest is counted anew.
        std::fs::write("/proc/self/clear_refs", "5").expect("a Linux system");
        let handle = engine
            .load(&LoadRequest {
                artefact: Digest::from_bytes([1; 32]),
                model: model.clone().into(),
                precision: Precision::Fp32,
                optimization,
                threads,
            })
            .expect("the model loads");
        let inputs = random_inputs(handle.signature(), &[4], 1);
        handle.run(&inputs).expect("the batch runs");
        handles.push(handle);
        resident.push(status_bytes("VmRSS:"));
        highest.push(status_bytes("VmHWM:"));
        let [copies, most] =
            [&resident, &highest].map(|it| (it[it.len() - 1] - resident[0]) / copy);
        println!("{optimization:?} on {threads} threads: {copies:+.2} copies, {most:+.2} at most");
    }
    // ONNX Runtime copies the weights that it is lent until a session is made.
    let most = highest.into_iter().fold(0.0, f64::max);
    let most = (most - resident[0]) / copy;
    assert!(
        most < 1.3,
        "a handle takes {most:.2} copies while it is made"
    );
    let growth = (resident[7] - resident[0]) / copy;
    assert!(growth < 0.3, "seven more handles cost {growth:.2} copies");
    assert_eq!(engine.resident_weights_bytes(), handles[0].weights_bytes());
}

fn status_bytes(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a Linux system");
    let line = status.lines().find(|line| line.starts_with(name));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    let kilobytes: f64 = kilobytes.and_then(|it| it.parse().ok()).expect("a number");
    kilobytes * 1024.0
}
