//! Reading the elements of a tensor from JSON text.
//!
//! The text is a complete JSON value (serde has checked it), so a scan for brackets and separators is enough. The scan
//! keeps a counter for each depth and never recurses: the rank bounds the depth.

use std::borrow::Cow;

use bytes::Bytes;
use half::{bf16, f16};
use sextant_types::{DataType, InvalidTensor, Tensor, Texts, TextsBuilder, convert::special};

/// Why a `data` member is not the tensor that `shape` and `datatype` announce.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// An element is not a value of the type.
    #[error("element {index} is `{token}`, not a value of type {data_type}")]
    Element {
        /// Row-major index.
        index: usize,
        /// The element, shortened.
        token: String,
        /// The declared type.
        data_type: DataType,
    },
    /// The nesting contradicts the shape.
    #[error(
        "the nesting of `data` does not match shape {shape:?}: send it flat or nested as the shape"
    )]
    Nesting {
        /// The declared shape.
        shape: Vec<usize>,
    },
    /// The number of elements is wrong.
    #[error(transparent)]
    Tensor(#[from] InvalidTensor),
}

/// Reads `text`, one JSON value, as a tensor.
pub fn parse(data_type: DataType, shape: Vec<usize>, text: &str) -> Result<Tensor, Error> {
    match data_type {
        DataType::Bool => plain::<bool>(data_type, shape, text),
        DataType::Uint8 => plain::<u8>(data_type, shape, text),
        DataType::Uint16 => plain::<u16>(data_type, shape, text),
        DataType::Uint32 => plain::<u32>(data_type, shape, text),
        DataType::Uint64 => plain::<u64>(data_type, shape, text),
        DataType::Int8 => plain::<i8>(data_type, shape, text),
        DataType::Int16 => plain::<i16>(data_type, shape, text),
        DataType::Int32 => plain::<i32>(data_type, shape, text),
        DataType::Int64 => plain::<i64>(data_type, shape, text),
        DataType::Fp16 => plain::<f16>(data_type, shape, text),
        DataType::Bf16 => plain::<bf16>(data_type, shape, text),
        DataType::Fp32 => plain::<f32>(data_type, shape, text),
        DataType::Fp64 => plain::<f64>(data_type, shape, text),
        DataType::Bytes => strings(shape, text),
    }
}

/// Most bytes that [`parse`] allocates for `text`. An element takes at least one character and a comma, a string two
/// and a comma, so a shape reserves no more memory than the body justifies.
pub fn most_bytes(data_type: DataType, shape: &[usize], text: &str) -> usize {
    match data_type.size() {
        Some(size) => plain_room(shape, text) * size,
        None => {
            let (count, bytes) = strings_room(shape, text);
            bytes + (count + 1) * Texts::ELEMENT_BYTES
        }
    }
}

/// Most elements that are kept.
fn plain_room(shape: &[usize], text: &str) -> usize {
    expected(shape).min(text.len() / 2 + 1)
}

/// Most strings that are kept, and most bytes of all of them.
fn strings_room(shape: &[usize], text: &str) -> (usize, usize) {
    let count = expected(shape).min(text.len() / 3 + 1);
    (count, (text.len() + 1).saturating_sub(3 * count))
}

/// One element of a plain tensor.
trait Parse: Sized {
    /// Appends the little-endian bytes of `token`; `None` if `token` is not a value of this type.
    fn append(token: &str, out: &mut Vec<u8>) -> Option<()>;

    /// Appends the bytes of a value that is not a number: a missing value or an infinity.
    fn append_special(_token: &str, _out: &mut Vec<u8>) -> Option<()> {
        None
    }

    /// Appends the bytes of the short number at the beginning of `json`, and returns its length; `None` if `json`
    /// begins with anything else.
    fn append_short(_json: &[u8], _out: &mut Vec<u8>) -> Option<usize> {
        None
    }
}

macro_rules! integers {
    ($($type:ty),*) => {
        $(impl Parse for $type {
            fn append(token: &str, out: &mut Vec<u8>) -> Option<()> {
                let value: $type = token.parse().ok()?;
                out.extend_from_slice(&value.to_le_bytes());
                Some(())
            }

            fn append_short(json: &[u8], out: &mut Vec<u8>) -> Option<usize> {
                let (value, length) = decimal::integer(json)?;
                let value = <$type>::try_from(value).ok()?;
                out.extend_from_slice(&value.to_le_bytes());
                Some(length)
            }
        })*
    };
}

integers!(u8, u16, u32, u64, i8, i16, i32, i64);

