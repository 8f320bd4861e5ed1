//! Elements of outputs, as they are compared.

use sextant_types::{Data, DataType, Tensor};

pub(super) fn is_float(tensor: &Tensor) -> bool {
    matches!(
        tensor.data_type(),
        DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64
    )
}

pub(super) fn equal_records<T: PartialEq>(have: &[T], want: &[T], per_record: usize) -> Vec<f64> {
    let pairs = have.chunks(per_record).zip(want.chunks(per_record));
    pairs
        .map(|(have, want)| f64::from(u8::from(have == want)))
        .collect()
}

/// Integers and booleans, compared as bytes: 64-bit values do not fit a double.
pub(super) fn equal_plain(have: &Tensor, want: &Tensor, per_record: usize) -> Vec<f64> {
    let size = have.data_type().size().unwrap_or(1);
    match (have.data(), want.data()) {
        (Data::Plain(have), Data::Plain(want)) => equal_records(have, want, per_record * size),
        _ => Vec::new(),
    }
}

/// A numeric tensor's elements as doubles; 64-bit integers are rounded. `None` for strings.
pub(crate) fn reals(tensor: &Tensor) -> Option<Vec<f64>> {
    macro_rules! read {
        ($type:ty) => {
            tensor
                .to_vec::<$type>()
                .map(|values| values.into_iter().map(f64::from).collect())
        };
    }
    match tensor.data_type() {
        DataType::Bytes => None,
        DataType::Bool => match tensor.data() {
            Data::Plain(bytes) => Some(bytes.iter().map(|byte| f64::from(*byte)).collect()),
            Data::Strings(_) => None,
        },
        DataType::Uint8 => read!(u8),
        DataType::Uint16 => read!(u16),
        DataType::Uint32 => read!(u32),
        DataType::Int8 => read!(i8),
        DataType::Int16 => read!(i16),
        DataType::Int32 => read!(i32),
        DataType::Fp16 => read!(half::f16),
        DataType::Bf16 => read!(half::bf16),
        DataType::Fp32 => read!(f32),
        DataType::Fp64 => read!(f64),
        DataType::Uint64 => Some(
            tensor
                .to_vec::<u64>()?
                .into_iter()
                .map(|v| v as f64)
                .collect(),
        ),
        DataType::Int64 => Some(
            tensor
                .to_vec::<i64>()?
                .into_iter()
                .map(|v| v as f64)
                .collect(),
        ),
    }
}
