//! JSONL: one record per line.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use sextant_formats::json::{Elements, nested_shape};
use sextant_types::{DataType, Metric, NamedTensor, Names, Signature};

use super::{
    Invalid, Limits, Raw, RowShape, SetRequirements, ValidationSet, assemble, fit_row, labels,
    line, meant, row_shape, shape_text, shapes::Shape,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Record<T> {
    inputs: BTreeMap<String, T>,
    label: Option<T>,
}

/// A line of which only the shapes are read may have this part of a set's bytes: no memory is taken for elements.
const LONGEST_PART: u64 = 16;

/// Message about a record that has a label if the first one has none, or the reverse.
const SOME_LABELS: &str =
    "some records have a `label` and others have none: give all of them one, or none";

/// Reads the records; empty lines are skipped. Records of one length are a group; groups are in the order in which
/// their lengths first occur.
pub(super) fn read(
    bytes: &Bytes,
    expected: SetRequirements<'_>,
    names: &Names,
) -> Result<ValidationSet, Invalid> {
    let (mut data_type, shape) = labels::untyped(expected)?;
    let most = line::most_bytes(expected)?;
    match first_label(bytes, most)? {
        Some(Value::String(_)) if !expected.scored.classes.is_empty() => {
            data_type = DataType::Bytes;
        }
        // The metric's graph decides the type.
        Some(Value::String(_)) if expected.metric == Metric::Custom => data_type = DataType::Bytes,
        Some(Value::Number(it)) if expected.metric == Metric::Custom && !it.is_f64() => {
            data_type = DataType::Int64;
        }
        _ => {}
    }
    let table = || Table::new(expected, (data_type, shape));
    let (mut tables, mut by_lengths) = (Vec::<Table<'_>>::new(), BTreeMap::new());
    let (mut held, mut labelled) = (0, None);
    for (index, (number, text)) in lines(bytes).enumerate() {
        line::check(number, text, most)?;
        if index == expected.limits.records {
            let limit = expected.limits.records;
            return Err(Invalid::TooManyRecords { limit });
        }
        let wrong = |why| Invalid::Record {
            record: index + 1,
            why,
        };
        let mut record: Record<Value> =
            serde_json::from_slice(text).map_err(|it| wrong(it.to_string()))?;
        record.rename(names, expected.signature);
        if *labelled.get_or_insert(record.label.is_some()) != record.label.is_some() {
            return Err(wrong(SOME_LABELS.to_owned()));
        }
        let at = *by_lengths
            .entry(record.lengths(shape, expected))
            .or_insert(tables.len());
        if at == tables.len() {
            tables.push(table());
        }
        let before = tables[at].byte_len();
        tables[at].push(record).map_err(wrong)?;
        held += tables[at].byte_len() - before;
        if held > expected.limits.bytes {
            let limit = expected.limits.bytes;
            return Err(Invalid::TooLarge { limit });
        }
    }
    let raws = tables.into_iter().map(Table::finish);
    assemble(&raws.collect::<Result<Vec<_>, _>>()?, expected)
}

/// The shapes of the inputs of each record, as written.
pub(super) fn inputs(
    bytes: &[u8],
    limits: Limits,
) -> impl Iterator<Item = Result<BTreeMap<String, Shape>, Invalid>> {
    let records = lines(bytes).take(limits.records).enumerate();
    records.map(move |(index, (number, text))| {
        line::check(number, text, limits.bytes / LONGEST_PART)?;
        let record: Result<Record<Shape>, _> = serde_json::from_slice(text);
        let record = record.map_err(|error| Invalid::Record {
            record: index + 1,
            why: error.to_string(),
        });
        Ok(record?.inputs)
    })
}

/// The lines that are not empty, each with its number.
fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let lines = bytes.split(|byte| *byte == b'\n').enumerate();
    lines
        .map(|(index, line)| (index + 1, line.trim_ascii()))
        .filter(|(_, line)| !line.is_empty())
}

/// The first record's label, or its first element if it is a list.
fn first_label(bytes: &[u8], most: u64) -> Result<Option<Value>, Invalid> {
    let Some((number, first)) = lines(bytes).next() else {
        return Ok(None);
    };
    line::check(number, first, most)?;
    let record = serde_json::from_slice::<Record<Value>>(first).ok();
    let mut label = record.and_then(|record| record.label);
    while let Some(Value::Array(items)) = label {
        label = items.into_iter().next();
    }
    Ok(label)
}

impl Record<Value> {
    /// Renames inputs that the file names otherwise.
    fn rename(&mut self, names: &Names, signature: &Signature) {
        if names.is_empty() {
            return;
        }
        let inputs = std::mem::take(&mut self.inputs).into_iter();
        let named = inputs.map(|(name, value)| (meant(&name, names, signature).to_owned(), value));
        self.inputs = named.collect();
    }

    /// The shapes of everything in it that may differ between records.
    fn lengths(&self, of_label: RowShape<'_>, expected: SetRequirements<'_>) -> Vec<Vec<usize>> {
        let signature = expected.signature;
        let inputs = signature.inputs.iter().filter_map(|spec| {
            let differs = row_shape(spec, signature.batched).contains(&None);
            self.inputs.get(&spec.name).filter(|_| differs)
        });
        let differs = of_label.contains(&None) || expected.metric == Metric::Custom;
        let label = self.label.as_ref().filter(|_| differs);
        inputs.chain(label).map(nested_shape).collect()
    }
}

/// Records of one length.
struct Table<'a> {
    columns: Vec<Column<'a>>,
    labels: Column<'a>,
}

