//! The CUDA engine passes the conformance suite, over a driver that computes on the host.

use std::sync::Arc;

use sextant_engine::{Engine, conformance::Fixtures};
use sextant_engine_cuda::{Config, CudaEngine, driver::recording::RecordingDriver};
use sextant_types::Optimization;

#[path = "../../engine/tests/support/fixtures.rs"]
mod fixtures;

#[path = "../../engine/tests/support/mapped.rs"]
mod mapped;

#[path = "../../engine/tests/support/rows.rs"]
mod rows;

/// Every test has a device of its own.
fn engine() -> Arc<dyn Engine> {
    let config = Config {
        page_bytes: 1 << 20,
        pages: Some(8),
        workspace_bytes: 16 << 20,
        io_bytes: 1 << 20,
        scratch_bytes: 0,
        largest_batch: 40,
        host_bytes: 1 << 20,
    };
    let driver = Arc::new(RecordingDriver::new(Default::default()));
    match CudaEngine::new(driver, config) {
        Ok(engine) => Arc::new(engine),
        Err(error) => panic!("{error}"),
    }
}

fn all() -> Fixtures {
    let data_types = engine().capabilities().data_types;
    fixtures::fixtures(&data_types, rows::one_at_a_time(engine, Optimization::All))
}

sextant_engine::bind_conformance!(engine(), all());

#[test]
fn mapped_models_are_answered_alike() {
    mapped::answers_alike(engine().as_ref());
}
