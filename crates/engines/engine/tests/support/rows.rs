//! What an engine answers when batches can play no part.

use std::sync::{Arc, OnceLock};

use sextant_engine::{Engine, LoadRequest, LoadedModel, conformance::Reference};
use sextant_types::{Digest, NamedTensor, Optimization, Precision, Tensor};

use crate::fixtures;

/// The convolutional network on an engine of its own, one row at a time.
pub fn one_at_a_time(engine: fn() -> Arc<dyn Engine>, optimization: Optimization) -> Reference {
    static MODEL: OnceLock<Arc<dyn LoadedModel>> = OnceLock::new();
    Arc::new(move |inputs: &[NamedTensor]| {
        let model = MODEL.get_or_init(|| {
            engine()
                .load(&LoadRequest {
                    artefact: Digest::from_bytes([250; 32]),
                    model: fixtures::convolution_model().into(),
                    precision: Precision::Fp32,
                    optimization,
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
    })
}
