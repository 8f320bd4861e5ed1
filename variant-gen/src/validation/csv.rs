//! CSV: a record in each row, a column for each element.
//!
//! The first row names the columns. `label` is what is to be answered; `label.0`, `label.1` and so on are the
//! elements of one that has several, where positions are counted from 0 in row-major order. A column belongs to
//! the input of its name, or with `.` and a position to one of several elements. Where the model has one
//! input and no column has its name, all other columns are its elements in the order in which they stand.

use std::collections::BTreeMap;

use ::csv::{ReaderBuilder, StringRecord};
use bytes::Bytes;
use sextant_formats::json::Elements;
use sextant_types::{
    DataType, NamedTensor, TensorSpec,
    convert::{self, Number},
};

use super::{Expected, Invalid, Raw, RowShape, ValidationSet, assemble, labels, row_shape};

/// What a column of labels is called.
const LABEL: &str = "label";

/// Reads the rows.
pub(super) fn read(bytes: &Bytes, expected: Expected<'_>) -> Result<ValidationSet, Invalid> {
    let mut reader = ReaderBuilder::new().from_reader(&bytes[..]);
    let head = reader.headers().map_err(|error| broken(&error))?.clone();
    let mut table = Table::new(&head, expected)?;
    let mut record = StringRecord::new();
    while reader
        .read_record(&mut record)
        .map_err(|error| broken(&error))?
    {
        table.push(&record)?;
    }
    assemble(&[table.finish()?], expected)
}

fn broken(error: &::csv::Error) -> Invalid {
    Invalid::Table(error.to_string())
}

/// The rows as they come.
struct Table<'a> {
    expected: Expected<'a>,
    inputs: Vec<Column>,
    labels: Option<Column>,
    records: usize,
    held: u64,
}

/// One tensor as it grows.
struct Column {
    name: String,
    data_type: DataType,
    /// Of one record.
    shape: Vec<usize>,
    /// Where its elements stand in a row.
    columns: Vec<usize>,
    elements: Elements,
}

// === impl Table ===

impl<'a> Table<'a> {
    fn new(head: &StringRecord, expected: Expected<'a>) -> Result<Self, Invalid> {
        let signature = expected.signature;
        let mut named: BTreeMap<String, Vec<(usize, usize)>> = BTreeMap::new();
        let mut nameless = Vec::new();
        let known =
            |name: &str| name == LABEL || signature.inputs.iter().any(|input| input.name == name);
        for (at, column) in head.iter().map(str::trim).enumerate() {
            let element = column.rsplit_once('.');
            let element = element.and_then(|(name, at)| Some((name, at.parse::<usize>().ok()?)));
            let column = if column == super::LABELS {
                LABEL
            } else {
                column
            };
            match element {
                _ if known(column) => named.entry(column.to_owned()).or_default().push((0, at)),
                Some((name, of)) if known(name) => {
                    named.entry(name.to_owned()).or_default().push((of, at));
                }
                _ => nameless.push((nameless.len(), at)),
            }
        }
        let named_inputs = named.keys().filter(|name| *name != LABEL).count();
        match &signature.inputs[..] {
            [only] if named_inputs == 0 => {
                named.insert(only.name.clone(), nameless);
            }
            inputs => {
                if let Some((_, at)) = nameless.first() {
                    let names = inputs.iter().map(|input| format!("`{}`", input.name));
                    return Err(Invalid::Table(format!(
                        "column `{}` is neither `label` nor an input: the model's inputs are {}",
                        head.get(*at)
                            .unwrap_or_default()
                            .chars()
                            .take(64)
                            .collect::<String>(),
                        names.collect::<Vec<_>>().join(", ")
                    )));
                }
            }
        }
        let inputs = signature.inputs.iter().map(|spec| {
            let columns = named.remove(&spec.name);
            let missing = || Invalid::MissingInput {
                name: spec.name.clone(),
            };
            let row = row_shape(spec, signature.batched);
            Column::new(spec.clone(), columns.ok_or_else(missing)?, row)
        });
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        let (mut data_type, row) = labels::untyped(expected)?;
        if !expected.scored.classes.is_empty() && !expected.scored.are_numbers() {
            data_type = DataType::Bytes;
        }
        let labels = named.remove(LABEL).map(|columns| {
            let spec = TensorSpec {
                name: LABEL.to_owned(),
                data_type,
                shape: Vec::new(),
            };
            Column::new(spec, columns, row)
        });
        Ok(Self {
            expected,
            inputs,
            labels: labels.transpose()?,
            records: 0,
            held: 0,
        })
    }

