//! The binary tensor extension: little-endian elements behind the JSON part of a body.
//!
//! `BYTES` elements are a 32-bit length and that many bytes each; `BOOL` is one byte.

use bytes::Bytes;
use sextant_types::{Data, DataType, InvalidTensor, Tensor, Texts, TextsBuilder};

/// Bytes of the length before a string.
const LENGTH_BYTES: usize = 4;

/// Why a binary part is not the announced tensor.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// A length prefix points beyond the end.
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
        DataType::Bytes => Ok(Tensor::from_texts(shape, strings(&bytes)?)?),
        DataType::Bool => match bytes.iter().position(|byte| *byte > 1) {
            Some(index) => Err(Error::Bool(index)),
            None => Ok(Tensor::from_bytes(data_type, shape, bytes)?),
        },
        _ => Ok(Tensor::from_bytes(data_type, shape, bytes)?),
    }
}

/// Bytes of memory that [`parse`] allocates for `bytes` bytes: strings are copied, each with an entry instead of a
/// length.
pub fn most_bytes(data_type: DataType, bytes: usize) -> usize {
    match data_type {
        DataType::Bytes => bytes + Texts::ELEMENT_BYTES,
        _ => 0,
    }
}

/// Bytes that [`append`] will add.
pub fn size(tensor: &Tensor) -> usize {
    match tensor.data() {
        Data::Plain(bytes) => bytes.len(),
        Data::Strings(texts) => LENGTH_BYTES * texts.len() + texts.bytes().len(),
    }
}

/// The bytes that [`append`] appends; plain elements are shared, not copied.
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

fn strings(bytes: &[u8]) -> Result<Texts, Error> {
    let mut count = 0;
    let mut rest = bytes;
    while let Some((_, after)) = split(rest) {
        count += 1;
        rest = after;
    }
    if !rest.is_empty() {
        return Err(Error::Cut(count));
    }
    let mut texts = TextsBuilder::with_capacity(count, bytes.len() - LENGTH_BYTES * count);
    let mut rest = bytes;
    while let Some((text, after)) = split(rest) {
        texts.push(text)?;
        rest = after;
    }
    Ok(texts.finish())
}

/// The first string, and what follows it.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}
