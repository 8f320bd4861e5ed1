//! JSONL: one record per line.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::Value;
use sextant_types::{
    DataType, NamedTensor, Tensor,
    convert::{self, Number, Rounding},
};

use super::{
    Expected, Invalid, Raw, RowShape, ValidationSet, assemble, fit_row, labels, row_shape,
    shape_text,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    inputs: BTreeMap<String, Value>,
    label: Option<Value>,
}

/// Reads the records; empty lines are skipped.
pub(super) fn read(bytes: &Bytes, expected: Expected<'_>) -> Result<ValidationSet, Invalid> {
    let signature = expected.signature;
    let mut columns: Vec<Column<'_>> = signature
        .inputs
        .iter()
        .map(|spec| {
            let shape = row_shape(spec, signature.batched);
            Column::new(&spec.name, spec.data_type, shape, expected)
        })
        .collect();
    let (mut data_type, shape) = labels::untyped(expected)?;
    if !expected.scored.classes.is_empty() && has_text_labels(bytes) {
        data_type = DataType::Bytes;
    }
    let mut labels = Column::new("label", data_type, shape, expected);
    labels.without_ones = true;
    for (index, line) in lines(bytes).enumerate() {
        if index == expected.limits.records {
            let limit = expected.limits.records;
            return Err(Invalid::TooManyRecords { limit });
        }
        let result = push(line, &mut columns, &mut labels);
        result.map_err(|why| Invalid::Record {
            record: index + 1,
            why,
        })?;
        let held = columns.iter().map(Column::byte_len).sum::<u64>() + labels.byte_len();
        if held > expected.limits.bytes {
            let limit = expected.limits.bytes;
            return Err(Invalid::TooLarge { limit });
        }
    }
    if labels.records == 0 {
        return Err(Invalid::NoRecords);
    }
    let inputs = columns.into_iter().map(Column::finish);
    let raw = Raw {
        inputs: inputs.collect::<Result<Vec<_>, _>>()?,
        labels: labels.finish()?.tensor,
    };
    assemble(&raw, expected)
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = bytes.split(|byte| *byte == b'\n');
    lines
        .map(<[u8]>::trim_ascii)
        .filter(|line| !line.is_empty())
}

/// Whether the first record's label is a text, or a list of them.
fn has_text_labels(bytes: &[u8]) -> bool {
    let first = lines(bytes).next().unwrap_or_default();
    let record = serde_json::from_slice::<Record>(first).ok();
    let mut label = record.and_then(|record| record.label);
    while let Some(Value::Array(items)) = label {
        label = items.into_iter().next();
    }
    matches!(label, Some(Value::String(_)))
}

fn push(line: &[u8], columns: &mut [Column<'_>], labels: &mut Column<'_>) -> Result<(), String> {
    let mut record: Record = serde_json::from_slice(line).map_err(|e| e.to_string())?;
    for column in columns {
        let value = record.inputs.remove(column.name);
        column.push(&value.ok_or_else(|| format!("input `{}` is missing", column.name))?)?;
    }
    if let Some(name) = record.inputs.keys().next() {
        let name: String = name.chars().take(64).collect();
        return Err(format!("the model has no input `{name}`"));
    }
    labels.push(&record.label.ok_or("`label` is missing")?)
}

/// One tensor as it grows.
struct Column<'a> {
    name: &'a str,
    data_type: DataType,
    expected: RowShape<'a>,
    batched: bool,
    /// Whether dimensions of 1 may be left out: labels.
    without_ones: bool,
    row: Option<Vec<usize>>,
    records: usize,
    plain: BytesMut,
    strings: Vec<Bytes>,
    strings_bytes: u64,
}

impl<'a> Column<'a> {
    fn new(
        name: &'a str,
        data_type: DataType,
        shape: RowShape<'a>,
        expected: Expected<'_>,
    ) -> Self {
        Self {
            name,
            data_type,
            expected: shape,
            batched: expected.signature.batched,
            without_ones: false,
            row: None,
            records: 0,
            plain: BytesMut::new(),
            strings: Vec::new(),
            strings_bytes: 0,
        }
    }

    fn byte_len(&self) -> u64 {
        self.plain.len() as u64 + self.strings_bytes
    }