impl<'a> Table<'a> {
    fn new(expected: SetRequirements<'a>, (data_type, shape): (DataType, RowShape<'a>)) -> Self {
        let signature = expected.signature;
        let columns = signature.inputs.iter().map(|spec| {
            let shape = row_shape(spec, signature.batched);
            Column::new(&spec.name, spec.data_type, shape, expected)
        });
        let mut labels = Column::new("label", data_type, shape, expected);
        labels.without_ones = true;
        labels.any_shape = expected.metric == Metric::Custom;
        Self {
            columns: columns.collect(),
            labels,
        }
    }

    fn push(&mut self, mut record: Record<Value>) -> Result<(), String> {
        for column in &mut self.columns {
            let value = record.inputs.remove(column.name);
            column.push(&value.ok_or_else(|| format!("input `{}` is missing", column.name))?)?;
        }
        if let Some(name) = record.inputs.keys().next() {
            let name: String = name.chars().take(64).collect();
            return Err(format!("the model has no input `{name}`"));
        }
        // Records with and without a label go into different tables.
        record
            .label
            .map_or(Ok(()), |label| self.labels.push(&label))
    }

    fn byte_len(&self) -> u64 {
        self.columns.iter().map(Column::byte_len).sum::<u64>() + self.labels.byte_len()
    }

    fn finish(self) -> Result<Raw, Invalid> {
        let inputs = self.columns.into_iter().map(Column::finish);
        let labels = match self.labels.records {
            0 => None,
            _ => Some(self.labels.finish()?.tensor),
        };
        Ok(Raw {
            inputs: inputs.collect::<Result<Vec<_>, _>>()?,
            labels,
        })
    }
}

/// One tensor that grows by records.
struct Column<'a> {
    name: &'a str,
    expected: RowShape<'a>,
    signature: &'a Signature,
    /// Whether dimensions of 1 may be left out: for labels.
    without_ones: bool,
    /// Whether any shape fits that is the same for all records: for labels of a custom metric.
    any_shape: bool,
    row: Option<Vec<usize>>,
    records: usize,
    elements: Elements,
}

impl<'a> Column<'a> {
    fn new(
        name: &'a str,
        data_type: DataType,
        shape: RowShape<'a>,
        expected: SetRequirements<'a>,
    ) -> Self {
        Self {
            name,
            expected: shape,
            signature: expected.signature,
            without_ones: false,
            any_shape: false,
            row: None,
            records: 0,
            elements: Elements::new(data_type),
        }
    }

    fn byte_len(&self) -> u64 {
        self.elements.byte_len()
    }

    fn push(&mut self, value: &Value) -> Result<(), String> {
        let nested = self.elements.extend(value);
        let nested = nested.map_err(|why| format!("`{}` {why}", self.name))?;
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

    /// A flat list stands for a row if all dimensions of the row are known.
    fn full_shape(&self, shape: Vec<usize>) -> Result<Vec<usize>, String> {
        let is_short = self.without_ones && labels::same_but_ones(&shape, self.expected);
        if self.any_shape || is_short || fit_row(&shape, self.expected, self.signature).is_some() {
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

    fn finish(self) -> Result<NamedTensor, Invalid> {
        let mut shape = vec![self.records];
        shape.extend(self.row.unwrap_or_default());
        let tensor = self.elements.into_tensor(shape);
        let tensor = tensor.map_err(|source| Invalid::Tensor {
            name: self.name.to_owned(),
            source,
        })?;
        Ok(NamedTensor::new(self.name, tensor))
    }
}
