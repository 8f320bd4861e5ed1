//! Converts bytes to `ort` values and back.
//!
//! Inputs are borrowed: ONNX Runtime reads the caller's bytes in place. Bytes cut from a larger
//! body may begin at an odd address; only those are copied. Outputs are copied once, out of ONNX
//! Runtime's buffer.

use std::fmt::Debug;

use bytes::Bytes;
use ort::{
    session::SessionInputValue,
    value::{DynValue, PrimitiveTensorElementType, TensorElementType, TensorRef, ValueType},
};
use sextant_engine::Error;
use sextant_onnx::Weight;
use sextant_types::{Data, DataType, NamedTensor, Tensor, Texts};

/// The element type as `ort` names it.
pub(crate) fn element_type(data_type: DataType) -> TensorElementType {
    match data_type {
        DataType::Bool => TensorElementType::Bool,
        DataType::Uint8 => TensorElementType::Uint8,
        DataType::Uint16 => TensorElementType::Uint16,
        DataType::Uint32 => TensorElementType::Uint32,
        DataType::Uint64 => TensorElementType::Uint64,
        DataType::Int8 => TensorElementType::Int8,
        DataType::Int16 => TensorElementType::Int16,
        DataType::Int32 => TensorElementType::Int32,
        DataType::Int64 => TensorElementType::Int64,
        DataType::Fp16 => TensorElementType::Float16,
        DataType::Bf16 => TensorElementType::Bfloat16,
        DataType::Fp32 => TensorElementType::Float32,
        DataType::Fp64 => TensorElementType::Float64,
        DataType::Bytes => TensorElementType::String,
    }
}

/// The inverse of [`element_type`].
pub(crate) fn data_type(element: TensorElementType) -> Option<DataType> {
    DataType::ALL
        .into_iter()
        .find(|data_type| element_type(*data_type) == element)
}

/// Calls `$body` with `$element` standing for the Rust type of a numeric `$data_type`.
macro_rules! with_element {
    ($data_type:expr, $element:ident => $body:expr, strings => $strings:expr) => {
        match $data_type {
            DataType::Bool => {
                type $element = bool;
                $body
            }
            DataType::Uint8 => {
                type $element = u8;
                $body
            }
            DataType::Uint16 => {
                type $element = u16;
                $body
            }
            DataType::Uint32 => {
                type $element = u32;
                $body
            }
            DataType::Uint64 => {
                type $element = u64;
                $body
            }
            DataType::Int8 => {
                type $element = i8;
                $body
            }
            DataType::Int16 => {
                type $element = i16;
                $body
            }
            DataType::Int32 => {
                type $element = i32;
                $body
            }
            DataType::Int64 => {
                type $element = i64;
                $body
            }
            DataType::Fp16 => {
                type $element = half::f16;
                $body
            }
            DataType::Bf16 => {
                type $element = half::bf16;
                $body
            }
            DataType::Fp32 => {
                type $element = f32;
                $body
            }
            DataType::Fp64 => {
                type $element = f64;
                $body
            }
            DataType::Bytes => $strings,
        }
    };
}

/// An input at an address that its element type accepts; `None` if its address is accepted already.
pub(crate) fn realign(input: &NamedTensor) -> Option<Vec<u64>> {
    let Data::Plain(bytes) = input.tensor.data() else {
        return None;
    };
    let size = input.tensor.data_type().size()?;
    if (bytes.as_ptr() as usize).is_multiple_of(size) {
        return None;
    }
    let mut aligned = vec![0u64; bytes.len().div_ceil(size_of::<u64>())];
    bytemuck::cast_slice_mut(&mut aligned)[..bytes.len()].copy_from_slice(bytes);
    Some(aligned)
}

/// Borrows an input; `aligned` is the result of [`realign`].
pub(crate) fn borrow<'v>(
    input: &'v NamedTensor,
    aligned: Option<&'v [u64]>,
) -> Result<SessionInputValue<'v>, Error> {
    let tensor = &input.tensor;
    if tensor
        .shape()
        .iter()
        .any(|dim| i64::try_from(*dim).is_err())
    {
        return Err(invalid(input, "its shape is too large"));
    }
    match tensor.data() {
        Data::Strings(strings) => borrow_strings(input, strings),
        Data::Plain(bytes) => {
            let bytes = match aligned {
                Some(words) => &bytemuck::cast_slice(words)[..bytes.len()],
                None => &bytes[..],
            };
            with_element!(
                tensor.data_type(),
                E => borrow_elements::<E>(input, bytes),
                strings => Err(invalid(input, "its type does not fit its elements"))
            )
        }
    }
}

