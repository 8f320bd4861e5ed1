//! Tensors: a shape and row-major little-endian bytes, or strings.

use std::fmt;

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::{Texts, TextsBuilder};

mod resize;

use resize::Sources;

/// Element types: all numeric types of ONNX with a memory layout of their own, and strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "the names say it")]
pub enum DataType {
    Bool,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Int8,
    Int16,
    Int32,
    Int64,
    Fp16,
    Bf16,
    Fp32,
    Fp64,
    /// UTF-8 or arbitrary byte strings; `BYTES` in the Open Inference Protocol.
    Bytes,
}

impl DataType {
    /// Every type.
    pub const ALL: [Self; 14] = [
        Self::Bool,
        Self::Uint8,
        Self::Uint16,
        Self::Uint32,
        Self::Uint64,
        Self::Int8,
        Self::Int16,
        Self::Int32,
        Self::Int64,
        Self::Fp16,
        Self::Bf16,
        Self::Fp32,
        Self::Fp64,
        Self::Bytes,
    ];

    /// Bytes of one element; `None` for strings.
    pub fn size(self) -> Option<usize> {
        match self {
            Self::Bool | Self::Uint8 | Self::Int8 => Some(1),
            Self::Uint16 | Self::Int16 | Self::Fp16 | Self::Bf16 => Some(2),
            Self::Uint32 | Self::Int32 | Self::Fp32 => Some(4),
            Self::Uint64 | Self::Int64 | Self::Fp64 => Some(8),
            Self::Bytes => None,
        }
    }

    /// The Open Inference Protocol's name: `FP32`, `BYTES`, ..
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "BOOL",
            Self::Uint8 => "UINT8",
            Self::Uint16 => "UINT16",
            Self::Uint32 => "UINT32",
            Self::Uint64 => "UINT64",
            Self::Int8 => "INT8",
            Self::Int16 => "INT16",
            Self::Int32 => "INT32",
            Self::Int64 => "INT64",
            Self::Fp16 => "FP16",
            Self::Bf16 => "BF16",
            Self::Fp32 => "FP32",
            Self::Fp64 => "FP64",
            Self::Bytes => "BYTES",
        }
    }

    /// The little-endian bytes of an element of this value; `None` if the type cannot hold it.
    pub fn element(self, value: f64) -> Option<Vec<u8>> {
        macro_rules! integer {
            ($type:ty) => {{
                let cast = value as $type;
                (cast as f64 == value).then(|| cast.to_le_bytes().to_vec())
            }};
        }
        match self {
            Self::Bool => (value == 0.0 || value == 1.0).then(|| vec![value as u8]),
            Self::Uint8 => integer!(u8),
            Self::Uint16 => integer!(u16),
            Self::Uint32 => integer!(u32),
            Self::Uint64 => integer!(u64),
            Self::Int8 => integer!(i8),
            Self::Int16 => integer!(i16),
            Self::Int32 => integer!(i32),
            Self::Int64 => integer!(i64),
            Self::Fp16 => Some(half::f16::from_f64(value).to_le_bytes().to_vec()),
            Self::Bf16 => Some(half::bf16::from_f64(value).to_le_bytes().to_vec()),
            Self::Fp32 => Some((value as f32).to_le_bytes().to_vec()),
            Self::Fp64 => Some(value.to_le_bytes().to_vec()),
            Self::Bytes => (value == 0.0).then(Vec::new),
        }
    }

    /// The inverse of [`DataType::name`].
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|data_type| data_type.name() == name)
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A tensor's elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// Row-major, little-endian; booleans are one byte, 0 or 1.
    Plain(Bytes),
    /// Row-major strings.
    Strings(Texts),
}

/// Elements that do not fit the shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTensor {
    /// The shape requires another number of elements.
    #[error("shape {shape:?} needs {expected} elements of {data_type}, {given} are given")]
    Length {
        /// The shape.
        shape: Vec<usize>,
        /// The element type.
        data_type: DataType,
        /// Elements that the shape needs.
        expected: usize,
        /// Elements that were given.
        given: usize,
    },
    /// The product of the dimensions overflows.
    #[error("shape {0:?} is too large")]
    TooLarge(Vec<usize>),
    /// Tensors that cannot be joined or cut along the first dimension.
    #[error("tensors of different type or row shape cannot share a batch")]
    Mixed,
}

/// A tensor. Cloning it and cutting it along the first dimension copy no elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    data_type: DataType,
    shape: Vec<usize>,
    data: Data,
}

/// A tensor with the name of the input or output it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedTensor {
    /// Name in the graph.
    pub name: String,
    /// The value.
    pub tensor: Tensor,
}

/// The fill of a tensor that grows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fill {
    /// This value.
    Value(f64),
    /// Its own elements, repeated from the beginning.
    Repeated,
}

/// A Rust type that is the element of a tensor.
pub trait Element: bytemuck::Pod {
    /// The tensor's type.
    const DATA_TYPE: DataType;
}

