//! ONNX Runtime passes the conformance suite.

use std::sync::{Arc, OnceLock};

use sextant_engine::{Engine, LoadRequest, LoadedModel, conformance::Fixtures};
use sextant_engine_ort::OrtEngine;
use sextant_types::{DataType, Digest, NamedTensor, Optimization, Precision, Tensor};

#[path = "../../engine/tests/support/fixtures.rs"]
mod fixtures;

/// Every test has models of its own, so that none holds another's.
fn engine() -> Arc<dyn Engine> {
    let library = OrtEngine::find_library(None)
        .expect("ONNX Runtime's library is missing: run `cargo xtask provision`");
    match OrtEngine::new(&library) {
        Ok(engine) => Arc::new(engine),
        Err(error) => panic!("{error}"),
    }
}

fn all() -> Fixtures {
    fixtures::fixtures(&DataType::ALL, Arc::new(convolved))
}

/// The network as written, one row at a time: neither layouts nor batches can play a part.
fn convolved(inputs: &[NamedTensor]) -> Vec<Tensor> {
    static MODEL: OnceLock<Arc<dyn LoadedModel>> = OnceLock::new();
    let model = MODEL.get_or_init(|| {
        engine()
            .load(&LoadRequest {
                artefact: Digest::from_bytes([250; 32]),
                model: fixtures::convolution_model(),
                precision: Precision::Fp32,
                optimization: Optimization::Basic,
                threads: 1,
            })
            .expect("the model loads")
    });
    let input = &inputs[0];
    let rows: Vec<Tensor> = (0..input.tensor.rows())
        .map(|row| {
            let row = input.tensor.slice_rows(row, 1).expect("the row exists");
            let row = NamedTensor::new(input.name.clone(), row);
            model.run(&[row]).expect("the row runs").remove(0)
        })
        .collect();
    vec![Tensor::concat(&rows.iter().collect::<Vec<_>>()).expect("equal rows")]
}

sextant_engine::bind_conformance!(engine(), all());
