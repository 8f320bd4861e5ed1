//! Converts bytes to OpenVINO's tensors and back.

use bytes::Bytes;
use openvino::ElementType;
use sextant_engine::Error;
use sextant_types::{Data, DataType, NamedTensor, Signature, Tensor, TensorSpec};

/// Types that pass without losing a digit; 64-bit integers only within the range of 32 bits.
pub(crate) const DATA_TYPES: [DataType; 8] = [
    DataType::Fp32,
    DataType::Fp16,
    DataType::Bf16,
    DataType::Int32,
    DataType::Int8,
    DataType::Uint8,
    DataType::Int64,
    DataType::Bool,
];

/// OpenVINO's word for a type.
pub(crate) fn element(data_type: DataType) -> Option<ElementType> {
    Some(match data_type {
        DataType::Fp32 => ElementType::F32,
        DataType::Fp16 => ElementType::F16,
        DataType::Bf16 => ElementType::Bf16,
        DataType::Int32 => ElementType::I32,
        DataType::Int8 => ElementType::I8,
        DataType::Uint8 => ElementType::U8,
        DataType::Int64 => ElementType::I64,
        DataType::Bool => ElementType::Boolean,
        _ => return None,
    })
}

/// Refuses a model with an unsupported type, and names the input or output.
pub(crate) fn refuse_types(signature: &Signature) -> Result<(), Error> {
    let mut specs = signature.inputs.iter().chain(&signature.outputs);
    match specs.find(|spec| !DATA_TYPES.contains(&spec.data_type)) {
        Some(spec) => Err(Error::Unsupported(format!(
            "`{}` is of type {}",
            spec.name, spec.data_type
        ))),
        None => Ok(()),
    }
}

/// Refuses integers that would be cut to 32 bits.
pub(crate) fn check_range(input: &NamedTensor) -> Result<(), Error> {
    let (DataType::Int64, Data::Plain(bytes)) = (input.tensor.data_type(), input.tensor.data())
    else {
        return Ok(());
    };
    let (integers, _) = bytes.as_chunks::<8>();
    let mut integers = integers.iter().map(|it| i64::from_le_bytes(*it));
    match integers.find(|value| i32::try_from(*value).is_err()) {
        Some(value) => Err(invalid(input, &format!("{value} exceeds 32 bits"))),
        None => Ok(()),
    }
}

/// Writes an input's bytes.
pub(crate) fn fill(tensor: &mut openvino::Tensor, bytes: &Bytes) -> Result<(), Error> {
    // A tensor without elements has no memory either.
    if bytes.is_empty() {
        return Ok(());
    }
    let to = tensor.get_raw_data_mut();
    let to = to.map_err(|error| crate::failure::run(&error))?;
    if to.len() != bytes.len() {
        let (have, want) = (bytes.len(), to.len());
        let reason = format!("`{have}` bytes are given for a tensor of `{want}`");
        return Err(Error::Failed(reason));
    }
    to.copy_from_slice(bytes);
    Ok(())
}

/// Copies an output out, in the type that the signature promises.
pub(crate) fn output(spec: &TensorSpec, tensor: &openvino::Tensor) -> Result<Tensor, Error> {
    let failed = |error: openvino::InferenceError| crate::failure::run(&error);
    let given = tensor.get_element_type().map_err(failed)?;
    if element(spec.data_type) != Some(given) {
        let (name, wanted) = (&spec.name, spec.data_type);
        let reason = format!("output `{name}` is {given}, not {wanted}");
        return Err(Error::Failed(reason));
    }
    let shape = tensor.get_shape().map_err(failed)?;
    let shape: Vec<usize> = match shape.get_rank() {
        0 => Vec::new(),
        _ => shape
            .get_dimensions()
            .iter()
            .map(|dim| usize::try_from(*dim).unwrap_or(0))
            .collect(),
    };
    let bytes = match shape.contains(&0) {
        true => Bytes::new(),
        false => Bytes::copy_from_slice(tensor.get_raw_data().map_err(failed)?),
    };
    Tensor::from_bytes(spec.data_type, shape, bytes)
        .map_err(|error| Error::Failed(format!("output `{}`: {error}", spec.name)))
}

pub(crate) fn invalid(input: &NamedTensor, reason: &str) -> Error {
    Error::InvalidInput(format!("input `{}`: {reason}", input.name))
}
