//! The answers of the emulated engine: a pure function of a row's content.

use sextant_types::{Data, DataType, NamedTensor, Signature, Tensor, TensorSpec};

use crate::Error;

/// Longest output, in elements: a shape with unknown dimensions must not take more memory than the
/// inputs justify.
const MAX_ELEMENTS: usize = 1 << 26;

/// The outputs for `inputs`. A row of a batched model depends only on the same rows of the inputs.
/// A dynamic dimension other than the batch has its size in the first input, else 1.
pub fn emulate(signature: &Signature, inputs: &[NamedTensor]) -> Result<Vec<Tensor>, Error> {
    let rows = rows(signature, inputs);
    let seeds: Vec<u64> = (0..rows).map(|row| seed(inputs, row, rows)).collect();
    signature
        .outputs
        .iter()
        .enumerate()
        .map(|(index, spec)| output(spec, shape(spec, inputs), &seeds, index as u64))
        .collect()
}

/// Rows of a batch; 1 for a model that is not batched.
pub(super) fn rows(signature: &Signature, inputs: &[NamedTensor]) -> usize {
    if !signature.batched {
        return 1;
    }
    inputs.first().map_or(1, |input| input.tensor.rows())
}

fn shape(spec: &TensorSpec, inputs: &[NamedTensor]) -> Vec<usize> {
    let first = inputs.first().map(|input| input.tensor.shape());
    let size = |(axis, dim): (usize, &Option<u64>)| match dim {
        Some(size) => usize::try_from(*size).unwrap_or(usize::MAX),
        None => first.and_then(|it| it.get(axis)).copied().unwrap_or(1),
    };
    spec.shape.iter().enumerate().map(size).collect()
}

fn output(
    spec: &TensorSpec,
    shape: Vec<usize>,
    seeds: &[u64],
    index: u64,
) -> Result<Tensor, Error> {
    let count = shape
        .iter()
        .try_fold(1usize, |product, size| product.checked_mul(*size))
        .filter(|count| *count <= MAX_ELEMENTS)
        .ok_or_else(|| Error::Failed(format!("output `{}` would be too large", spec.name)))?;
    let width = (count / seeds.len().max(1)).max(1);
    let value = |at: usize| {
        let seed = seeds.get(at / width).copied().unwrap_or_default();
        mix(seed ^ mix(index << 32 | (at % width) as u64))
    };
    let values = (0..count).map(value);
    let tensor = match spec.data_type {
        DataType::Bytes => {
            let text = |value: u64| format!("{value:016x}");
            Tensor::from_strings(shape, values.map(text))
        }
        data_type => {
            let mut bytes = Vec::with_capacity(count * data_type.size().unwrap_or(8));
            values.for_each(|value| push(&mut bytes, data_type, value));
            Tensor::from_bytes(data_type, shape, bytes.into())
        }
    };
    tensor.map_err(|error| Error::Failed(error.to_string()))
}

/// Floats lie in 0..1; integers are any value of their type.
fn push(bytes: &mut Vec<u8>, data_type: DataType, value: u64) {
    let unit = (value >> 40) as f32 / (1u64 << 24) as f32;
    match data_type {
        DataType::Bool => bytes.push((value & 1) as u8),
        DataType::Fp32 => bytes.extend_from_slice(&unit.to_le_bytes()),
        DataType::Fp64 => bytes.extend_from_slice(&f64::from(unit).to_le_bytes()),
        // 1.0 less a part of the mantissa in either format: any bits below 0x3c00 and 0x3f80 are
        // finite and positive.
        DataType::Fp16 => bytes.extend_from_slice(&((value % 0x3c00) as u16).to_le_bytes()),
        DataType::Bf16 => bytes.extend_from_slice(&((value % 0x3f80) as u16).to_le_bytes()),
        integer => bytes.extend_from_slice(&value.to_le_bytes()[..integer.size().unwrap_or(8)]),
    }
}

/// A hash of row `row` of `rows` of every input.
fn seed(inputs: &[NamedTensor], row: usize, rows: usize) -> u64 {
    let part = |length: usize| {
        let width = length / rows.max(1);
        row * width..(row + 1) * width
    };
    inputs
        .iter()
        .fold(0, |hash, input| match input.tensor.data() {
            Data::Plain(bytes) => hash_bytes(hash, &bytes[part(bytes.len())]),
            Data::Strings(texts) => texts.slice(part(texts.len())).iter().fold(hash, hash_bytes),
        })
}

fn hash_bytes(hash: u64, bytes: &[u8]) -> u64 {
    let start = mix(hash ^ bytes.len() as u64);
    bytes.chunks(8).fold(start, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(hash ^ u64::from_le_bytes(word))
    })
}

/// The finaliser of splitmix64, after its increment.
pub(super) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
