//! The binary tensor extension: little-endian elements behind the JSON part of a body.
//!
//! `BYTES` elements are a 32-bit length and that many bytes each; `BOOL` is one byte.

use bytes::{Buf, Bytes};
use sextant_types::{Data, DataType, InvalidTensor, Tensor};

/// Why a binary part is not the announced tensor.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// A length prefix points behind the end.
    #[error("string {0} is cut short in the binary data")]
    Cut(usize),
    /// A boolean that is neither 0 nor 1.
    #[error("element {0} of the binary data is not a boolean: use 0 or 1")]
    Bool(usize),
    /// The number of elements is wrong.
    #[error(transparent)]
    Tensor(#[from] InvalidTensor),
}

/// Reads one tensor; plain elements are shared with `bytes`, not copied.
pub fn parse(data_type: DataType, shape: Vec<usize>, bytes: Bytes) -> Result<Tensor, Error> {
    match data_type {
        DataType::Bytes => Ok(Tensor::from_strings(shape, strings(bytes)?)?),
        DataType::Bool => match bytes.iter().position(|byte| *byte > 1) {
            Some(index) => Err(Error::Bool(index)),
            None => Ok(Tensor::from_bytes(data_type, shape, bytes)?),
        },
        _ => Ok(Tensor::from_bytes(data_type, shape, bytes)?),
    }
}

/// Bytes that [`append`] will add.
pub fn size(tensor: &Tensor) -> usize {
    match tensor.data() {
        Data::Plain(bytes) => bytes.len(),
        Data::Strings(strings) => strings.iter().map(|text| 4 + text.len()).sum(),
    }
}

/// What [`append`] appends; plain elements are shared, not copied.
pub fn bytes(tensor: &Tensor) -> Bytes {
    match tensor.data() {
        Data::Plain(bytes) => bytes.clone(),
        Data::Strings(_) => {
            let mut out = Vec::with_capacity(size(tensor));
            append(&mut out, tensor);
            out.into()
        }
    }
}

/// Appends the elements.
pub fn append(out: &mut Vec<u8>, tensor: &Tensor) {
    match tensor.data() {
        Data::Plain(bytes) => out.extend_from_slice(bytes),
        Data::Strings(strings) => strings.iter().for_each(|text| {
            // Strings come from bodies and engines; none reaches 4 GiB.
            let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(text);
        }),
    }
}

fn strings(mut bytes: Bytes) -> Result<Vec<Bytes>, Error> {
    let mut strings = Vec::new();
    while bytes.has_remaining() {
        let cut = Error::Cut(strings.len());
        if bytes.remaining() < 4 {
            return Err(cut);
        }
        let length = bytes.get_u32_le() as usize;
        if bytes.remaining() < length {
            return Err(cut);
        }
        strings.push(bytes.split_to(length));
    }
    Ok(strings)
}
