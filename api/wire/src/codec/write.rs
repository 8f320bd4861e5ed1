//! Appending JSON to a byte vector.

use half::{bf16, f16};
use sextant_types::{Data, DataType, NamedTensor, Tensor, convert::special_text};

/// Appends `{"name":..,"shape":[..],"datatype":"..","data":[..]}`, the data flat.
pub fn tensor(out: &mut Vec<u8>, named: &NamedTensor) {
    out.reserve(64 + named.name.len() + most_bytes(&named.tensor));
    head(out, named);
    out.extend_from_slice(b",\"data\":");
    data(out, &named.tensor);
    out.push(b'}');
}

/// Bytes of the written elements of a tensor: exact for strings without escapes, a usual value for floats.
pub fn most_bytes(tensor: &Tensor) -> usize {
    match tensor.texts() {
        Some(texts) => texts.bytes().len() + 3 * texts.len(),
        None => most_bytes_of(tensor.data_type(), tensor.len()),
    }
}

/// The same for `count` numbers.
pub fn most_bytes_of(data_type: DataType, count: usize) -> usize {
    let one = match data_type {
        DataType::Uint8 => 4,
        DataType::Int8 => 5,
        DataType::Bool | DataType::Uint16 => 6,
        DataType::Int16 => 7,
        DataType::Uint32 | DataType::Int32 | DataType::Fp16 | DataType::Bf16 | DataType::Fp32 => 12,
        DataType::Uint64 | DataType::Int64 | DataType::Fp64 => 21,
        DataType::Bytes => 3,
    };
    one * count
}

/// Appends the same, with the data in the binary part: `parameters.binary_data_size`.
pub fn binary_tensor(out: &mut Vec<u8>, named: &NamedTensor, size: usize) {
    head(out, named);
    out.extend_from_slice(b",\"parameters\":{\"binary_data_size\":");
    integer(out, size);
    out.extend_from_slice(b"}}");
}

/// Appends the same, with the data in a region of shared memory: the region's name, the offset of the data, and its
/// bytes.
pub fn elsewhere(out: &mut Vec<u8>, named: &NamedTensor, (region, at, size): (&str, u64, u64)) {
    head(out, named);
    out.extend_from_slice(b",\"parameters\":{\"shared_memory_region\":");
    string(out, region);
    out.extend_from_slice(b",\"shared_memory_offset\":");
    integer(out, at);
    out.extend_from_slice(b",\"shared_memory_byte_size\":");
    integer(out, size);
    out.extend_from_slice(b"}}");
}

/// Appends a string with quotes and escapes.
pub fn string(out: &mut Vec<u8>, text: &str) {
    let plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
    if text.bytes().all(plain) {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
        return;
    }
    // Writing a string into a vector cannot fail.
    let escaped = serde_json::to_string(text).unwrap_or_else(|_| "\"\"".to_owned());
    out.extend_from_slice(escaped.as_bytes());
}

/// Appends an integer.
pub fn integer(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends a number, or `null` when JSON has no notation for it.
pub fn float(out: &mut Vec<u8>, value: impl Float) {
    if value.finite() {
        out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes());
    } else {
        out.extend_from_slice(b"null");
    }
}

/// Appends an element of a tensor: a missing value is `null`, infinities are `"Infinity"` and `"-Infinity"`.
fn element(out: &mut Vec<u8>, value: impl Float + Into<f64>) {
    match value.finite() {
        true => float(out, value),
        false => out.extend_from_slice(special_text(value.into()).as_bytes()),
    }
}

/// Appends a measured time in microseconds, rounded to tenths.
pub fn microseconds(out: &mut Vec<u8>, value: f64) {
    float(out, (value * 10.0).round() / 10.0);
}

/// `f32` or `f64`.
pub trait Float: zmij::Float + Copy {
    /// Neither NaN nor infinite.
    fn finite(self) -> bool;
}

impl Float for f32 {
    fn finite(self) -> bool {
        self.is_finite()
    }
}

impl Float for f64 {
    fn finite(self) -> bool {
        self.is_finite()
    }
}

fn head(out: &mut Vec<u8>, named: &NamedTensor) {
    out.extend_from_slice(b"{\"name\":");
    string(out, &named.name);
    out.extend_from_slice(b",\"shape\":");
    list(out, named.tensor.shape(), |out, dim| integer(out, *dim));
    out.extend_from_slice(b",\"datatype\":\"");
    out.extend_from_slice(named.tensor.data_type().name().as_bytes());
    out.push(b'"');
}

fn data(out: &mut Vec<u8>, tensor: &Tensor) {
    let bytes = match tensor.data() {
        Data::Plain(bytes) => bytes,
        Data::Strings(strings) => {
            return list(out, strings.iter(), |out, text| {
                string(out, &String::from_utf8_lossy(text));
            });
        }
    };
    match tensor.data_type() {
        DataType::Bool => list(out, bytes, |out, value| {
            out.extend_from_slice(if *value == 0 { b"false" } else { b"true" });
        }),
        DataType::Uint8 => list(out, bytes, |out, value| integer(out, *value)),
        DataType::Int8 => list(out, bytes, |out, value| integer(out, value.cast_signed())),
        DataType::Uint16 => each(out, bytes, |out, le| integer(out, u16::from_le_bytes(le))),
        DataType::Int16 => each(out, bytes, |out, le| integer(out, i16::from_le_bytes(le))),
        DataType::Uint32 => each(out, bytes, |out, le| integer(out, u32::from_le_bytes(le))),
        DataType::Int32 => each(out, bytes, |out, le| integer(out, i32::from_le_bytes(le))),
        DataType::Uint64 => each(out, bytes, |out, le| integer(out, u64::from_le_bytes(le))),
        DataType::Int64 => each(out, bytes, |out, le| integer(out, i64::from_le_bytes(le))),
        DataType::Fp16 => each(out, bytes, |out, le| {
            element(out, f16::from_le_bytes(le).to_f32());
        }),
        DataType::Bf16 => each(out, bytes, |out, le| {
            element(out, bf16::from_le_bytes(le).to_f32());
        }),
        DataType::Fp32 => each(out, bytes, |out, le| element(out, f32::from_le_bytes(le))),
        DataType::Fp64 => each(out, bytes, |out, le| element(out, f64::from_le_bytes(le))),
        DataType::Bytes => out.extend_from_slice(b"[]"),
    }
}

/// A list of elements of `N` bytes each.
fn each<const N: usize>(out: &mut Vec<u8>, bytes: &[u8], write: impl Fn(&mut Vec<u8>, [u8; N])) {
    let (elements, _) = bytes.as_chunks::<N>();
    list(out, elements, |out, element| write(out, *element));
}

/// `[a,b,..]`.
pub fn list<T>(
    out: &mut Vec<u8>,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut Vec<u8>, T),
) {
    out.push(b'[');
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(out, item);
    }
    out.push(b']');
}

#[cfg(test)]
mod tests;
