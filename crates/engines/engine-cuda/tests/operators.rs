//! Every operator against ONNX Runtime, over a driver that computes on the host.

use std::{collections::BTreeSet, sync::Arc};

use sextant_engine::Engine;
use sextant_engine_cuda::{
    Config, CudaEngine,
    driver::recording::{Pretence, RecordingDriver},
    lower::OPERATORS,
    suite,
};
use sextant_engine_ort::OrtEngine;

const SEED: u64 = 20_260;

fn engine(convolution: bool) -> Arc<dyn Engine> {
    let config = Config {
        page_bytes: 64 << 10,
        pages: Some(16),
        workspace_bytes: 4 << 20,
        io_bytes: 1 << 20,
        scratch_bytes: 0,
        largest_batch: 4,
        host_bytes: 1 << 20,
    };
    let pretence = Pretence {
        convolution,
        ..Pretence::default()
    };
    let driver = Arc::new(RecordingDriver::new(pretence));
    let engine = CudaEngine::new(driver, config);
    Arc::new(engine.expect("the memory is there"))
}

fn reference() -> OrtEngine {
    let library = OrtEngine::find_library(None)
        .expect("ONNX Runtime's library is missing: run `cargo xtask provision`");
    OrtEngine::new(&library).expect("the library can be used")
}

fn check(engine: &dyn Engine) {
    let comparisons = suite::operators::all(engine, &reference(), SEED);
    let bad: Vec<String> = comparisons
        .iter()
        .filter(|comparison| !comparison.passed())
        .map(|comparison| format!("{comparison:?}"))
        .collect();
    assert!(bad.is_empty(), "seed {SEED}:\n{}", bad.join("\n"));
}

#[test]
fn operators_agree() {
    check(&*engine(false));
}

#[test]
fn operators_agree_with_a_library_for_convolutions() {
    check(&*engine(true));
}

#[test]
fn every_operator_has_a_case() {
    let cases = suite::operators::cases(SEED);
    let covered: BTreeSet<&str> = cases.iter().map(|case| case.operator).collect();
    let missing: Vec<&&str> = OPERATORS
        .iter()
        .filter(|it| !covered.contains(**it))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
