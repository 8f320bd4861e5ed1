//! Reads answers, and trusts nothing in them.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use sextant_types::{DataType, Tensor, TensorSpec};

use super::elements;
use crate::{client::Reply, text::shorten};

#[derive(Deserialize)]
struct Response<'a> {
    #[serde(borrow)]
    outputs: Vec<Output<'a>>,
}

#[derive(Deserialize)]
struct Output<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    datatype: Cow<'a, str>,
    shape: Vec<usize>,
    #[serde(default)]
    parameters: Option<Parameters>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct Parameters {
    #[serde(default)]
    binary_data_size: Option<usize>,
}

/// The outputs in the signature's order, each with the promised name, type and shape, and with
/// `rows` rows if the model is batched.
///
/// # Errors
/// What is wrong with the answer.
pub(crate) fn outputs(
    reply: &Reply,
    specs: &[TensorSpec],
    rows: Option<usize>,
) -> Result<Vec<Tensor>, String> {
    let response: Response<'_> = serde_json::from_slice(&reply.json)
        .map_err(|error| format!("its answer cannot be read: {}", shorten(&error.to_string())))?;
    let mut tail = reply.tail.clone();
    let mut found: Vec<Option<Tensor>> = vec![None; specs.len()];
    for output in &response.outputs {
        let name = shorten(&output.name);
        let at = specs.iter().position(|spec| spec.name == output.name);
        let Some((spec, place)) = at.map(|at| (&specs[at], &mut found[at])) else {
            return Err(format!(
                "its answer has an output `{name}`, the model has not"
            ));
        };
        if place.is_some() {
            return Err(format!("its answer has output `{name}` twice"));
        }
        let tensor = output.check(spec, rows);
        let tensor = tensor.and_then(|data_type| output.tensor(data_type, &mut tail));
        *place = Some(tensor.map_err(|reason| format!("output `{name}` {reason}"))?);
    }
    if !tail.is_empty() {
        let left = tail.len();
        return Err(format!("`{left}` bytes of its answer belong to no output"));
    }
    let missing = |spec: &TensorSpec| format!("its answer has no output `{}`", spec.name);
    let in_order = found.into_iter().zip(specs);
    in_order
        .map(|(tensor, spec)| tensor.ok_or_else(|| missing(spec)))
        .collect()
}

// === impl Output ===

impl Output<'_> {
    fn check(&self, spec: &TensorSpec, rows: Option<usize>) -> Result<DataType, String> {
        let wanted = spec.data_type;
        if self.datatype != wanted.name() {
            let given = shorten(&self.datatype);
            return Err(format!("is of type `{given}`, not {wanted}"));
        }
        let text = |shape: &[usize]| shorten(&format!("{shape:?}"));
        if !spec.accepts(&self.shape) {
            let (given, wanted) = (text(&self.shape), spec.shape_text());
            return Err(format!("has shape {given}, not {wanted}"));
        }
        match rows {
            Some(rows) if self.shape.first() != Some(&rows) => {
                let given = text(&self.shape);
                Err(format!("has shape {given}, the batch has {rows} rows"))
            }
            _ => Ok(wanted),
        }
    }

    fn tensor(&self, data_type: DataType, tail: &mut Bytes) -> Result<Tensor, String> {
        let count = self
            .shape
            .iter()
            .try_fold(1usize, |all, size| all.checked_mul(*size));
        let count = count.ok_or("is too large")?;
        let shape = self.shape.clone();
        let size = self.parameters.as_ref().and_then(|it| it.binary_data_size);
        let tensor = match (size, self.data) {
            (Some(size), _) if size <= tail.len() => {
                let bytes = tail.split_to(size);
                match data_type {
                    DataType::Bytes => Tensor::from_texts(shape, elements::strings(&bytes, count)?),
                    DataType::Bool if bytes.iter().any(|byte| *byte > 1) => {
                        return Err("has booleans that are neither 0 nor 1".to_owned());
                    }
                    _ => Tensor::from_bytes(data_type, shape, bytes),
                }
            }
            (Some(size), _) => {
                let left = tail.len();
                return Err(format!("needs `{size}` bytes, `{left}` are left"));
            }
            (None, Some(data)) => match elements::read(data.get(), data_type, count)? {
                elements::Elements::Plain(bytes) => {
                    Tensor::from_bytes(data_type, shape, bytes.into())
                }
                elements::Elements::Strings(texts) => Tensor::from_texts(shape, texts.finish()),
            },
            (None, None) => return Err("has no data".to_owned()),
        };
        tensor.map_err(|error| format!("is inconsistent: {error}"))
    }
}
