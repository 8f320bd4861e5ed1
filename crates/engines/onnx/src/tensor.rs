//! Constant tensors: checking, reading, making.

use bytes::Bytes;
use half::{bf16, f16};
use sextant_types::DataType;

use crate::{
    Error,
    external::place,
    outline::WEIGHTS,
    proto::{EXTERNAL, TensorProto, data_type},
};

/// The engine-independent element type of an ONNX one; `None` for complex numbers and the types
/// of 8 bits and fewer that are not plain integers.
pub fn element_type(onnx: i32) -> Option<DataType> {
    Some(match onnx {
        data_type::FLOAT => DataType::Fp32,
        data_type::UINT8 => DataType::Uint8,
        data_type::INT8 => DataType::Int8,
        data_type::UINT16 => DataType::Uint16,
        data_type::INT16 => DataType::Int16,
        data_type::INT32 => DataType::Int32,
        data_type::INT64 => DataType::Int64,
        data_type::STRING => DataType::Bytes,
        data_type::BOOL => DataType::Bool,
        data_type::FLOAT16 => DataType::Fp16,
        data_type::DOUBLE => DataType::Fp64,
        data_type::UINT32 => DataType::Uint32,
        data_type::UINT64 => DataType::Uint64,
        data_type::BFLOAT16 => DataType::Bf16,
        _ => return None,
    })
}

/// The inverse of [`element_type`].
pub fn onnx_type(data_type: DataType) -> i32 {
    match data_type {
        DataType::Fp32 => data_type::FLOAT,
        DataType::Uint8 => data_type::UINT8,
        DataType::Int8 => data_type::INT8,
        DataType::Uint16 => data_type::UINT16,
        DataType::Int16 => data_type::INT16,
        DataType::Int32 => data_type::INT32,
        DataType::Int64 => data_type::INT64,
        DataType::Bytes => data_type::STRING,
        DataType::Bool => data_type::BOOL,
        DataType::Fp16 => data_type::FLOAT16,
        DataType::Fp64 => data_type::DOUBLE,
        DataType::Uint32 => data_type::UINT32,
        DataType::Uint64 => data_type::UINT64,
        DataType::Bf16 => data_type::BFLOAT16,
    }
}

/// ONNX's name of an element type for which [`element_type`] has none.
pub fn foreign_type(onnx: i32) -> String {
    let name = match onnx {
        data_type::COMPLEX64 => "COMPLEX64",
        data_type::COMPLEX128 => "COMPLEX128",
        data_type::FLOAT8E4M3FN => "FLOAT8E4M3FN",
        data_type::FLOAT8E4M3FNUZ => "FLOAT8E4M3FNUZ",
        data_type::FLOAT8E5M2 => "FLOAT8E5M2",
        data_type::FLOAT8E5M2FNUZ => "FLOAT8E5M2FNUZ",
        data_type::FLOAT8E8M0 => "FLOAT8E8M0",
        data_type::FLOAT4E2M1 => "FLOAT4E2M1",
        data_type::UINT4 => "UINT4",
        data_type::INT4 => "INT4",
        data_type::UINT2 => "UINT2",
        data_type::INT2 => "INT2",
        other => return format!("number {other}"),
    };
    name.to_owned()
}

/// Bits of one element, `None` for strings and types this crate does not know.
fn bits(onnx: i32) -> Option<u64> {
    Some(match onnx {
        data_type::UINT2 | data_type::INT2 => 2,
        data_type::UINT4 | data_type::INT4 | data_type::FLOAT4E2M1 => 4,
        data_type::FLOAT8E4M3FN..=data_type::FLOAT8E5M2FNUZ | data_type::FLOAT8E8M0 => 8,
        data_type::COMPLEX64 => 64,
        data_type::COMPLEX128 => 128,
        other => 8 * element_type(other)?.size()? as u64,
    })
}