macro_rules! floats {
    ($($type:ty, $token:ident => $value:expr, $short:ident => $of_short:expr, $special:expr;)*) => {
        $(impl Parse for $type {
            fn append($token: &str, out: &mut Vec<u8>) -> Option<()> {
                let value: $type = $value;
                // The number is too large for the type: the client has not written an infinity.
                value.is_finite().then(|| out.extend_from_slice(&value.to_le_bytes()))
            }

            fn append_special(token: &str, out: &mut Vec<u8>) -> Option<()> {
                let $short = special(token)?;
                let value: $type = $special;
                out.extend_from_slice(&value.to_le_bytes());
                Some(())
            }

            fn append_short(json: &[u8], out: &mut Vec<u8>) -> Option<usize> {
                let ($short, length) = decimal::number(json)?;
                let value: $type = $of_short?;
                value.is_finite().then(|| out.extend_from_slice(&value.to_le_bytes()))?;
                Some(length)
            }
        })*
    };
}

floats! {
    f16, token => f16::from_f64(token.parse().ok()?), short => Some(f16::from_f64(short)), f16::from_f64(short);
    bf16, token => bf16::from_f64(token.parse().ok()?), short => Some(bf16::from_f64(short)), bf16::from_f64(short);
    f32, token => token.parse().ok()?, short => decimal::narrow(short), short as f32;
    f64, token => token.parse().ok()?, short => Some(short), short;
}

impl Parse for bool {
    fn append(token: &str, out: &mut Vec<u8>) -> Option<()> {
        let value = match token {
            "true" | "1" => 1,
            "false" | "0" => 0,
            _ => return None,
        };
        out.push(value);
        Some(())
    }
}

fn plain<T: Parse>(data_type: DataType, shape: Vec<usize>, text: &str) -> Result<Tensor, Error> {
    let size = data_type.size().unwrap_or(1);
    let expected = expected(&shape);
    let mut out = Vec::with_capacity(plain_room(&shape, text) * size);
    let json = text.as_bytes();
    let given = scan(&shape, text, |index, at| {
        if index >= expected {
            return Ok(token_end(json, at));
        }
        if let Some(length) = T::append_short(&json[at..], &mut out) {
            return Ok(at + length);
        }
        let end = token_end(json, at);
        let token = &text[at..end];
        // A quoted number is not a number, and neither is a word that Rust's parser accepts.
        let first = token.as_bytes()[0];
        let number = first == b'-' || first.is_ascii_digit() || data_type == DataType::Bool;
        let read = if number {
            T::append(token, &mut out)
        } else {
            T::append_special(token, &mut out)
        };
        read.ok_or_else(|| bad(index, token, data_type))?;
        Ok(end)
    })?;
    check_length(data_type, &shape, given)?;
    Ok(Tensor::from_bytes(data_type, shape, Bytes::from(out))?)
}

fn strings(shape: Vec<usize>, text: &str) -> Result<Tensor, Error> {
    let (count, bytes) = strings_room(&shape, text);
    let expected = expected(&shape);
    let mut out = TextsBuilder::with_capacity(count, bytes);
    let given = scan(&shape, text, |index, at| {
        let end = token_end(text.as_bytes(), at);
        if index >= expected {
            return Ok(end);
        }
        let token = &text[at..end];
        let value: Option<Cow<'_, str>> = unquoted(token);
        let value = value.ok_or_else(|| bad(index, token, DataType::Bytes))?;
        out.push(value.as_bytes())?;
        Ok(end)
    })?;
    check_length(DataType::Bytes, &shape, given)?;
    Ok(Tensor::from_texts(shape, out.finish())?)
}

/// The text of a valid JSON string; `None` for anything else.
fn unquoted(token: &str) -> Option<Cow<'_, str>> {
    let text = token.strip_prefix('"')?.strip_suffix('"')?;
    match memchr::memchr(b'\\', text.as_bytes()) {
        None => Some(Cow::Borrowed(text)),
        Some(_) => serde_json::from_str(token).ok().map(Cow::Owned),
    }
}

/// Elements beyond the shape are counted and not kept.
fn check_length(data_type: DataType, shape: &[usize], given: usize) -> Result<(), InvalidTensor> {
    let expected = expected(shape);
    if given <= expected {
        return Ok(());
    }
    Err(InvalidTensor::Length {
        shape: shape.to_vec(),
        data_type,
        expected,
        given,
    })
}

fn expected(shape: &[usize]) -> usize {
    shape
        .iter()
        .fold(1usize, |product, dim| product.saturating_mul(*dim))
}

