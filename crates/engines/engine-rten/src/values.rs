//! Converts bytes to rten's values and back.

use bytes::Bytes;
use rten::{Value, ValueOrView, ValueView};
use rten_tensor::{AsView, Layout};
use sextant_engine::Error;
use sextant_types::{Data, DataType, InvalidTensor, NamedTensor, Tensor, TensorSpec};

/// Types of inputs and outputs: unchanged, or as 32-bit integers.
pub(crate) const DATA_TYPES: [DataType; 6] = [
    DataType::Fp32,
    DataType::Int32,
    DataType::Int8,
    DataType::Uint8,
    DataType::Int64,
    DataType::Bool,
];

/// Borrows an input if its address and type allow that; else copies it.
pub(crate) fn input(input: &NamedTensor) -> Result<ValueOrView<'_>, Error> {
    let tensor = &input.tensor;
    let Data::Plain(bytes) = tensor.data() else {
        return Err(invalid(input, "strings are not supported"));
    };
    let shape = tensor.shape();
    match tensor.data_type() {
        DataType::Fp32 => elements::<f32>(input, bytes, shape),
        DataType::Int32 => elements::<i32>(input, bytes, shape),
        DataType::Int8 => elements::<i8>(input, bytes, shape),
        DataType::Uint8 => elements::<u8>(input, bytes, shape),
        DataType::Int64 => owned(input, shape, narrowed(input, bytes)?),
        DataType::Bool => owned(input, shape, truths(input, bytes)?),
        other => Err(invalid(input, &format!("type {other} is not supported"))),
    }
}

fn elements<'v, T>(
    input: &NamedTensor,
    bytes: &'v [u8],
    shape: &[usize],
) -> Result<ValueOrView<'v>, Error>
where
    T: bytemuck::Pod,
    ValueView<'v>: From<rten_tensor::TensorView<'v, T>>,
    Value: From<rten_tensor::Tensor<T>>,
{
    match bytemuck::try_cast_slice::<u8, T>(bytes) {
        Ok(elements) => ValueView::from_shape(shape, elements)
            .map(ValueOrView::from)
            .map_err(|error| invalid(input, &error.to_string())),
        Err(_) => owned(input, shape, bytemuck::pod_collect_to_vec::<u8, T>(bytes)),
    }
}

fn owned<'v, T>(
    input: &NamedTensor,
    shape: &[usize],
    elements: Vec<T>,
) -> Result<ValueOrView<'v>, Error>
where
    Value: From<rten_tensor::Tensor<T>>,
{
    Value::from_shape(shape, elements)
        .map(ValueOrView::from)
        .map_err(|error| invalid(input, &error.to_string()))
}

fn narrowed(input: &NamedTensor, bytes: &[u8]) -> Result<Vec<i32>, Error> {
    let narrow = |chunk: &[u8]| {
        let value = bytemuck::pod_read_unaligned::<i64>(chunk);
        i32::try_from(value).map_err(|_| invalid(input, &format!("{value} exceeds 32 bits")))
    };
    bytes.chunks_exact(size_of::<i64>()).map(narrow).collect()
}

fn truths(input: &NamedTensor, bytes: &[u8]) -> Result<Vec<i32>, Error> {
    let truth = |byte: &u8| match byte {
        0 | 1 => Ok(i32::from(*byte)),
        _ => Err(invalid(input, "booleans have to be 0 or 1")),
    };
    bytes.iter().map(truth).collect()
}

fn invalid(input: &NamedTensor, reason: &str) -> Error {
    Error::InvalidInput(format!("input `{}`: {reason}", input.name))
}

/// Copies an output out, in the type that the signature promises.
pub(crate) fn output(spec: &TensorSpec, value: Value) -> Result<Tensor, Error> {
    let tensor = match (spec.data_type, value) {
        (DataType::Fp32, Value::FloatTensor(tensor)) => plain(spec.data_type, &tensor),
        (DataType::Int32, Value::Int32Tensor(tensor)) => plain(spec.data_type, &tensor),
        (DataType::Int8, Value::Int8Tensor(tensor)) => plain(spec.data_type, &tensor),
        (DataType::Uint8, Value::UInt8Tensor(tensor)) => plain(spec.data_type, &tensor),
        (DataType::Int64, Value::Int32Tensor(tensor)) => {
            let wide: Vec<i64> = tensor.iter().copied().map(i64::from).collect();
            Tensor::from_elements(tensor.shape().to_vec(), &wide)
        }
        (DataType::Bool, Value::Int32Tensor(tensor)) => {
            let truths: Bytes = tensor.iter().map(|value| u8::from(*value != 0)).collect();
            Tensor::from_bytes(DataType::Bool, tensor.shape().to_vec(), truths)
        }
        (wanted, value) => {
            let (name, given) = (&spec.name, value.dtype());
            return Err(Error::Failed(format!(
                "output `{name}` is {given}, not {wanted}"
            )));
        }
    };
    tensor.map_err(|error| Error::Failed(format!("output `{}`: {error}", spec.name)))
}

fn plain<T: bytemuck::Pod>(
    data_type: DataType,
    tensor: &rten_tensor::Tensor<T>,
) -> Result<Tensor, InvalidTensor> {
    let shape = tensor.shape().to_vec();
    let bytes = match tensor.data() {
        Some(elements) => Bytes::copy_from_slice(bytemuck::cast_slice(elements)),
        None => Bytes::copy_from_slice(bytemuck::cast_slice(&tensor.to_vec())),
    };
    Tensor::from_bytes(data_type, shape, bytes)
}
