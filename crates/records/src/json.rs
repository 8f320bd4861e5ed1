//! Records and answers as JSON: one record per line in, one answer per line out.
//!
//! A record is `{"inputs": {"name": [..]}}`, or the object of inputs itself; arrays are nested or
//! flat and leave the batch dimension out. An answer is `{"index", "outputs": {"name": [..]}}` or
//! `{"index", "error": {"code", "message"}}`.

use bytes::Bytes;
use half::{bf16, f16};
use serde_json::{Map, Value, json};
use sextant_formats::json::values;
use sextant_types::{Code, DataType, NamedTensor, Signature, Tensor, TensorSpec};

/// Reads one line into inputs with one row.
pub(crate) fn parse(line: &[u8], signature: &Signature) -> Result<Vec<NamedTensor>, String> {
    let value: Value = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let Value::Object(mut record) = value else {
        return Err("a record is a JSON object".to_owned());
    };
    if let (1, Some(Value::Object(inputs))) = (record.len(), record.get_mut("inputs")) {
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
    let mut leaves = Vec::new();
    let nested = flatten(value, &mut leaves)?;
    let shape = row_shape(spec, nested, signature.batched, leaves.len())?;
    let tensor = tensor(spec.data_type, shape, &leaves)?;
    Ok(NamedTensor::new(name, tensor))
}

/// Collects the leaves and returns the nested shape.
fn flatten<'a>(value: &'a Value, leaves: &mut Vec<&'a Value>) -> Result<Vec<usize>, String> {
    let Value::Array(items) = value else {
        leaves.push(value);
        return Ok(Vec::new());
    };
    let mut shape = vec![items.len()];
    for (index, item) in items.iter().enumerate() {
        let inner = flatten(item, leaves)?;
        if index == 0 {
            shape.extend(inner);
        } else if inner != shape[1..] {
            return Err("an array is ragged: rows of one array need the same length".to_owned());
        }
    }
    Ok(shape)
}

/// The full shape of one row: the nested one, or the model's where a flat list fits it.
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
    match fixed {
        Some(fixed) if fixed.iter().product::<usize>() == leaves => Ok(with_batch(fixed)),
        _ => Err(format!(
            "input `{}` has shape {nested:?}: the model takes {}",
            spec.name,
            spec.shape_text()
        )),
    }
}

macro_rules! collect {
    ($type:ty, $shape:expr, $leaves:expr, $read:expr) => {{
        let read = |value: &&Value| -> Option<$type> { $read(*value) };
        let values: Option<Vec<$type>> = $leaves.iter().map(read).collect();
        values.map(|values| Tensor::from_elements($shape, &values))
    }};
}

fn tensor(data_type: DataType, shape: Vec<usize>, leaves: &[&Value]) -> Result<Tensor, String> {
    fn signed<T: TryFrom<i64>>(value: &Value) -> Option<T> {
        T::try_from(value.as_i64()?).ok()
    }
    fn unsigned<T: TryFrom<u64>>(value: &Value) -> Option<T> {
        T::try_from(value.as_u64()?).ok()
    }
    let built = match data_type {
        DataType::Bool => {
            let flags: Option<Vec<u8>> = leaves
                .iter()
                .map(|value| value.as_bool().map(u8::from))
                .collect();
            flags.map(|flags| Tensor::from_bytes(DataType::Bool, shape, Bytes::from(flags)))
        }
        DataType::Uint8 => collect!(u8, shape, leaves, unsigned),
        DataType::Uint16 => collect!(u16, shape, leaves, unsigned),
        DataType::Uint32 => collect!(u32, shape, leaves, unsigned),
        DataType::Uint64 => collect!(u64, shape, leaves, unsigned),
        DataType::Int8 => collect!(i8, shape, leaves, signed),
        DataType::Int16 => collect!(i16, shape, leaves, signed),
        DataType::Int32 => collect!(i32, shape, leaves, signed),
        DataType::Int64 => collect!(i64, shape, leaves, signed),
        DataType::Fp16 => collect!(f16, shape, leaves, |v: &Value| v
            .as_f64()
            .map(f16::from_f64)),
        DataType::Bf16 => collect!(bf16, shape, leaves, |v: &Value| v
            .as_f64()
            .map(bf16::from_f64)),
        DataType::Fp32 => collect!(f32, shape, leaves, |v: &Value| v.as_f64().map(|v| v as f32)),
        DataType::Fp64 => collect!(f64, shape, leaves, Value::as_f64),
        DataType::Bytes => {
            let strings: Option<Vec<Bytes>> = leaves
                .iter()
                .map(|value| {
                    value
                        .as_str()
                        .map(|text| Bytes::copy_from_slice(text.as_bytes()))
                })
                .collect();
            strings.map(|strings| Tensor::from_strings(shape, strings))
        }
    };
    built
        .ok_or_else(|| format!("an element is not a {data_type}"))?
        .map_err(|error| error.to_string())
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
