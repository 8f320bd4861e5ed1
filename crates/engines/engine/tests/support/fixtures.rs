//! The models of the conformance suite, with what they have to answer.

use std::sync::Arc;

use bytes::Bytes;
use sextant_engine::conformance::{Fixture, Fixtures, Reference};
use sextant_onnx::builder::{self, Dim, ModelBuilder};
use sextant_types::{DataType, Digest, NamedTensor, Tensor};

/// Widths of the dense model: 1.2 MiB of weights.
const WIDTHS: [usize; 4] = [32, 512, 512, 10];

/// All models; `data_types` are those that the engine claims. The convolutional network answers
/// what `convolution` says.
pub fn fixtures(data_types: &[DataType], convolution: Reference) -> Fixtures {
    let identities = data_types.iter().enumerate().map(|(index, data_type)| {
        let model = builder::identity(*data_type, &[builder::BATCH, Dim::Fixed(5)]);
        let same = Arc::new(|inputs: &[NamedTensor]| vec![inputs[0].tensor.clone()]);
        (*data_type, fixture(100 + index as u8, model, same))
    });
    Fixtures {
        dense: fixture(1, dense_model(), Arc::new(dense_answer)),
        convolution: fixture(2, convolution_model(), convolution),
        dynamic: fixture(3, doubling_model(), Arc::new(doubled)),
        identities: identities.collect(),
        unknown_operator: (unknown_operator(), "SextantTeleport"),
    }
}

/// A file whose signature is what inspection says.
pub fn fixture(artefact: u8, model: Bytes, reference: Reference) -> Fixture {
    let info = sextant_onnx::inspect(&model).expect("a built model can be inspected");
    Fixture {
        artefact: Digest::from_bytes([artefact; 32]),
        model,
        signature: info.signature,
        reference,
    }
}

/// A residual convolutional network with 300 KiB of weights.
pub fn convolution_model() -> Bytes {
    builder::conv_net(64, 10, 7)
}

fn dense_model() -> Bytes {
    let mut model = ModelBuilder::new("dense", 0);
    model.input(
        "input",
        DataType::Fp32,
        &[builder::BATCH, Dim::Fixed(WIDTHS[0] as u64)],
    );
    model.output(
        "output",
        DataType::Fp32,
        &[builder::BATCH, Dim::Fixed(WIDTHS[3] as u64)],
    );
    let mut previous = "input".to_owned();
    for (layer, pair) in WIDTHS.windows(2).enumerate() {
        let (weight, bias) = (format!("w{layer}"), format!("b{layer}"));
        model.constant(&weight, pair, &weights(layer));
        model.constant(&bias, &pair[1..], &biases(layer));
        let (product, sum) = (format!("product{layer}"), format!("sum{layer}"));
        model.node("MatMul", &[&previous, &weight], &[&product]);
        if layer == 2 {
            model.node("Add", &[&product, &bias], &["output"]);
            break;
        }
        model.node("Add", &[&product, &bias], &[&sum]);
        previous = format!("relu{layer}");
        model.node("Relu", &[&sum], &[&previous]);
    }
    model.build()
}

/// Values in -1..1 that add up to nothing large.
fn weights(layer: usize) -> Vec<f32> {
    let count = WIDTHS[layer] * WIDTHS[layer + 1];
    let scale = (3.0 / WIDTHS[layer] as f32).sqrt();
    (0..count as u32)
        .map(|at| {
            let hash = (at + 1).wrapping_mul(2_654_435_761).rotate_left(7) ^ layer as u32;
            (f64::from(hash) / f64::from(u32::MAX) * 2.0 - 1.0) as f32 * scale
        })
        .collect()
}

fn biases(layer: usize) -> Vec<f32> {
    (0..WIDTHS[layer + 1])
        .map(|at| (at % 7) as f32 / 7.0 - 0.4)
        .collect()
}

/// The dense model by its definition, in 64-bit floats.
fn dense_answer(inputs: &[NamedTensor]) -> Vec<Tensor> {
    let input = &inputs[0].tensor;
    let rows = input.rows();
    let mut values: Vec<f64> = floats(input).into_iter().map(f64::from).collect();
    for layer in 0..3 {
        let (weights, biases) = (weights(layer), biases(layer));
        let (from, to) = (WIDTHS[layer], WIDTHS[layer + 1]);
        let mut next = Vec::with_capacity(rows * to);
        for row in values.chunks(from) {
            let mut sums: Vec<f64> = biases.iter().copied().map(f64::from).collect();
            for (value, line) in row.iter().zip(weights.chunks(to)) {
                for (sum, weight) in sums.iter_mut().zip(line) {
                    *sum += value * f64::from(*weight);
                }
            }
            next.extend(
                sums.iter()
                    .map(|sum| if layer < 2 { sum.max(0.0) } else { *sum }),
            );
        }
        values = next;
    }
    let values: Vec<f32> = values.into_iter().map(|value| value as f32).collect();
    vec![Tensor::from_elements(vec![rows, WIDTHS[3]], &values).expect("ten classes a row")]
}

fn doubling_model() -> Bytes {
    let dims = [builder::BATCH, Dim::Dynamic("length")];
    let mut model = ModelBuilder::new("doubling", 0);
    model.input("input", DataType::Fp32, &dims);
    model.output("output", DataType::Fp32, &dims);
    model.node("Add", &["input", "input"], &["output"]);
    model.build()
}

fn doubled(inputs: &[NamedTensor]) -> Vec<Tensor> {
    let input = &inputs[0].tensor;
    let values: Vec<f32> = floats(input).iter().map(|value| value * 2.0).collect();
    vec![Tensor::from_elements(input.shape().to_vec(), &values).expect("the same shape")]
}

fn unknown_operator() -> Bytes {
    let dims = [builder::BATCH, Dim::Fixed(4)];
    let mut model = ModelBuilder::new("unknown", 0);
    model.input("input", DataType::Fp32, &dims);
    model.output("output", DataType::Fp32, &dims);
    model.node("SextantTeleport", &["input"], &["output"]);
    model.build()
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().expect("32-bit floats")
}
