//! NumPy's type strings and what they become.

use bytes::{Bytes, BytesMut};
use sextant_types::{DataType, Tensor};

/// A dtype that has a counterpart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Dtype {
    data_type: DataType,
    /// Bytes of one element in the file.
    pub size: usize,
    big_endian: bool,
    unicode: bool,
}

impl Dtype {
    pub(super) fn parse(descr: &str) -> Option<Self> {
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
            // Elements of no bytes: a file of none could have any number of them.
            ('S' | 'a' | 'U', 0) => return None,
            ('S' | 'a' | 'U', _) => DataType::Bytes,
            _ => return None,
        };
        let unicode = kind == 'U';
        Some(Self {
            data_type,
            size: size.checked_mul(if unicode { 4 } else { 1 })?,
            big_endian: order == '>',
            unicode,
        })
    }

    pub(super) fn tensor(self, shape: Vec<usize>, data: &Bytes) -> Result<Tensor, String> {
        let tensor = match self.data_type {
            DataType::Bytes => Tensor::from_strings(shape, self.strings(data)?),
            DataType::Bool if data.iter().any(|byte| *byte > 1) => {
                return Err("it has booleans that are neither 0 nor 1".to_owned());
            }
            data_type if self.big_endian => {
                Tensor::from_bytes(data_type, shape, swapped(data, self.size))
            }
            data_type => Tensor::from_bytes(data_type, shape, data.clone()),
        };
        tensor.map_err(|e| e.to_string())
    }

    fn strings(self, data: &Bytes) -> Result<Vec<Bytes>, String> {
        let elements = (0..data.len() / self.size).map(|i| i * self.size..(i + 1) * self.size);
        if self.unicode {
            return elements.map(|at| self.unicode(&data[at])).collect();
        }
        Ok(elements
            .map(|at| {
                let element = data.slice(at);
                let end = element.iter().rposition(|byte| *byte != 0);
                element.slice(..end.map_or(0, |end| end + 1))
            })
            .collect())
    }

    fn unicode(self, element: &[u8]) -> Result<Bytes, String> {
        let points = element.chunks_exact(4).map(|point| {
            let point: u32 = bytemuck::pod_read_unaligned(point);
            if self.big_endian {
                point.swap_bytes()
            } else {
                point
            }
        });
        let text: Option<String> = points.map(char::from_u32).collect();
        let text = text.ok_or("it has text that is not Unicode")?;
        Ok(Bytes::from(text.trim_end_matches('\0').to_owned()))
    }
}

fn swapped(data: &[u8], size: usize) -> Bytes {
    let mut bytes = BytesMut::from(data);
    if size > 1 {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    bytes.freeze()
}
