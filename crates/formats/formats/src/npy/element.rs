//! NumPy's type strings and the types that they become.

use bytes::{Bytes, BytesMut};
use sextant_types::{DataType, Tensor, Texts, TextsBuilder};

use super::Problem;

/// The type of an array's elements, if a tensor has that type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element {
    data_type: DataType,
    /// Bytes of one element in the file.
    size: usize,
    big_endian: bool,
    unicode: bool,
}

impl Element {
    pub(super) fn parse(descr: &str) -> Result<Self, Problem> {
        let plain = descr.trim_start_matches(['|', '<', '>', '=']);
        if plain.starts_with('O') {
            return Err(Problem::Objects);
        }
        known(descr).ok_or_else(|| Problem::Dtype(descr.chars().take(64).collect()))
    }

    /// The type in a tensor.
    pub fn data_type(self) -> DataType {
        self.data_type
    }

    /// Bytes of one element in the file, at least 1.
    pub fn size(self) -> usize {
        self.size
    }

    /// A tensor with this shape from the elements as they are in the file.
    ///
    /// # Errors
    /// If an element is not valid for its type, or the shape has another number of elements.
    pub fn tensor(self, shape: Vec<usize>, data: &Bytes) -> Result<Tensor, Problem> {
        let tensor = match self.data_type {
            DataType::Bytes => Tensor::from_texts(shape, self.strings(data)?),
            DataType::Bool if data.iter().any(|byte| *byte > 1) => {
                let reason = "it has booleans that are neither 0 nor 1";
                return Err(Problem::Elements(reason.to_owned()));
            }
            data_type if self.big_endian => {
                Tensor::from_bytes(data_type, shape, swapped(data, self.size))
            }
            data_type => Tensor::from_bytes(data_type, shape, data.clone()),
        };
        tensor.map_err(|error| Problem::Elements(error.to_string()))
    }

    fn strings(self, data: &Bytes) -> Result<Texts, Problem> {
        let mut texts = TextsBuilder::with_capacity(data.len() / self.size, 0);
        for element in data.chunks_exact(self.size) {
            let pushed = if self.unicode {
                texts.push(self.text(element)?.as_bytes())
            } else {
                let end = element.iter().rposition(|byte| *byte != 0);
                texts.push(&element[..end.map_or(0, |end| end + 1)])
            };
            pushed.map_err(|error| Problem::Elements(error.to_string()))?;
        }
        Ok(texts.finish())
    }

    fn text(self, element: &[u8]) -> Result<String, Problem> {
        let points = element.chunks_exact(4).map(|point| {
            let point: u32 = bytemuck::pod_read_unaligned(point);
            if self.big_endian {
                point.swap_bytes()
            } else {
                point
            }
        });
        let text: Option<String> = points.map(char::from_u32).collect();
        let reason = || Problem::Elements("it has text that is not Unicode".to_owned());
        let mut text = text.ok_or_else(reason)?;
        text.truncate(text.trim_end_matches('\0').len());
        Ok(text)
    }
}

fn known(descr: &str) -> Option<Element> {
    let mut chars = descr.chars();
    let order = chars.next()?;
    let (kind, size) = match order {
        '<' | '>' | '|' | '=' => (chars.next()?, chars.as_str()),
        kind => (kind, chars.as_str()),
    };
    let size: usize = size.parse().ok()?;
    let data_type = match (kind, size) {
        ('b', 1) => DataType::Bool,
        ('u', 1) => DataType::Uint8,
        ('u', 2) => DataType::Uint16,
        ('u', 4) => DataType::Uint32,
        ('u', 8) => DataType::Uint64,
        ('i', 1) => DataType::Int8,
        ('i', 2) => DataType::Int16,
        ('i', 4) => DataType::Int32,
        ('i', 8) => DataType::Int64,
        ('f', 2) => DataType::Fp16,
        ('f', 4) => DataType::Fp32,
        ('f', 8) => DataType::Fp64,
        // NumPy has no brain floats: those of `ml_dtypes` are saved as two untyped bytes.
        ('V', 2) if order == '<' => DataType::Bf16,
        // Elements without bytes: an empty file could have any number of them.
        ('S' | 'a' | 'U', 0) => return None,
        ('S' | 'a' | 'U', _) => DataType::Bytes,
        _ => return None,
    };
    let unicode = kind == 'U';
    Some(Element {
        data_type,
        size: size.checked_mul(if unicode { 4 } else { 1 })?,
        big_endian: order == '>',
        unicode,
    })
}

fn swapped(data: &[u8], size: usize) -> Bytes {
    let mut bytes = BytesMut::from(data);
    if size > 1 {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    bytes.freeze()
}

/// NumPy's name of an element type. It has none for bfloat16, which is written as `f4` with the
/// same numbers, nor for strings of any length.
pub(super) fn descr(data_type: DataType) -> Option<&'static str> {
    Some(match data_type {
        DataType::Bool => "|b1",
        DataType::Uint8 => "|u1",
        DataType::Uint16 => "<u2",
        DataType::Uint32 => "<u4",
        DataType::Uint64 => "<u8",
        DataType::Int8 => "|i1",
        DataType::Int16 => "<i2",
        DataType::Int32 => "<i4",
        DataType::Int64 => "<i8",
        DataType::Fp16 => "<f2",
        DataType::Fp32 | DataType::Bf16 => "<f4",
        DataType::Fp64 => "<f8",
        DataType::Bytes => return None,
    })
}