    fn push(&mut self, value: &Value) -> Result<(), String> {
        let nested = nested_shape(value);
        self.fill(value, &nested)?;
        let shape = self.full_shape(nested)?;
        match &self.row {
            None => self.row = Some(shape),
            Some(row) if *row == shape => {}
            Some(row) => {
                let name = self.name;
                return Err(format!(
                    "`{name}` has shape {shape:?}, earlier records have {row:?}: pad them alike"
                ));
            }
        }
        self.records += 1;
        Ok(())
    }

    /// A flat list stands for a row whose dimensions are all known.
    fn full_shape(&self, shape: Vec<usize>) -> Result<Vec<usize>, String> {
        let is_short = self.without_ones && labels::same_but_ones(&shape, self.expected);
        if is_short || fit_row(&shape, self.expected, self.batched).is_some() {
            return Ok(shape);
        }
        let fixed: Option<Vec<usize>> = self
            .expected
            .iter()
            .map(|dim| usize::try_from((*dim)?).ok())
            .collect();
        let product = |dims: &[usize]| dims.iter().try_fold(1usize, |p, d| p.checked_mul(*d));
        match (fixed, shape.as_slice()) {
            (Some(fixed), [length]) if product(&fixed) == Some(*length) => Ok(fixed),
            _ => Err(format!(
                "`{}` has shape {shape:?}: the model takes {}",
                self.name,
                shape_text(self.expected)
            )),
        }
    }

    /// Appends the leaves of `value`, a nested list of exactly this shape.
    fn fill(&mut self, value: &Value, shape: &[usize]) -> Result<(), String> {
        match (value, shape.split_first()) {
            (Value::Array(items), Some((length, rest))) if items.len() == *length => {
                items.iter().try_for_each(|item| self.fill(item, rest))
            }
            (Value::Array(_), _) | (_, Some(_)) => {
                Err(format!("`{}` is not a rectangular array", self.name))
            }
            (leaf, None) => self.leaf(leaf),
        }
    }

    fn leaf(&mut self, value: &Value) -> Result<(), String> {
        let name = self.name;
        let data_type = self.data_type;
        let wrong = || {
            format!(
                "`{name}` has `{}` where {data_type} is needed",
                brief(value)
            )
        };
        match (data_type, value) {
            (DataType::Bytes, Value::String(text)) => {
                self.strings_bytes += text.len() as u64 + size_of::<Bytes>() as u64;
                self.strings.push(Bytes::from(text.clone()));
                Ok(())
            }
            (DataType::Bool, Value::Bool(value)) => {
                self.plain.extend_from_slice(&[u8::from(*value)]);
                Ok(())
            }
            (DataType::Bytes | DataType::Bool, _) => Err(wrong()),
            (_, Value::Number(number)) => {
                let number = read_number(number, data_type).ok_or_else(wrong)?;
                convert::encode(number, data_type, Rounding::Nearest, &mut self.plain)
                    .map_err(|why| format!("`{name}`: {why}"))
            }
            _ => Err(wrong()),
        }
    }

    fn finish(self) -> Result<NamedTensor, Invalid> {
        let mut shape = vec![self.records];
        shape.extend(self.row.unwrap_or_default());
        let tensor = match self.data_type {
            DataType::Bytes => Tensor::from_strings(shape, self.strings),
            data_type => Tensor::from_bytes(data_type, shape, self.plain.freeze()),
        };
        let tensor = tensor.map_err(|source| Invalid::Tensor {
            name: self.name.to_owned(),
            source,
        })?;
        Ok(NamedTensor::new(self.name, tensor))
    }
}

/// Lengths along the first element of each level.
fn nested_shape(value: &Value) -> Vec<usize> {
    let mut shape = Vec::new();
    let mut level = value;
    while let Value::Array(items) = level {
        shape.push(items.len());
        match items.first() {
            Some(first) => level = first,
            None => break,
        }
    }
    shape
}

/// A JSON number as an element of `data_type`: nothing tells `1` from `1.0` for a float.
fn read_number(number: &serde_json::Number, data_type: DataType) -> Option<Number> {
    if convert::is_float(data_type) {
        return number.as_f64().map(Number::Float);
    }
    let integer = number.as_i64().map(i128::from);
    integer
        .or_else(|| number.as_u64().map(i128::from))
        .map(Number::Integer)
        .or_else(|| number.as_f64().map(Number::Float))
}

fn brief(value: &Value) -> String {
    value.to_string().chars().take(32).collect()
}