fn bad(index: usize, token: &str, data_type: DataType) -> Error {
    Error::Element {
        index,
        token: super::short(token).into_owned(),
        data_type,
    }
}

/// Calls `element` with the index and the position of every scalar in order; `element` returns where the scalar ends.
/// Checks the nesting, and returns the number of scalars.
fn scan(
    shape: &[usize],
    text: &str,
    mut element: impl FnMut(usize, usize) -> Result<usize, Error>,
) -> Result<usize, Error> {
    let bytes = text.as_bytes();
    let nested = nested(shape, bytes);
    let mut nesting = Nesting::new(shape, &nested);
    let (mut at, mut index) = (0, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b' ' | b'\n' | b'\r' | b'\t' | b',' => at += 1,
            b'[' => {
                nesting.open()?;
                at += 1;
            }
            b']' => {
                nesting.close()?;
                at += 1;
            }
            _ => {
                nesting.element()?;
                at = element(index, at)?;
                index += 1;
            }
        }
    }
    Ok(index)
}

fn token_end(bytes: &[u8], start: usize) -> usize {
    if bytes[start] == b'"' {
        return string_end(bytes, start);
    }
    bytes[start..]
        .iter()
        .position(|byte| matches!(byte, b',' | b']' | b' ' | b'\n' | b'\r' | b'\t'))
        .map_or(bytes.len(), |length| start + length)
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(offset) = memchr::memchr2(b'"', b'\\', &bytes[at..]) {
        at += offset;
        if bytes[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    bytes.len()
}

/// Greatest depth of brackets around an element.
const DEEPEST: usize = 64;

/// The shape that the brackets follow. There may be more or fewer brackets for dimensions of size 1 than the shape has,
/// because clients forget those of a batch.
fn nested<'a>(shape: &'a [usize], bytes: &[u8]) -> Cow<'a, [usize]> {
    let depth = bytes
        .iter()
        .filter(|byte| !byte.is_ascii_whitespace())
        .take_while(|byte| **byte == b'[')
        .take(DEEPEST + 1)
        .count();
    let rank = shape.len();
    let ones = shape.iter().filter(|size| **size == 1).count();
    if depth > rank && depth <= DEEPEST && depth > 1 {
        let more = std::iter::repeat_n(1, depth - rank);
        return more.chain(shape.iter().copied()).collect();
    }
    if depth > 1 && depth < rank && rank - depth <= ones {
        let mut surplus = rank - depth;
        let is_kept = |size: &usize| {
            let is_left_out = *size == 1 && surplus > 0;
            surplus -= usize::from(is_left_out);
            !is_left_out
        };
        return shape.iter().copied().filter(is_kept).collect();
    }
    Cow::Borrowed(shape)
}

/// Checks that brackets are flat or follow the shape.
struct Nesting<'a> {
    /// The shape in the request.
    announced: &'a [usize],
    shape: &'a [usize],
    /// Members seen so far of the open array at each depth.
    counts: Vec<usize>,
    /// Depth of the elements, once one was seen.
    leaf: Option<usize>,
}

impl<'a> Nesting<'a> {
    fn new(announced: &'a [usize], shape: &'a [usize]) -> Self {
        let counts = Vec::with_capacity(shape.len().clamp(1, 16));
        Self {
            announced,
            shape,
            counts,
            leaf: None,
        }
    }

    fn open(&mut self) -> Result<(), Error> {
        if let Some(parent) = self.counts.last_mut() {
            *parent += 1;
        }
        self.counts.push(0);
        let depth = self.counts.len();
        let most = self.leaf.unwrap_or(self.shape.len().max(1));
        if depth > most { self.refuse() } else { Ok(()) }
    }

    fn element(&mut self) -> Result<(), Error> {
        let depth = self.counts.len();
        if self.leaf != Some(depth) {
            let fits = depth == 1 || depth == self.shape.len();
            if self.leaf.is_some() || !fits {
                return self.refuse();
            }
            self.leaf = Some(depth);
        }
        if let Some(count) = self.counts.last_mut() {
            *count += 1;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), Error> {
        let depth = self.counts.len();
        let count = self.counts.pop();
        // Flat data of the wrong length is reported by the tensor itself, with both numbers.
        let nested = self.leaf.is_some_and(|leaf| leaf > 1);
        let wanted = depth.checked_sub(1).and_then(|at| self.shape.get(at));
        if nested && count.as_ref() != wanted {
            return self.refuse();
        }
        Ok(())
    }

    fn refuse(&self) -> Result<(), Error> {
        Err(Error::Nesting {
            shape: self.announced.to_vec(),
        })
    }
}

mod decimal;

#[cfg(test)]
mod tests;