    fn push(&mut self, record: &StringRecord) -> Result<(), Invalid> {
        let limits = self.expected.limits;
        if self.records == limits.records {
            let limit = limits.records;
            return Err(Invalid::TooManyRecords { limit });
        }
        self.records += 1;
        self.held += record.as_slice().len() as u64;
        if self.held > limits.bytes {
            let limit = limits.bytes;
            return Err(Invalid::TooLarge { limit });
        }
        let mut all = self.inputs.iter_mut().chain(&mut self.labels);
        all.try_for_each(|of| of.push(record))
            .map_err(|why| Invalid::Record {
                record: self.records,
                why,
            })
    }

    fn finish(self) -> Result<Raw, Invalid> {
        let records = self.records;
        let inputs = self.inputs.into_iter().map(|of| of.finish(records));
        let labels = self.labels.map(|of| of.finish(records)).transpose()?;
        Ok(Raw {
            inputs: inputs.collect::<Result<Vec<_>, _>>()?,
            labels: labels.map(|labels| labels.tensor),
        })
    }
}

// === impl Column ===

impl Column {
    /// By the columns of its elements: the position of each, and where it stands.
    fn new(
        spec: TensorSpec,
        mut columns: Vec<(usize, usize)>,
        row: RowShape<'_>,
    ) -> Result<Self, Invalid> {
        columns.sort_unstable();
        let wrong = |why: &str| Invalid::Table(format!("`{}` {why}", spec.name));
        if columns.iter().enumerate().any(|(at, (of, _))| at != *of) {
            return Err(wrong(
                "must have one column for each element, counted from 0",
            ));
        }
        let shape = shape_of(row, columns.len());
        let shape = shape.ok_or_else(|| {
            let count = columns.len();
            wrong(&format!(
                "has `{count}` columns: the model takes {}",
                super::shape_text(row)
            ))
        })?;
        let data_type = spec.data_type;
        Ok(Self {
            name: spec.name,
            data_type,
            shape,
            columns: columns.into_iter().map(|(_, at)| at).collect(),
            elements: Elements::new(data_type),
        })
    }

    fn push(&mut self, record: &StringRecord) -> Result<(), String> {
        for at in &self.columns {
            let cell = record.get(*at).unwrap_or_default();
            if self.data_type == DataType::Bytes {
                self.elements.push_text(cell.as_bytes());
                continue;
            }
            let number = number(cell.trim(), self.data_type).ok_or_else(|| {
                let cell: String = cell.chars().take(32).collect();
                format!(
                    "`{}` has `{cell}` where {} is needed",
                    self.name, self.data_type
                )
            })?;
            let pushed = self.elements.push(number);
            pushed.map_err(|why| format!("`{}` {why}", self.name))?;
        }
        Ok(())
    }

    fn finish(self, records: usize) -> Result<NamedTensor, Invalid> {
        let mut shape = vec![records];
        shape.extend(self.shape);
        let tensor = self.elements.into_tensor(shape);
        let tensor = tensor.map_err(|source| Invalid::Tensor {
            name: self.name.clone(),
            source,
        })?;
        Ok(NamedTensor::new(self.name, tensor))
    }
}

/// The shape of a record of so many elements: one dimension may be of any size.
fn shape_of(row: RowShape<'_>, elements: usize) -> Option<Vec<usize>> {
    let known = row.iter().flatten();
    let known = known.map(|size| usize::try_from(*size).ok());
    let known = known.product::<Option<usize>>()?.max(1);
    let open = row.iter().filter(|size| size.is_none()).count();
    let fits = match open {
        0 => elements == known,
        1 => elements.is_multiple_of(known),
        _ => false,
    };
    let size = |size: &Option<u64>| match size {
        Some(size) => *size as usize,
        None => elements / known,
    };
    fits.then(|| row.iter().map(size).collect())
}

/// A cell as an element. An empty one is a missing value where the model takes floats, as pandas writes it.
fn number(cell: &str, data_type: DataType) -> Option<Number> {
    match (cell, data_type) {
        ("" | "nan" | "NaN", to) if convert::is_float(to) => Some(Number::Float(f64::NAN)),
        ("true" | "True" | "TRUE", DataType::Bool) => Some(Number::Integer(1)),
        ("false" | "False" | "FALSE", DataType::Bool) => Some(Number::Integer(0)),
        (cell, to) if convert::is_float(to) => cell.parse().ok().map(Number::Float),
        // Spreadsheets write whole numbers as 3.0.
        (cell, _) => cell
            .strip_suffix(".0")
            .unwrap_or(cell)
            .parse()
            .ok()
            .map(Number::Integer),
    }
}
