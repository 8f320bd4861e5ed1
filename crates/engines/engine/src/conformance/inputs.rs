//! Inputs for any signature.

use sextant_types::{DataType, NamedTensor, Signature, Tensor, TensorSpec};

/// Inputs that fit `signature`, the same for the same `seed`: floats are multiples of 1/128 in
/// -1..1, integers are in 0..100. Dynamic dimensions have the given sizes in order, the last of
/// them repeated.
///
/// # Panics
/// If the signature needs more memory than there is.
pub fn random_inputs(signature: &Signature, dynamic: &[usize], seed: u64) -> Vec<NamedTensor> {
    let mut random = Random(seed);
    let tensor = |spec: &TensorSpec| {
        let shape = shape(spec, dynamic);
        NamedTensor::new(
            spec.name.clone(),
            tensor(spec.data_type, shape, &mut random),
        )
    };
    signature.inputs.iter().map(tensor).collect()
}

fn shape(spec: &TensorSpec, dynamic: &[usize]) -> Vec<usize> {
    let mut sizes = dynamic.iter().copied();
    let mut last = 1;
    let size = |dim: &Option<u64>| match dim {
        Some(size) => *size as usize,
        None => {
            last = sizes.next().unwrap_or(last);
            last
        }
    };
    spec.shape.iter().map(size).collect()
}

fn tensor(data_type: DataType, shape: Vec<usize>, random: &mut Random) -> Tensor {
    let count: usize = shape.iter().product();
    let tensor = if data_type == DataType::Bytes {
        let strings = (0..count).map(|_| format!("é {}", random.next()));
        Tensor::from_strings(shape, strings)
    } else {
        let mut bytes = Vec::new();
        (0..count).for_each(|_| element(data_type, random.next(), &mut bytes));
        Tensor::from_bytes(data_type, shape, bytes.into())
    };
    tensor.expect("as many elements as the shape has")
}

fn element(data_type: DataType, value: u64, bytes: &mut Vec<u8>) {
    let unit = (value % 256) as f32 / 128.0 - 1.0;
    match data_type {
        DataType::Bool => bytes.push((value % 2) as u8),
        DataType::Fp32 => bytes.extend_from_slice(&unit.to_le_bytes()),
        DataType::Fp64 => bytes.extend_from_slice(&f64::from(unit).to_le_bytes()),
        // Any bits below those of 1.0 are finite.
        DataType::Fp16 => bytes.extend_from_slice(&((value % 0x3c00) as u16).to_le_bytes()),
        DataType::Bf16 => bytes.extend_from_slice(&((value % 0x3f80) as u16).to_le_bytes()),
        integer => {
            let size = integer.size().unwrap_or(1);
            bytes.extend_from_slice(&(value % 100).to_le_bytes()[..size]);
        }
    }
}

/// The splitmix64 generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }
}