macro_rules! element {
    ($($type:ty => $data_type:ident),* $(,)?) => {
        $(impl Element for $type { const DATA_TYPE: DataType = DataType::$data_type; })*
    };
}

element! {
    u8 => Uint8, u16 => Uint16, u32 => Uint32, u64 => Uint64,
    i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64,
    half::f16 => Fp16, half::bf16 => Bf16, f32 => Fp32, f64 => Fp64,
}

fn elements(shape: &[usize]) -> Result<usize, InvalidTensor> {
    shape
        .iter()
        .try_fold(1usize, |product, dim| product.checked_mul(*dim))
        .filter(|count| *count <= isize::MAX as usize / 8)
        .ok_or_else(|| InvalidTensor::TooLarge(shape.to_vec()))
}

impl Tensor {
    /// Bytes that an engine allocates for a string beside its text, which it copies three times. ONNX Runtime holds 32.
    /// Its binding makes a list of the strings, another of strings that end in a zero byte, and one of pointers. From
    /// the outputs it makes a list of strings again.
    pub const ENGINE_TEXT_BYTES: usize = 112;

    /// A numeric or boolean tensor from its bytes. Fails if their number does not fit.
    pub fn from_bytes(
        data_type: DataType,
        shape: Vec<usize>,
        bytes: Bytes,
    ) -> Result<Self, InvalidTensor> {
        let expected = elements(&shape)?;
        let size = data_type.size().ok_or(InvalidTensor::Mixed)?;
        if bytes.len() != expected * size {
            let given = bytes.len() / size;
            return Err(InvalidTensor::Length {
                shape,
                data_type,
                expected,
                given,
            });
        }
        Ok(Self {
            data_type,
            shape,
            data: Data::Plain(bytes),
        })
    }

    /// A numeric tensor from its elements.
    pub fn from_elements<T: Element>(
        shape: Vec<usize>,
        values: &[T],
    ) -> Result<Self, InvalidTensor> {
        let expected = elements(&shape)?;
        if values.len() != expected {
            let (data_type, given) = (T::DATA_TYPE, values.len());
            return Err(InvalidTensor::Length {
                shape,
                data_type,
                expected,
                given,
            });
        }
        let bytes = Bytes::copy_from_slice(bytemuck::cast_slice(values));
        Ok(Self {
            data_type: T::DATA_TYPE,
            shape,
            data: Data::Plain(bytes),
        })
    }

    /// A string tensor.
    pub fn from_strings<T: AsRef<[u8]>>(
        shape: Vec<usize>,
        values: impl IntoIterator<Item = T>,
    ) -> Result<Self, InvalidTensor> {
        Self::from_texts(shape, Texts::collect(values)?)
    }

    /// The same, from strings that are already joined.
    pub fn from_texts(shape: Vec<usize>, texts: Texts) -> Result<Self, InvalidTensor> {
        let expected = elements(&shape)?;
        if texts.len() != expected {
            let (data_type, given) = (DataType::Bytes, texts.len());
            return Err(InvalidTensor::Length {
                shape,
                data_type,
                expected,
                given,
            });
        }
        Ok(Self {
            data_type: DataType::Bytes,
            shape,
            data: Data::Strings(texts),
        })
    }

    /// Element type.
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// Dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements.
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size of the first dimension; 1 for a scalar.
    pub fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Bytes of the elements; for strings only those of their texts.
    pub fn byte_len(&self) -> usize {
        match &self.data {
            Data::Plain(bytes) => bytes.len(),
            Data::Strings(texts) => texts.bytes().len(),
        }
    }

    /// Bytes that the elements take up in memory.
    pub fn held_bytes(&self) -> usize {
        match &self.data {
            Data::Plain(bytes) => bytes.len(),
            Data::Strings(texts) => texts.held_bytes(),
        }
    }

    /// Bytes that an engine allocates for strings while it runs; 0 for other types, which engines read in place.
    pub fn engine_bytes(&self) -> usize {
        self.texts().map_or(0, |texts| {
            3 * texts.bytes().len() + texts.len() * Self::ENGINE_TEXT_BYTES
        })
    }

    /// The strings; `None` for other types.
    pub fn texts(&self) -> Option<&Texts> {
        match &self.data {
            Data::Plain(_) => None,
            Data::Strings(texts) => Some(texts),
        }
    }

    /// The elements copied out, or `None` when `T` is not the tensor's type.
    pub fn to_vec<T: Element>(&self) -> Option<Vec<T>> {
        match &self.data {
            Data::Plain(bytes) if T::DATA_TYPE == self.data_type => {
                Some(bytemuck::allocation::pod_collect_to_vec(bytes))
            }
            _ => None,
        }
    }

