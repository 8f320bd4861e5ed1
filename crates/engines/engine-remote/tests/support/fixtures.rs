//! The models of the example's runtime, with what they have to answer.

use std::sync::Arc;

use bytes::Bytes;
use sextant_engine::conformance::{Fixture, Fixtures, Reference};
use sextant_types::{DataType, Digest, NamedTensor, Signature, Tensor, TensorSpec};

use super::runtime::manifest;

/// Widths of the fully connected layers.
const WIDTHS: [usize; 4] = [32, 64, 64, 10];

/// What the dense model's manifest says that it occupies: Python's numbers are large, and only the
/// manifest knows.
const DENSE_BYTES: u64 = 1 << 20;

/// All models of the example; they need no ONNX file.
pub fn fixtures() -> Fixtures {
    let identities = DataType::ALL
        .into_iter()
        .enumerate()
        .map(|(index, data_type)| {
            let model = format!("identity-{}", data_type.name().to_lowercase());
            let specs = (
                spec("input", data_type, &[5]),
                spec("output", data_type, &[5]),
            );
            let same: Reference = Arc::new(|inputs| vec![inputs[0].tensor.clone()]);
            (
                data_type,
                fixture(100 + index as u8, manifest(&model, 0), specs, same),
            )
        });
    let float = |name, dims: &[u64]| spec(name, DataType::Fp32, dims);
    let mut dynamic = (float("input", &[]), float("output", &[]));
    dynamic.0.shape.push(None);
    dynamic.1.shape.push(None);
    Fixtures {
        dense: fixture(
            1,
            manifest("dense", DENSE_BYTES),
            (float("input", &[32]), float("output", &[10])),
            Arc::new(dense),
        ),
        convolution: fixture(
            2,
            manifest("convolution", 4 * 36),
            (float("image", &[1, 8, 8]), float("means", &[4])),
            Arc::new(convolution),
        ),
        dynamic: fixture(3, manifest("double", 0), dynamic, Arc::new(double)),
        identities: identities.collect(),
        unknown_operator: (manifest("SextantTeleport", 0), "SextantTeleport"),
    }
}

fn fixture(
    artefact: u8,
    model: Bytes,
    (input, output): (TensorSpec, TensorSpec),
    reference: Reference,
) -> Fixture {
    Fixture {
        artefact: Digest::from_bytes([artefact; 32]),
        model,
        signature: Signature {
            inputs: vec![input],
            outputs: vec![output],
            batched: true,
        },
        reference,
    }
}

/// A batch of tensors of these dimensions.
fn spec(name: &str, data_type: DataType, dims: &[u64]) -> TensorSpec {
    let dims = dims.iter().copied().map(Some);
    TensorSpec {
        name: name.to_owned(),
        data_type,
        shape: std::iter::once(None).chain(dims).collect(),
    }
}

/// The example's weights by their definition.
fn weights(count: usize, seed: u64, scale: f64) -> Vec<f64> {
    let hash = |at: u64| ((at + 1) * 2_654_435_761 + seed * 40_503) % (1 << 32);
    let unit = |at| hash(at) as f64 / (1u64 << 32) as f64 * 2.0 - 1.0;
    (0..count as u64).map(|at| unit(at) * scale).collect()
}

fn dense(inputs: &[NamedTensor]) -> Vec<Tensor> {
    let input = &inputs[0].tensor;
    let mut values = floats(input);
    for (layer, pair) in WIDTHS.windows(2).enumerate() {
        let (from, to) = (pair[0], pair[1]);
        let matrix = weights(from * to, layer as u64, (3.0 / from as f64).sqrt());
        let bias = weights(to, layer as u64 + 100, 0.4);
        let next = values.chunks(from).flat_map(|row| {
            matrix.chunks(from).zip(&bias).map(move |(column, bias)| {
                let sum = bias + dot(row, column);
                if layer < 2 { sum.max(0.0) } else { sum }
            })
        });
        values = next.collect();
    }
    vec![tensor(vec![input.rows(), 10], &values)]
}

fn convolution(inputs: &[NamedTensor]) -> Vec<Tensor> {
    let input = &inputs[0].tensor;
    let kernels = weights(4 * 9, 7, 1.0);
    let mut values = Vec::new();
    for image in floats(input).chunks(64) {
        for kernel in kernels.chunks(9) {
            let window = |at: usize| {
                let (y, x) = (at / 6, at % 6);
                let pixel = |place: usize| image[(y + place / 3) * 8 + x + place % 3];
                let pixels: Vec<f64> = (0..9).map(pixel).collect();
                dot(&pixels, kernel).max(0.0)
            };
            values.push((0..36).map(window).sum::<f64>() / 36.0);
        }
    }
    vec![tensor(vec![input.rows(), 4], &values)]
}

fn double(inputs: &[NamedTensor]) -> Vec<Tensor> {
    let input = &inputs[0].tensor;
    let values: Vec<f64> = floats(input).iter().map(|value| value * 2.0).collect();
    vec![tensor(input.shape().to_vec(), &values)]
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter()
        .zip(right)
        .map(|(left, right)| left * right)
        .sum()
}

fn floats(tensor: &Tensor) -> Vec<f64> {
    let values: Vec<f32> = tensor.to_vec().expect("32-bit floats");
    values.into_iter().map(f64::from).collect()
}

fn tensor(shape: Vec<usize>, values: &[f64]) -> Tensor {
    let values: Vec<f32> = values.iter().map(|value| *value as f32).collect();
    Tensor::from_elements(shape, &values).expect("as many as the shape has")
}
