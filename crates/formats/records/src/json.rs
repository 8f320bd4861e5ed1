//! Records and answers as JSON: one record per line as input, one answer per line as output.
//!
//! A record is `{"inputs": {"name": [..]}}`, or the object of inputs itself; arrays are nested or flat and leave the
//! batch dimension out. A `label` beside `inputs`, as in validation sets, is ignored. An answer is `{"index",
//! "outputs": {"name": [..]}}` or `{"index", "error": {"code", "message"}}`.

use serde_json::{Map, Value, json};
use sextant_formats::json::{Elements, values};
use sextant_types::{Code, NamedTensor, Signature, TensorSpec};

/// Members beside the inputs: the right answers.
pub(crate) const NO_INPUTS: [&str; 2] = ["label", "labels"];

/// Reads one line into inputs with one row.
///
/// # Errors
/// Why the line is not a record of this signature.
pub fn parse(line: &[u8], signature: &Signature) -> Result<Vec<NamedTensor>, String> {
    let value: Value = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let Value::Object(mut record) = value else {
        return Err("a record is a JSON object".to_owned());
    };
    let besides = record
        .keys()
        .filter(|name| !NO_INPUTS.contains(&name.as_str()));
    if let (1, Some(Value::Object(inputs))) = (besides.count(), record.get_mut("inputs")) {
        record = std::mem::take(inputs);
    }
    record
        .iter()
        .map(|(name, value)| input(name, value, signature))
        .collect()
}

fn input(name: &str, value: &Value, signature: &Signature) -> Result<NamedTensor, String> {
    let spec = signature
        .inputs
        .iter()
        .find(|spec| spec.name == name)
        .ok_or_else(|| format!("the model has no input `{name}`"))?;
    let mut elements = Elements::new(spec.data_type);
    let nested = elements.extend(value);
    let nested = nested.map_err(|why| format!("input `{name}` {why}"))?;
    let shape = row_shape(spec, nested, signature.batched, elements.len())?;
    let tensor = elements.into_tensor(shape);
    Ok(NamedTensor::new(
        name,
        tensor.map_err(|error| error.to_string())?,
    ))
}

/// The full shape of one row: the nested shape, or the model's if either is flat, or if they differ only in dimensions
/// of 1. A list with other dimensions and as many elements would have them in another order.
fn row_shape(
    spec: &TensorSpec,
    nested: Vec<usize>,
    batched: bool,
    leaves: usize,
) -> Result<Vec<usize>, String> {
    let row = if batched {
        spec.shape.get(1..).unwrap_or_default()
    } else {
        &spec.shape[..]
    };
    let fits = |shape: &[usize]| {
        shape.len() == row.len()
            && shape
                .iter()
                .zip(row)
                .all(|(have, want)| want.is_none_or(|want| want == *have as u64))
    };
    let with_batch = |shape: Vec<usize>| {
        if batched {
            [vec![1], shape].concat()
        } else {
            shape
        }
    };
    if fits(&nested) {
        return Ok(with_batch(nested));
    }
    if batched && nested.first() == Some(&1) && fits(&nested[1..]) {
        return Ok(nested);
    }
    let fixed: Option<Vec<usize>> = row.iter().map(|dim| dim.map(|dim| dim as usize)).collect();
    let is_alike = |fixed: &[usize]| {
        let is_flat = nested.len() <= 1 || fixed.len() <= 1;
        let is_flat = is_flat && fixed.iter().product::<usize>() == leaves;
        is_flat || without_ones(&nested).eq(without_ones(fixed))
    };
    match fixed {
        Some(fixed) if is_alike(&fixed) => Ok(with_batch(fixed)),
        _ => Err(format!(
            "input `{}` has shape {nested:?}: the model takes {}",
            spec.name,
            spec.shape_text()
        )),
    }
}

fn without_ones(shape: &[usize]) -> impl Iterator<Item = usize> {
    shape.iter().copied().filter(|size| *size != 1)
}

/// One line for an answered record.
pub(crate) fn answer(index: u64, outputs: &[NamedTensor], batched: bool) -> Value {
    let outputs: Map<String, Value> = outputs
        .iter()
        .map(|output| {
            let shape = output.tensor.shape();
            let row = if batched {
                shape.get(1..).unwrap_or_default()
            } else {
                shape
            };
            (output.name.clone(), nest(&values(&output.tensor), row))
        })
        .collect();
    json!({ "index": index, "outputs": outputs })
}

/// One line for a record that could not be answered.
pub(crate) fn refusal(index: u64, code: Code, message: &str) -> Value {
    json!({ "index": index, "error": { "code": code.as_str(), "message": message } })
}

fn nest(elements: &[Value], shape: &[usize]) -> Value {
    match shape {
        [] => elements.first().cloned().unwrap_or(Value::Null),
        [_] => Value::Array(elements.to_vec()),
        [rows, rest @ ..] => {
            let size = elements.len() / (*rows).max(1);
            Value::Array(
                elements
                    .chunks(size.max(1))
                    .map(|row| nest(row, rest))
                    .collect(),
            )
        }
    }
}