    /// The same elements in another shape of the same size. They are shared.
    pub fn reshaped(&self, shape: Vec<usize>) -> Result<Self, InvalidTensor> {
        match &self.data {
            Data::Plain(bytes) => Self::from_bytes(self.data_type, shape, bytes.clone()),
            Data::Strings(texts) => Self::from_texts(shape, texts.clone()),
        }
    }

    /// Joins tensors of one type and row shape along the first dimension.
    pub fn concat(parts: &[&Tensor]) -> Result<Tensor, InvalidTensor> {
        let Some(first) = parts.first() else {
            return Err(InvalidTensor::Mixed);
        };
        if parts.len() == 1 {
            return Ok((*first).clone());
        }
        let alike = |part: &&Tensor| {
            part.data_type == first.data_type && part.shape.get(1..) == first.shape.get(1..)
        };
        if first.shape.is_empty() || !parts.iter().all(alike) {
            return Err(InvalidTensor::Mixed);
        }
        let mut shape = first.shape.clone();
        shape[0] = parts.iter().map(|part| part.rows()).sum();
        let data = if first.data_type == DataType::Bytes {
            let texts = parts.iter().filter_map(|part| part.texts());
            let count = texts.clone().map(Texts::len).sum();
            let bytes = texts.clone().map(|it| it.bytes().len()).sum();
            let mut joined = TextsBuilder::with_capacity(count, bytes);
            for texts in texts {
                joined.extend(texts)?;
            }
            Data::Strings(joined.finish())
        } else {
            let mut joined =
                BytesMut::with_capacity(parts.iter().map(|part| part.byte_len()).sum());
            parts
                .iter()
                .for_each(|part| joined.extend_from_slice(part.plain()));
            Data::Plain(joined.freeze())
        };
        Ok(Tensor {
            data_type: first.data_type,
            shape,
            data,
        })
    }

    /// Rows `start .. start + count`; shares the elements.
    pub fn slice_rows(&self, start: usize, count: usize) -> Result<Tensor, InvalidTensor> {
        let rows = self.rows();
        if self.shape.is_empty() || start + count > rows {
            return Err(InvalidTensor::Mixed);
        }
        let mut shape = self.shape.clone();
        shape[0] = count;
        let row = self.len().checked_div(rows).unwrap_or(0);
        let data = match &self.data {
            Data::Plain(bytes) => {
                let size = row * self.data_type.size().unwrap_or(1);
                Data::Plain(bytes.slice(start * size..(start + count) * size))
            }
            Data::Strings(texts) => Data::Strings(texts.slice(start * row..(start + count) * row)),
        };
        Ok(Tensor {
            data_type: self.data_type,
            shape,
            data,
        })
    }

    /// The tensor with other sizes of its dimensions: cut where they are smaller, filled where they are larger.
    ///
    /// # Errors
    /// If the number of dimensions differs, the result would be too large, there is nothing to repeat, or the type
    /// cannot hold the value.
    pub fn resized(&self, shape: &[usize], fill: Fill) -> Result<Tensor, InvalidTensor> {
        if shape.len() != self.shape.len() {
            return Err(InvalidTensor::Mixed);
        }
        if shape == self.shape {
            return Ok(self.clone());
        }
        let count = elements(shape)?;
        let nothing = fill == Fill::Repeated && self.is_empty() && count > 0;
        let value = match fill {
            Fill::Value(value) => self.data_type.element(value).ok_or(InvalidTensor::Mixed)?,
            Fill::Repeated => Vec::new(),
        };
        if nothing {
            return Err(InvalidTensor::Mixed);
        }
        let sources = Sources::new(&self.shape, shape, fill);
        let data = match &self.data {
            Data::Plain(bytes) => {
                let size = self.data_type.size().unwrap_or(1);
                let mut resized = BytesMut::with_capacity(count * size);
                sources.for_each(|found| match found {
                    Some((from, count)) => {
                        resized.extend_from_slice(&bytes[from * size..(from + count) * size]);
                    }
                    None => resized.extend_from_slice(&value),
                });
                Data::Plain(resized.freeze())
            }
            Data::Strings(texts) => {
                let mut resized = TextsBuilder::with_capacity(count, texts.bytes().len());
                let mut whole = Ok(());
                sources.for_each(|found| {
                    let grown = match found {
                        Some((from, count)) => resized.extend(&texts.slice(from..from + count)),
                        None => resized.end(),
                    };
                    whole = std::mem::replace(&mut whole, Ok(())).and(grown);
                });
                whole?;
                Data::Strings(resized.finish())
            }
        };
        Ok(Tensor {
            data_type: self.data_type,
            shape: shape.to_vec(),
            data,
        })
    }

    fn plain(&self) -> &[u8] {
        match &self.data {
            Data::Plain(bytes) => bytes,
            Data::Strings(_) => &[],
        }
    }
}

impl NamedTensor {
    /// Pairs a name with a value.
    pub fn new(name: impl Into<String>, tensor: Tensor) -> Self {
        Self {
            name: name.into(),
            tensor,
        }
    }
}