impl TensorProto {
    /// A tensor from little-endian elements.
    pub fn from_bytes(
        name: impl Into<String>,
        data_type: DataType,
        dims: &[usize],
        bytes: Bytes,
    ) -> Self {
        Self {
            name: Some(name.into()),
            data_type: Some(onnx_type(data_type)),
            dims: dims.iter().map(|dim| *dim as i64).collect(),
            raw_data: Some(bytes),
            ..Self::default()
        }
    }

    /// A tensor of numbers.
    pub fn from_elements<T: sextant_types::tensor::Element>(
        name: impl Into<String>,
        dims: &[usize],
        values: &[T],
    ) -> Self {
        let bytes = Bytes::copy_from_slice(bytemuck::cast_slice(values));
        Self::from_bytes(name, T::DATA_TYPE, dims, bytes)
    }

    /// Number of elements. Errors on negative or overflowing dimensions.
    pub fn elements(&self) -> Result<u64, Error> {
        self.dims
            .iter()
            .try_fold(1u64, |product, dim| {
                product.checked_mul(u64::try_from(*dim).ok()?)
            })
            .filter(|count| *count <= i64::MAX as u64 / 16)
            .ok_or_else(|| self.invalid(&format!("has impossible dimensions {:?}", self.dims)))
    }

    /// Bytes that the elements need, the text of strings included. Errors as [`Self::check`].
    pub fn data_bytes(&self) -> Result<u64, Error> {
        let elements = self.elements()?;
        let text = self.string_data.iter().map(|text| text.len() as u64).sum();
        Ok(bits(self.data_type()).map_or(text, |bits| (elements * bits).div_ceil(8)))
    }

    /// Whether the data lies in another file.
    pub fn is_external(&self) -> bool {
        self.data_location == Some(EXTERNAL) || !self.external_data.is_empty()
    }

    /// Whether the data is where an outline leaves it.
    pub(crate) fn is_outlined(&self) -> bool {
        self.is_external() && self.location() == Some(WEIGHTS)
    }

    /// Whether the elements are floating-point numbers of any width.
    pub fn is_float(&self) -> bool {
        matches!(
            self.data_type(),
            data_type::FLOAT | data_type::FLOAT16 | data_type::DOUBLE | data_type::BFLOAT16
        )
    }

    /// Checks that dimensions and data agree and that the data is in the file, or in that of an outline.
    pub fn check(&self) -> Result<(), Error> {
        if self.is_outlined() {
            let (have, need) = (place(self)?.1, self.data_bytes()?);
            let dims = &self.dims;
            return match have == need {
                true => Ok(()),
                false => {
                    Err(self.invalid(&format!("has {have} bytes where {dims:?} needs {need}")))
                }
            };
        }
        if self.is_external() {
            return Err(self.external());
        }
        let elements = self.elements()?;
        if self.segment.is_some() {
            return Err(self.invalid("is a segment of another tensor"));
        }
        let (have, need) = match &self.raw_data {
            Some(raw) => match bits(self.data_type()) {
                Some(bits) => (raw.len() as u64, (elements * bits).div_ceil(8)),
                None => return Err(self.invalid("has raw data of an unknown type")),
            },
            None => match self.typed_elements(elements) {
                Some(pair) => pair,
                None => return Ok(()),
            },
        };
        if have == need {
            return Ok(());
        }
        let unit = if self.raw_data.is_some() {
            "bytes"
        } else {
            "elements"
        };
        let dims = &self.dims;
        Err(self.invalid(&format!("has {have} {unit} where {dims:?} needs {need}")))
    }

