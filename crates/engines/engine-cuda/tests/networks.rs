//! Whole networks compared with ONNX Runtime, over a driver that computes on the host.

use std::sync::Arc;

use sextant_engine::Engine;
use sextant_engine_cuda::{
    Config, CudaEngine,
    driver::recording::{Pretence, RecordingDriver},
    suite::{self, networks::Scale},
};
use sextant_engine_ort::OrtEngine;

/// Pages are small, so that larger weights lie in several.
fn engine(convolution: bool) -> Arc<dyn Engine> {
    let config = Config {
        page_bytes: 96 << 10,
        pages: Some(64),
        workspace_bytes: 8 << 20,
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

fn check(engine: &dyn Engine) {
    let library = OrtEngine::find_library(None)
        .expect("ONNX Runtime's library is missing: run `cargo xtask provision`");
    let reference = OrtEngine::new(&library).expect("the library can be used");
    let comparisons = suite::networks::all(engine, &reference, Scale::Small);
    let report: Vec<String> = comparisons.iter().map(|it| format!("{it:?}")).collect();
    let passed = comparisons.iter().all(suite::Comparison::passed);
    assert!(passed, "{}", report.join("\n"));
}

#[test]
fn networks_agree() {
    check(&*engine(false));
}

#[test]
fn networks_agree_with_a_library_for_convolutions() {
    check(&*engine(true));
}
