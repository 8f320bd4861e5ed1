//! ONNX Runtime passes the conformance suite.

use std::sync::Arc;

use sextant_engine::{Engine, conformance::Fixtures};
use sextant_engine_ort::OrtEngine;
use sextant_types::{DataType, Optimization};

#[path = "../../engine/tests/support/fixtures.rs"]
mod fixtures;

#[path = "../../engine/tests/support/indices.rs"]
mod indices;

#[path = "../../engine/tests/support/mapped.rs"]
mod mapped;

#[path = "../../engine/tests/support/rows.rs"]
mod rows;

/// Every test has models of its own, so that none holds another's.
fn engine() -> Arc<dyn Engine> {
    let library = OrtEngine::find_library(None)
        .expect("ONNX Runtime's library is missing: run `cargo xtask provision`");
    match OrtEngine::new(&library) {
        Ok(engine) => Arc::new(engine),
        Err(error) => panic!("{error}"),
    }
}

/// The network as written: neither layouts nor batches can play a part.
fn all() -> Fixtures {
    fixtures::fixtures(
        &DataType::ALL,
        rows::one_at_a_time(engine, Optimization::Basic),
    )
}

sextant_engine::bind_conformance!(engine(), all());

#[test]
fn mapped_models_are_answered_alike() {
    mapped::answers_alike(engine().as_ref());
}

#[test]
fn numbers_beyond_a_table_are_refused() {
    indices::numbers_beyond_a_table_are_refused(engine().as_ref());
}
