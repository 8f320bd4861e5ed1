//! What rten does beyond the conformance suite: 8-bit models, and types that it only converts.

use std::sync::Arc;

use bytes::Bytes;
use sextant_engine::{Engine, Error, LoadRequest, LoadedModel, conformance::random_inputs};
use sextant_engine_rten::RtenEngine;
use sextant_onnx::{
    builder::{self, Dim},
    quantize_dynamic,
};
use sextant_types::{DataType, Digest, NamedTensor, Optimization, Precision, Tensor};

#[path = "../../engine/tests/support/sums.rs"]
mod sums;

fn load(model: &Bytes) -> Result<Arc<dyn LoadedModel>, Error> {
    RtenEngine::new().load(&LoadRequest {
        artefact: Digest::from_bytes([1; 32]),
        model: model.clone().into(),
        precision: Precision::Fp32,
        optimization: Optimization::All,
        threads: 1,
    })
}

#[test]
fn dynamically_quantised_models_run() {
    let model = builder::mlp(&[64, 256, 256, 10], 5);
    let small = quantize_dynamic(&model).expect("it can be quantised").model;
    let (whole, small) = (
        load(&model).expect("it loads"),
        load(&small).expect("it loads"),
    );
    let inputs = random_inputs(whole.signature(), &[4], 9);
    let answer = |model: &Arc<dyn LoadedModel>| -> Vec<f32> {
        let outputs = model.run(&inputs).expect("the batch runs");
        outputs[0].to_vec().expect("32-bit floats")
    };
    let (wanted, given) = (answer(&whole), answer(&small));
    let scale = wanted.iter().fold(0f32, |scale, it| scale.max(it.abs()));
    for (given, wanted) in given.iter().zip(&wanted) {
        let deviation = (given - wanted).abs() / scale;
        assert!(deviation < 0.1, "{given} for {wanted}");
    }
}

#[test]
fn integers_beyond_32_bits_are_refused() {
    let dims = [builder::BATCH, Dim::Fixed(2)];
    let model = load(&builder::identity(DataType::Int64, &dims)).expect("it loads");
    let inputs = |values: [i64; 2]| {
        let tensor = Tensor::from_elements(vec![1, 2], &values).expect("two values");
        [NamedTensor::new("input", tensor)]
    };
    let refused = model.run(&inputs([1, 1 << 40])).expect_err("too large");
    assert!(matches!(refused, Error::InvalidInput(_)), "{refused}");
    let edges = inputs([i64::from(i32::MIN), i64::from(i32::MAX)]);
    assert_eq!(model.run(&edges), Ok(vec![edges[0].tensor.clone()]));
}

#[test]
fn sums_that_may_not_fit_32_bits_are_refused_with_their_output() {
    sums::are_refused(load);
}

#[test]
fn types_that_would_lose_digits_are_refused() {
    let dims = [builder::BATCH, Dim::Fixed(2)];
    for data_type in [
        DataType::Fp64,
        DataType::Fp16,
        DataType::Bytes,
        DataType::Uint64,
    ] {
        match load(&builder::identity(data_type, &dims)) {
            Err(Error::Unsupported(reason)) => {
                assert!(reason.contains(data_type.name()), "{reason}");
            }
            Err(other) => panic!("{data_type}: refused as `{other}`"),
            Ok(_) => panic!("{data_type}: accepted"),
        }
    }
}
