//! Loading and running, where the result matters.

use std::sync::Arc;

use bytes::Bytes;
use sextant_engine::{Engine, Error, LoadRequest, LoadedModel};
use sextant_engine_remote::RemoteEngine;
use sextant_types::{Digest, NamedTensor, Optimization, Precision, Tensor};

/// Loads the model of the manifest.
pub fn load(engine: &RemoteEngine, model: Bytes) -> Result<Arc<dyn LoadedModel>, Error> {
    engine.load(&LoadRequest {
        artefact: Digest::from_bytes([1; 32]),
        model: model.into(),
        precision: Precision::Fp32,
        optimization: Optimization::All,
        threads: 1,
    })
}

/// One row of two numbers for the input `input`.
pub fn row() -> Vec<NamedTensor> {
    let tensor = Tensor::from_elements(vec![1, 2], &[1f32, 2.0]).expect("two numbers");
    vec![NamedTensor::new("input", tensor)]
}

/// Why a load failed.
pub fn refusal(result: Result<Arc<dyn LoadedModel>, Error>) -> Error {
    match result {
        Ok(_) => panic!("a model is loaded that must not be"),
        Err(error) => error,
    }
}
