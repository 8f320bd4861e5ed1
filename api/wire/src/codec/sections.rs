//! Bodies with two sections: JSON, and then the tensors whose elements are not in the JSON. The header
//! `inference-header-content-length` says where the first section ends, as in the Open Inference Protocol.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, header},
    response::Response,
};
use bytes::Bytes;
use sextant_types::{Code, NamedTensor};

use super::{Part, Reader, TensorBody, binary, short};
use crate::{extract::digits, problem::Problem, room::Reservation};

/// Length of the JSON part of a body, in bytes; tensors follow.
pub const HEADER_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");

/// The JSON part of a body and the binary part behind it.
pub fn split(headers: &HeaderMap, body: &Bytes) -> Result<(Bytes, Bytes), Problem> {
    let Some(value) = headers.get(HEADER_LENGTH) else {
        return Ok((body.clone(), Bytes::new()));
    };
    let length = value
        .to_str()
        .ok()
        .and_then(digits)
        .and_then(|length| usize::try_from(length).ok());
    match length {
        Some(length) if length > 0 && length <= body.len() => {
            Ok((body.slice(..length), body.slice(length..)))
        }
        _ => {
            let detail = format!(
                "`{HEADER_LENGTH}` must be the length of the JSON part, 1 to `{}` bytes",
                body.len()
            );
            Err(Problem::new(Code::InvalidRequest, detail).field(HEADER_LENGTH.as_str()))
        }
    }
}

/// Refuses shared memory, which only the Open Inference Protocol has.
pub fn no_regions(_: &mut Reservation, _: &Part) -> Result<Bytes, Problem> {
    let detail = "tensors in shared memory are taken under `/v2` alone";
    Err(Problem::new(Code::InvalidRegion, detail))
}

/// The inputs, each from JSON, from the next piece of the binary part, or from shared memory, which `regions` reads.
pub fn inputs(
    bodies: Vec<TensorBody<'_>>,
    mut tail: Bytes,
    reader: &mut Reader<'_>,
    regions: impl Fn(&mut Reservation, &Part) -> Result<Bytes, Problem>,
) -> Result<Vec<NamedTensor>, Problem> {
    let mut inputs = Vec::with_capacity(bodies.len());
    for (index, body) in bodies.into_iter().enumerate() {
        let part = body.parameters.part()?;
        let size = match (&part, body.parameters.binary_data_size) {
            (Some(_), _) => 0,
            (None, Some(size)) => size,
            (None, None) => {
                inputs.push(body.into_tensor(index, reader)?);
                continue;
            }
        };
        let refuse = |reason: String| {
            let detail = format!("input `{}`: {reason}", short(&body.name));
            Problem::new(Code::InvalidTensor, detail).field(format!("inputs[{index}]"))
        };
        if size > tail.len() {
            let left = tail.len();
            return Err(refuse(format!(
                "it needs `{size}` binary bytes, `{left}` are left"
            )));
        }
        let data_type = body.data_type(index)?;
        reader.check(&body.name, data_type)?;
        let bytes = match &part {
            Some(part) => regions(reader.taken, part)?,
            None => tail.split_to(size),
        };
        let most = binary::most_bytes(data_type, bytes.len());
        reader.taken.grow(most)?;
        let tensor = binary::parse(data_type, body.shape, bytes)
            .map_err(|error| refuse(error.to_string()))?;
        inputs.push(NamedTensor::new(body.name, tensor));
    }
    if tail.is_empty() {
        return Ok(inputs);
    }
    let detail = format!("`{}` binary bytes belong to no input", tail.len());
    Err(Problem::new(Code::InvalidTensor, detail))
}

/// A 200 with both sections; `json_bytes` is the length of the first.
pub fn response(json_bytes: usize, body: Bytes) -> Response {
    let length = HeaderValue::from(json_bytes);
    let mut response = Response::new(Body::from(body));
    let octets = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, octets);
    response.headers_mut().insert(HEADER_LENGTH, length);
    response
}
