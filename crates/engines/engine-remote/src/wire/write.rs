//! Writes requests.

use std::fmt::Display;

use half::{bf16, f16};
use sextant_engine::Error;
use sextant_types::{Data, DataType, NamedTensor, Tensor, TensorSpec};

use crate::client::Payload;

/// A request that is all JSON.
///
/// # Errors
/// [`Error::InvalidInput`] for a value that JSON has no form for.
pub(crate) fn json(inputs: &[NamedTensor], outputs: &[TensorSpec]) -> Result<Payload, Error> {
    let mut body = Vec::with_capacity(256);
    body.extend_from_slice(b"{\"inputs\":[");
    for (index, input) in inputs.iter().enumerate() {
        comma(&mut body, index);
        head(&mut body, input);
        body.extend_from_slice(b",\"data\":[");
        elements(&mut body, &input.tensor)
            .map_err(|reason| Error::InvalidInput(format!("input `{}`: {reason}", input.name)))?;
        body.extend_from_slice(b"]}");
    }
    wanted(&mut body, outputs, false);
    Ok(Payload {
        body,
        json_bytes: None,
    })
}

/// A request with all tensors after the JSON, which asks for an answer of the same form.
pub(crate) fn binary(inputs: &[NamedTensor], outputs: &[TensorSpec]) -> Payload {
    let bytes: usize = inputs.iter().map(|input| size(&input.tensor)).sum();
    let mut body = Vec::with_capacity(bytes + 128 * (inputs.len() + outputs.len() + 1));
    body.extend_from_slice(b"{\"inputs\":[");
    for (index, input) in inputs.iter().enumerate() {
        comma(&mut body, index);
        head(&mut body, input);
        body.extend_from_slice(b",\"parameters\":{\"binary_data_size\":");
        number(&mut body, size(&input.tensor));
        body.extend_from_slice(b"}}");
    }
    wanted(&mut body, outputs, true);
    let json_bytes = Some(body.len());
    inputs
        .iter()
        .for_each(|input| append(&mut body, &input.tensor));
    Payload { body, json_bytes }
}

/// Bytes of a tensor on the wire; strings come with four bytes of length each.
fn size(tensor: &Tensor) -> usize {
    match tensor.data() {
        Data::Plain(bytes) => bytes.len(),
        Data::Strings(texts) => 4 * texts.len() + texts.bytes().len(),
    }
}

fn append(body: &mut Vec<u8>, tensor: &Tensor) {
    match tensor.data() {
        Data::Plain(bytes) => body.extend_from_slice(bytes),
        Data::Strings(strings) => {
            for string in strings.iter() {
                // A string of 4 GiB is beyond every limit on bodies.
                let length = u32::try_from(string.len()).unwrap_or(u32::MAX);
                body.extend_from_slice(&length.to_le_bytes());
                body.extend_from_slice(string);
            }
        }
    }
}

fn head(body: &mut Vec<u8>, input: &NamedTensor) {
    body.extend_from_slice(b"{\"name\":");
    string(body, &input.name);
    body.extend_from_slice(b",\"datatype\":\"");
    body.extend_from_slice(input.tensor.data_type().name().as_bytes());
    body.extend_from_slice(b"\",\"shape\":[");
    for (index, size) in input.tensor.shape().iter().enumerate() {
        comma(body, index);
        number(body, size);
    }
    body.push(b']');
}

fn wanted(body: &mut Vec<u8>, outputs: &[TensorSpec], binary: bool) {
    body.extend_from_slice(b"],\"outputs\":[");
    for (index, output) in outputs.iter().enumerate() {
        comma(body, index);
        body.extend_from_slice(b"{\"name\":");
        string(body, &output.name);
        if binary {
            body.extend_from_slice(b",\"parameters\":{\"binary_data\":true}");
        }
        body.push(b'}');
    }
    body.extend_from_slice(b"]}");
}

fn elements(body: &mut Vec<u8>, tensor: &Tensor) -> Result<(), &'static str> {
    let bytes = match tensor.data() {
        Data::Plain(bytes) => bytes,
        Data::Strings(strings) => {
            for (index, text) in strings.iter().enumerate() {
                comma(body, index);
                let text = std::str::from_utf8(text);
                string(body, text.map_err(|_| "a string is not UTF-8")?);
            }
            return Ok(());
        }
    };
    match tensor.data_type() {
        DataType::Bool => list(body, bytes, |it: [u8; 1]| Some(it[0] != 0)),
        DataType::Uint8 => list(body, bytes, |it| Some(u8::from_le_bytes(it))),
        DataType::Uint16 => list(body, bytes, |it| Some(u16::from_le_bytes(it))),
        DataType::Uint32 => list(body, bytes, |it| Some(u32::from_le_bytes(it))),
        DataType::Uint64 => list(body, bytes, |it| Some(u64::from_le_bytes(it))),
        DataType::Int8 => list(body, bytes, |it| Some(i8::from_le_bytes(it))),
        DataType::Int16 => list(body, bytes, |it| Some(i16::from_le_bytes(it))),
        DataType::Int32 => list(body, bytes, |it| Some(i32::from_le_bytes(it))),
        DataType::Int64 => list(body, bytes, |it| Some(i64::from_le_bytes(it))),
        DataType::Fp16 => list(body, bytes, |it| finite(f16::from_le_bytes(it).to_f32())),
        DataType::Bf16 => list(body, bytes, |it| finite(bf16::from_le_bytes(it).to_f32())),
        DataType::Fp32 => list(body, bytes, |it| finite(f32::from_le_bytes(it))),
        DataType::Fp64 => list(body, bytes, |it: [u8; 8]| {
            let value = f64::from_le_bytes(it);
            value.is_finite().then_some(value)
        }),
        DataType::Bytes => Err("strings are given as bytes"),
    }
}

fn finite(value: f32) -> Option<f32> {
    value.is_finite().then_some(value)
}

fn list<const N: usize, T: Display>(
    body: &mut Vec<u8>,
    bytes: &[u8],
    read: impl Fn([u8; N]) -> Option<T>,
) -> Result<(), &'static str> {
    let (chunks, _) = bytes.as_chunks::<N>();
    for (index, chunk) in chunks.iter().enumerate() {
        comma(body, index);
        number(body, read(*chunk).ok_or("a number is not finite")?);
    }
    Ok(())
}

fn comma(body: &mut Vec<u8>, index: usize) {
    if index > 0 {
        body.push(b',');
    }
}

/// Rust writes the shortest decimal number that reads back to the same value.
fn number(body: &mut Vec<u8>, value: impl Display) {
    use std::io::Write;
    // Writing to memory does not fail.
    write!(body, "{value}").ok();
}

fn string(body: &mut Vec<u8>, text: &str) {
    // This does not fail, either.
    serde_json::to_writer(body, text).ok();
}