    /// Elements as little-endian bytes, shared with the file where possible; `None` when the type
    /// is not fixed-width and known to the engines, or the data is inconsistent or elsewhere.
    pub fn to_bytes(&self) -> Option<(DataType, Bytes)> {
        self.check().ok().filter(|()| !self.is_external())?;
        let data_type = element_type(self.data_type()).filter(|it| it.size().is_some())?;
        if let Some(raw) = &self.raw_data {
            return Some((data_type, raw.clone()));
        }
        let narrow = &self.int32_data;
        let bytes: Vec<u8> = match data_type {
            DataType::Fp32 => bytemuck::cast_slice(&self.float_data).to_vec(),
            DataType::Fp64 => bytemuck::cast_slice(&self.double_data).to_vec(),
            DataType::Int64 => bytemuck::cast_slice(&self.int64_data).to_vec(),
            DataType::Uint64 => bytemuck::cast_slice(&self.uint64_data).to_vec(),
            DataType::Int32 => bytemuck::cast_slice(narrow).to_vec(),
            DataType::Uint32 => {
                collect(self.uint64_data.iter().map(|it| (*it as u32).to_le_bytes()))
            }
            DataType::Bool | DataType::Int8 | DataType::Uint8 => {
                narrow.iter().map(|it| *it as u8).collect()
            }
            DataType::Int16 | DataType::Uint16 | DataType::Fp16 | DataType::Bf16 => {
                collect(narrow.iter().map(|it| (*it as u16).to_le_bytes()))
            }
            DataType::Bytes => return None,
        };
        Some((data_type, Bytes::from(bytes)))
    }

    /// Elements as 32-bit floats, from FLOAT, FLOAT16 or BFLOAT16.
    pub fn to_floats(&self) -> Option<Vec<f32>> {
        let (data_type, bytes) = self.to_bytes()?;
        match data_type {
            DataType::Fp32 => Some(bytemuck::pod_collect_to_vec(&bytes)),
            DataType::Fp16 => Some(widen(&bytes, |bits| f16::from_bits(bits).to_f32())),
            DataType::Bf16 => Some(widen(&bytes, |bits| bf16::from_bits(bits).to_f32())),
            _ => None,
        }
    }

    /// The error for data in another file.
    pub(crate) fn external(&self) -> Error {
        Error::ExternalData {
            tensor: self.name().to_owned(),
            location: self.location().unwrap_or("another file").to_owned(),
        }
    }

    /// The file in which it says that its data lies.
    pub(crate) fn location(&self) -> Option<&str> {
        self.external_entry("location")
    }

    /// What it says of where its data lies: `location`, `offset`, `length`.
    pub(crate) fn external_entry(&self, key: &str) -> Option<&str> {
        let entry = self.external_data.iter().find(|entry| entry.key() == key);
        entry.map(|entry| entry.value())
    }

    fn invalid(&self, what: &str) -> Error {
        Error::NotOnnx(format!("tensor `{}` {what}", self.name()))
    }

    /// Typed elements that are there and that are needed; `None` where nothing is known.
    fn typed_elements(&self, elements: u64) -> Option<(u64, u64)> {
        let have = match self.data_type() {
            data_type::FLOAT => self.float_data.len(),
            data_type::DOUBLE => self.double_data.len(),
            data_type::INT64 => self.int64_data.len(),
            data_type::UINT32 | data_type::UINT64 => self.uint64_data.len(),
            data_type::STRING => self.string_data.len(),
            data_type::COMPLEX64 => return Some((self.float_data.len() as u64, 2 * elements)),
            data_type::COMPLEX128 => return Some((self.double_data.len() as u64, 2 * elements)),
            other if bits(other).is_some_and(|bits| bits < 8) => return None,
            other if bits(other).is_some() => self.int32_data.len(),
            _ => return None,
        };
        Some((have as u64, elements))
    }
}

fn collect<const N: usize>(parts: impl Iterator<Item = [u8; N]>) -> Vec<u8> {
    parts.flatten().collect()
}

fn widen(bytes: &[u8], convert: impl Fn(u16) -> f32) -> Vec<f32> {
    bytes
        .chunks_exact(2)
        .map(|pair| convert(u16::from_le_bytes([pair[0], pair[1]])))
        .collect()
}
