//! The default outputs of a step that fails, read from the definition.

use bytes::BytesMut;
use serde_json::Value;
use sextant_types::{DataType, NamedTensor, Tensor, TensorSpec};

use super::Invalid;
use crate::{OnError, definition::Step};

/// Deepest nesting of lists.
const MOST_DIMENSIONS: usize = 8;

/// The outputs of a step that failed.
pub(super) fn defaults(step: &Step, gives: &[TensorSpec]) -> Result<Vec<NamedTensor>, Invalid> {
    let invalid = |why: String| Invalid::step(&step.name, "default", why);
    match (step.on_error, step.default.is_empty()) {
        (OnError::Default, _) => {}
        (_, true) => return Ok(Vec::new()),
        (_, false) => return Err(invalid("is for `on_error: default`".to_owned())),
    }
    if let Some(unknown) = step
        .default
        .keys()
        .find(|name| !gives.iter().any(|it| it.name == **name))
    {
        return Err(invalid(format!(
            "has `{unknown}`, which the step does not give"
        )));
    }
    let tensors = gives.iter().map(|spec| {
        let value = step.default.get(&spec.name);
        let value = value.ok_or_else(|| invalid(format!("has nothing for `{}`", spec.name)))?;
        let tensor = tensor(value, spec.data_type);
        let tensor = tensor.map_err(|why| invalid(format!("has for `{}` {why}", spec.name)))?;
        match spec.accepts(tensor.shape()) {
            true => Ok(NamedTensor::new(&spec.name, tensor)),
            false => Err(invalid(format!(
                "has for `{}` the shape {:?}, and the step gives {}",
                spec.name,
                tensor.shape(),
                spec.shape_text()
            ))),
        }
    });
    tensors.collect()
}

/// Nested lists as a tensor.
fn tensor(value: &Value, data_type: DataType) -> Result<Tensor, String> {
    let mut shape = Vec::new();
    let mut at = value;
    while let Value::Array(items) = at {
        if shape.len() == MOST_DIMENSIONS {
            return Err("lists that are nested too deeply".to_owned());
        }
        shape.push(items.len());
        match items.first() {
            Some(first) => at = first,
            None => break,
        }
    }
    let mut elements = Vec::new();
    flatten(value, &shape, &mut elements)?;
    let made = match data_type {
        DataType::Bytes => {
            let strings = elements.iter().map(|element| element.as_str());
            let strings: Option<Vec<&str>> = strings.collect();
            let strings = strings.ok_or("an element that is no string")?;
            Tensor::from_strings(shape, strings)
        }
        numeric => {
            let mut bytes = BytesMut::new();
            for element in elements {
                let number = number(element, numeric);
                let number = number.ok_or_else(|| format!("`{element}`, which is no {numeric}"))?;
                bytes.extend_from_slice(&number);
            }
            Tensor::from_bytes(numeric, shape, bytes.freeze())
        }
    };
    made.map_err(|error| format!("lists of unequal lengths: {error}"))
}

/// A number or a truth value in the bytes of a type that holds it. A double cannot hold every 64-bit integer.
fn number(of: &Value, to: DataType) -> Option<Vec<u8>> {
    match (of, to) {
        (Value::Bool(value), _) => to.element(f64::from(u8::from(*value))),
        (Value::Number(it), DataType::Int64) if !it.is_f64() => {
            it.as_i64().map(|value| value.to_le_bytes().to_vec())
        }
        (Value::Number(it), DataType::Uint64) if !it.is_f64() => {
            it.as_u64().map(|value| value.to_le_bytes().to_vec())
        }
        (other, _) => to.element(other.as_f64()?),
    }
}

fn flatten<'a>(value: &'a Value, shape: &[usize], into: &mut Vec<&'a Value>) -> Result<(), String> {
    match (value, shape.split_first()) {
        (Value::Array(items), Some((size, rest))) if items.len() == *size => {
            items.iter().try_for_each(|item| flatten(item, rest, into))
        }
        (Value::Array(_), _) => Err("lists of unequal lengths".to_owned()),
        (_, None) => {
            into.push(value);
            Ok(())
        }
        (_, Some(_)) => Err("lists of unequal depths".to_owned()),
    }
}
