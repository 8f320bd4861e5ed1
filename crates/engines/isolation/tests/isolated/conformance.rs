//! Nobody notices the process between.

use std::sync::Arc;

use sextant_engine::{Engine, conformance::Fixtures};
use sextant_engine_ort::OrtEngine;
use sextant_types::{DataType, Optimization};

use super::{ORT, fixtures, isolated, rows};

fn engine() -> Arc<dyn Engine> {
    let library = OrtEngine::find_library(None)
        .expect("ONNX Runtime's library is missing: run `cargo xtask provision`");
    let engine = Arc::new(OrtEngine::new(&library).unwrap());
    Arc::new(isolated(
        engine,
        &format!("{ORT}{}", library.display()),
        "conformance",
    ))
}

/// The network as written: neither layouts nor batches can play a part.
fn all() -> Fixtures {
    fixtures::fixtures(
        &DataType::ALL,
        rows::one_at_a_time(engine, Optimization::Basic),
    )
}

sextant_engine::bind_conformance!(engine(), all());
