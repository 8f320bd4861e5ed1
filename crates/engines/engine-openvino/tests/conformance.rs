//! OpenVINO passes the conformance suite.

use std::sync::Arc;

use sextant_engine::{Engine, conformance::Fixtures};
use sextant_engine_openvino::OpenvinoEngine;
use sextant_types::Optimization;

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
    let library = OpenvinoEngine::find_library(None)
        .expect("OpenVINO's library is missing: run `cargo xtask provision`");
    match OpenvinoEngine::new(&library) {
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

#[test]
fn numbers_beyond_a_table_are_refused() {
    indices::numbers_beyond_a_table_are_refused(engine().as_ref());
}
