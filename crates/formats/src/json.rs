//! A tensor's elements as JSON.

use half::{bf16, f16};
use serde_json::Value;
use sextant_types::{Data, DataType, Tensor, tensor::Element};

/// Elements as JSON; what is not finite becomes `null`.
pub fn values(tensor: &Tensor) -> Vec<Value> {
    fn all<T: Element, J: Into<Value>>(tensor: &Tensor, convert: impl Fn(T) -> J) -> Vec<Value> {
        tensor
            .to_vec()
            .unwrap_or_default()
            .into_iter()
            .map(|value| convert(value).into())
            .collect()
    }
    match (tensor.data_type(), tensor.data()) {
        (_, Data::Strings(strings)) => strings
            .iter()
            .map(|text| String::from_utf8_lossy(text).into())
            .collect(),
        (DataType::Bool, Data::Plain(bytes)) => bytes.iter().map(|b| (*b != 0).into()).collect(),
        (DataType::Uint8, _) => all(tensor, |v: u8| v),
        (DataType::Uint16, _) => all(tensor, |v: u16| v),
        (DataType::Uint32, _) => all(tensor, |v: u32| v),
        (DataType::Uint64, _) => all(tensor, |v: u64| v),
        (DataType::Int8, _) => all(tensor, |v: i8| v),
        (DataType::Int16, _) => all(tensor, |v: i16| v),
        (DataType::Int32, _) => all(tensor, |v: i32| v),
        (DataType::Int64, _) => all(tensor, |v: i64| v),
        (DataType::Fp16, _) => all(tensor, |v: f16| v.to_f32()),
        (DataType::Bf16, _) => all(tensor, |v: bf16| v.to_f32()),
        (DataType::Fp32, _) => all(tensor, |v: f32| v),
        (DataType::Fp64, _) => all(tensor, |v: f64| v),
        (DataType::Bytes, Data::Plain(_)) => Vec::new(),
    }
}