fn borrow_elements<'v, E>(
    input: &'v NamedTensor,
    bytes: &'v [u8],
) -> Result<SessionInputValue<'v>, Error>
where
    E: PrimitiveTensorElementType + bytemuck::CheckedBitPattern + Debug + 'static,
{
    // Only booleans have invalid bit patterns.
    let elements: &[E] = bytemuck::checked::try_cast_slice(bytes)
        .map_err(|_| invalid(input, "booleans have to be 0 or 1"))?;
    let value = TensorRef::from_array_view((input.tensor.shape(), elements))
        .map_err(|error| invalid(input, error.message()))?;
    Ok(value.into())
}

fn borrow_strings<'v>(
    input: &NamedTensor,
    strings: &Texts,
) -> Result<SessionInputValue<'v>, Error> {
    let mut texts = Vec::with_capacity(strings.len());
    for string in strings.iter() {
        match std::str::from_utf8(string) {
            Ok(text) if !text.contains('\0') => texts.push(text.to_owned()),
            Ok(_) => return Err(invalid(input, "strings with a zero byte are not supported")),
            Err(_) => return Err(invalid(input, "strings have to be UTF-8")),
        }
    }
    let value = ort::value::Tensor::from_string_array((input.tensor.shape(), texts.as_slice()))
        .map_err(|error| invalid(input, error.message()))?;
    Ok(value.into())
}

fn invalid(input: &NamedTensor, reason: &str) -> Error {
    Error::InvalidInput(format!("input `{}`: {reason}", input.name))
}

/// Copies an output out.
pub(crate) fn extract(name: &str, value: &DynValue) -> Result<Tensor, Error> {
    let failed = |reason: &str| Error::Failed(format!("output `{name}`: {reason}"));
    let ValueType::Tensor { ty, .. } = value.dtype() else {
        return Err(failed("it is not a tensor"));
    };
    let data_type = data_type(*ty).ok_or_else(|| failed("its element type is not supported"))?;
    with_element!(
        data_type,
        E => {
            let (shape, elements) = value
                .try_extract_tensor::<E>()
                .map_err(|error| failed(error.message()))?;
            let bytes = Bytes::copy_from_slice(as_bytes(elements));
            Tensor::from_bytes(data_type, dims(shape), bytes)
        },
        strings => {
            let (shape, strings) = value
                .try_extract_strings()
                .map_err(|error| failed(error.message()))?;
            Tensor::from_strings(dims(shape), strings)
        }
    )
    .map_err(|error| failed(&error.to_string()))
}

/// A weight in aligned memory of its own, which sessions can borrow.
pub(crate) fn own(weight: &Weight) -> Result<DynValue, String> {
    with_element!(
        weight.data_type,
        E => {
            let elements = elements::<E>(&weight.bytes)
                .ok_or_else(|| format!("weight `{}` has invalid elements", weight.name))?;
            ort::value::Tensor::from_array((weight.dims.as_slice(), elements))
                .map(ort::value::Value::into_dyn)
                .map_err(|error| format!("weight `{}`: {}", weight.name, error.message()))
        },
        strings => Err(format!("weight `{}` holds strings", weight.name))
    )
}

/// Whether a value equals the result of [`own`].
pub(crate) fn equals(value: &DynValue, weight: &Weight) -> bool {
    let ValueType::Tensor { ty, .. } = value.dtype() else {
        return false;
    };
    if *ty != element_type(weight.data_type) {
        return false;
    }
    with_element!(
        weight.data_type,
        E => value.try_extract_tensor::<E>().is_ok_and(|(shape, elements)| {
            dims(shape) == weight.dims && as_bytes(elements) == &weight.bytes[..]
        }),
        strings => false
    )
}

/// The bytes as elements, at any address.
fn elements<E: bytemuck::CheckedBitPattern + bytemuck::NoUninit>(bytes: &[u8]) -> Option<Vec<E>> {
    if let Ok(elements) = bytemuck::checked::try_cast_slice(bytes) {
        return Some(elements.to_vec());
    }
    bytes
        .chunks_exact(size_of::<E>())
        .map(|chunk| bytemuck::checked::try_pod_read_unaligned(chunk).ok())
        .collect()
}

fn dims(shape: &[i64]) -> Vec<usize> {
    shape
        .iter()
        .map(|dim| usize::try_from(*dim).unwrap_or(0))
        .collect()
}

fn as_bytes<E: bytemuck::NoUninit>(elements: &[E]) -> &[u8] {
    bytemuck::cast_slice(elements)
}
