//! One NumPy array, version 1 to 3 of the format (NEP 1).
//!
//! The header is a Python dictionary. Only the three keys that NumPy writes, with values of the plain form, are
//! understood: no expression is evaluated and nothing is nested, so a hostile header can neither run code nor overflow
//! the stack.

use bytes::{Bytes, BytesMut};
use sextant_types::{DataType, Tensor};

mod element;
mod problem;
mod scanner;

pub use element::Element;
pub use problem::Problem;

use scanner::Scanner;

/// The first bytes of every such file.
pub const MAGIC: &[u8] = b"\x93NUMPY";

/// Longest header that is read; NumPy's own limit is 10,000.
const MAX_HEADER_BYTES: usize = 1 << 16;

/// Bytes at the beginning of a file that contain every accepted header.
pub const BEGINNING_BYTES: u64 = MAX_HEADER_BYTES as u64 + 12;

/// Alignment of the elements in a file that is written here.
const ALIGNMENT: usize = 64;

/// The layout of an array's elements in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The type of the elements.
    pub element: Element,
    /// All dimensions; none for a scalar.
    pub shape: Vec<usize>,
    /// Where the elements begin, bytes.
    pub start: usize,
}

/// Reads a whole file.
///
/// # Errors
/// If it is not an array, is one that a tensor cannot hold, or has the wrong number of bytes.
pub fn read(file: &Bytes) -> Result<Tensor, Problem> {
    let (header, order) = Header::read(file)?;
    let data = file.slice(header.start..);
    let bytes = header.bytes();
    if bytes != Some(data.len() as u64) {
        return Err(Problem::Length {
            shape: header.shape,
            expected: bytes.unwrap_or(u64::MAX),
            given: data.len() as u64,
        });
    }
    let data = match order {
        Order::Rows => data,
        Order::Columns => by_rows(&data, &header.shape, header.element.size()),
    };
    header.element.tensor(header.shape, &data)
}

/// Which elements are adjacent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Those of the last dimension (C).
    Rows,
    /// Those of the first dimension (Fortran): pandas and slices of transposed arrays are saved in this order.
    Columns,
}

/// Elements of `size` bytes in column order, put into row order; their number is that of the shape.
fn by_rows(data: &[u8], shape: &[usize], size: usize) -> Bytes {
    let mut bytes = BytesMut::with_capacity(data.len());
    let mut strides = Vec::with_capacity(shape.len());
    let mut stride = size;
    for dim in shape {
        strides.push(stride);
        stride *= dim;
    }
    let mut position = vec![0; shape.len()];
    let mut at = 0;
    while bytes.len() < data.len() {
        bytes.extend_from_slice(&data[at..at + size]);
        for axis in (0..shape.len()).rev() {
            position[axis] += 1;
            at += strides[axis];
            if position[axis] < shape[axis] {
                break;
            }
            at -= strides[axis] * shape[axis];
            position[axis] = 0;
        }
    }
    bytes.freeze()
}

impl Header {
    /// Reads the beginning of a file, [`BEGINNING_BYTES`] or all of it.
    ///
    /// # Errors
    /// If it is not an array, is one that a tensor cannot hold, or is one whose records are not contiguous.
    pub fn parse(file: &[u8]) -> Result<Self, Problem> {
        match Self::read(file)? {
            (header, Order::Rows) => Ok(header),
            (_, Order::Columns) => Err(Problem::FortranOrder),
        }
    }

    /// The same for an array whose elements are in any order.
    ///
    /// # Errors
    /// If it is not an array, or is one that a tensor cannot hold.
    pub fn of_any_order(file: &[u8]) -> Result<Self, Problem> {
        Ok(Self::read(file)?.0)
    }

    fn read(file: &[u8]) -> Result<(Self, Order), Problem> {
        let (text, start) = text(file)?;
        let fields = Scanner::new(text).fields()?;
        let element = Element::parse(fields.descr)?;
        // With one dimension both orders are the same.
        let order = match fields.fortran_order && fields.shape.len() > 1 {
            true => Order::Columns,
            false => Order::Rows,
        };
        let header = Self {
            element,
            shape: fields.shape,
            start,
        };
        Ok((header, order))
    }

    /// Bytes of all elements; `None` if that overflows.
    pub fn bytes(&self) -> Option<u64> {
        product(&self.shape, self.element.size())
    }

    /// Bytes of one element of the first dimension; `None` if these or all bytes overflow.
    pub fn row_bytes(&self) -> Option<u64> {
        self.bytes()?;
        product(self.shape.get(1..).unwrap_or_default(), self.element.size())
    }

    /// The header of an array with these dimensions; `None` where NumPy has no such type.
    pub fn write(data_type: DataType, shape: &[u64]) -> Option<Vec<u8>> {
        Self::compose(element::descr(data_type)?, shape)
    }

    /// The header of an array of texts of `bytes` bytes each, padded with zeros; `None` if it is too long.
    pub fn write_text(bytes: usize, shape: &[u64]) -> Option<Vec<u8>> {
        Self::compose(&format!("|S{bytes}"), shape)
    }

    /// The header of an array of texts of up to `points` code points, as UTF-32; `None` if it is too long.
    pub fn write_unicode(points: usize, shape: &[u64]) -> Option<Vec<u8>> {
        Self::compose(&format!("<U{points}"), shape)
    }

    fn compose(descr: &str, shape: &[u64]) -> Option<Vec<u8>> {
        let dims: String = shape.iter().map(|dim| format!("{dim}, ")).collect();
        let dims = if shape.len() == 1 {
            dims.trim_end()
        } else {
            dims.trim_end_matches(", ")
        };
        let mut text =
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({dims}), }}");
        let start = (MAGIC.len() + 4 + text.len() + 1).next_multiple_of(ALIGNMENT);
        let length = u16::try_from(start - MAGIC.len() - 4).ok()?;
        while text.len() + 1 < usize::from(length) {
            text.push(' ');
        }
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&[1, 0]);
        header.extend_from_slice(&length.to_le_bytes());
        header.extend_from_slice(text.as_bytes());
        header.push(b'\n');
        Some(header)
    }
}

fn product(shape: &[usize], size: usize) -> Option<u64> {
    let mut dims = shape.iter();
    dims.try_fold(size as u64, |product, dim| product.checked_mul(*dim as u64))
}

/// The header's text, and where the elements begin.
fn text(file: &[u8]) -> Result<(&str, usize), Problem> {
    let rest = file.strip_prefix(MAGIC).ok_or(Problem::NotNumpy)?;
    let (length, rest) = match rest {
        [1, 0, a, b, rest @ ..] => (u32::from(u16::from_le_bytes([*a, *b])), rest),
        [2 | 3, 0, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]), rest),
        [1..=3, 0, ..] | [] | [_] => return Err(Problem::CutShort),
        [major, minor, ..] => return Err(Problem::Version(*major, *minor)),
    };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > MAX_HEADER_BYTES {
        return Err(Problem::HeaderTooLong);
    }
    let text = rest.get(..length).ok_or(Problem::CutShort)?;
    let start = file.len() - rest.len() + length;
    let text = std::str::from_utf8(text).map_err(|_| Problem::Header("it is not text".into()))?;
    Ok((text, start))
}

#[cfg(test)]
mod tests;
