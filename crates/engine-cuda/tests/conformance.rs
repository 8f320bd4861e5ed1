//! The CUDA engine passes the conformance suite, over a driver that computes on the host.

use std::sync::{Arc, OnceLock};

use sextant_engine::{Engine, LoadRequest, LoadedModel, conformance::Fixtures};
use sextant_engine_cuda::{Config, CudaEngine, driver::recording::RecordingDriver};
use sextant_types::{Digest, NamedTensor, Optimization, Precision, Tensor};

#[path = "../../engine/tests/support/fixtures.rs"]
mod fixtures;

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
    fixtures::fixtures(&data_types, Arc::new(convolved))
}

/// The network one row at a time: batches can play no part.
fn convolved(inputs: &[NamedTensor]) -> Vec<Tensor> {
    static MODEL: OnceLock<Arc<dyn LoadedModel>> = OnceLock::new();
    let model = MODEL.get_or_init(|| {
        engine()
            .load(&LoadRequest {
                artefact: Digest::from_bytes([250; 32]),
                model: fixtures::convolution_model(),
                precision: Precision::Fp32,
                optimization: Optimization::All,
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
