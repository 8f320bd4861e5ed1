//! A body that is the only input of a model and has no JSON: `inference-header-content-length` is then 0.

use axum::http::HeaderMap;
use bytes::Bytes;
use sextant_types::{Code, DataType, NamedTensor, Signature, Tensor, TensorSpec, Texts};

use super::{ask::Question, demands::Demands, selection::Selection};
use crate::{
    codec::{binary, sections::HEADER_LENGTH, short},
    problem::Problem,
};

/// Whether a body has no JSON part.
pub fn is_raw(headers: &HeaderMap) -> bool {
    headers
        .get(HEADER_LENGTH)
        .is_some_and(|length| length == "0")
}

/// The question: one row of the only input, answered in binary.
pub fn question(signature: &Signature, body: Bytes) -> Result<Question, Problem> {
    let [spec] = &signature.inputs[..] else {
        let count = signature.inputs.len();
        let detail = format!(
            "a body without a JSON part is the only input of a model, and this one has `{count}` inputs: send \
             the length of a JSON part in `{HEADER_LENGTH}`"
        );
        return Err(Problem::new(Code::InvalidTensor, detail).field("inputs"));
    };
    let tensor = tensor(spec, signature.batched, body).map_err(|reason| {
        let detail = format!("input `{}`: {reason}", short(&spec.name));
        Problem::new(Code::InvalidTensor, detail).field("inputs[0]")
    })?;
    Ok(Question {
        demands: Demands::default(),
        inputs: vec![NamedTensor::new(spec.name.clone(), tensor)],
        selection: Selection {
            wanted: Vec::new(),
            binary: true,
        },
    })
}

fn tensor(spec: &TensorSpec, batched: bool, body: Bytes) -> Result<Tensor, String> {
    let length = match spec.data_type.size() {
        None => 1,
        Some(size) if body.len().is_multiple_of(size) => body.len() / size,
        Some(size) => {
            let bytes = body.len();
            return Err(format!(
                "`{bytes}` bytes are no elements of `{size}` bytes each"
            ));
        }
    };
    let shape = shape(spec, batched, length)?;
    match spec.data_type {
        DataType::Bytes => Texts::one(body)
            .and_then(|text| Tensor::from_texts(shape, text))
            .map_err(|it| it.to_string()),
        data_type => binary::parse(data_type, shape, body).map_err(|it| it.to_string()),
    }
}

/// The shape of one row of `length` elements; one size may be open, and follows from their number.
fn shape(spec: &TensorSpec, batched: bool, length: usize) -> Result<Vec<usize>, String> {
    let size = |(index, size): (usize, &Option<u64>)| match size {
        _ if batched && index == 0 => Some(1),
        size => size.and_then(|size| usize::try_from(size).ok()),
    };
    let sizes: Vec<Option<usize>> = spec.shape.iter().enumerate().map(size).collect();
    let open = sizes.iter().filter(|size| size.is_none()).count();
    if open > 1 {
        return Err(format!(
            "`{open}` of its sizes are open, and a body without a JSON part tells only one"
        ));
    }
    let known = sizes.iter().flatten();
    let known = known.fold(1usize, |all, size| all.saturating_mul(*size));
    let rest = length.checked_div(known).unwrap_or(0);
    Ok(sizes.into_iter().map(|size| size.unwrap_or(rest)).collect())
}
