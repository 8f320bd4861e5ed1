//! CSV: a record in each row, a column for each element.
//!
//! The first row names the columns, which belong to inputs as [`table`] says; `label` is the column of the labels.

use ::csv::{ErrorKind, ReaderBuilder, StringRecord};
use bytes::Bytes;
use sextant_formats::{json::Elements, table};
use sextant_types::{DataType, NamedTensor, Names, TensorSpec};

use super::{
    Invalid, Raw, RowShape, SetRequirements, ValidationSet, assemble, labels,
    line::{self, Rows},
    meant, row_shape,
};

/// The name of the labels' column.
const LABEL: &str = "label";

/// Reads the rows.
pub(super) fn read(
    bytes: &Bytes,
    expected: SetRequirements<'_>,
    names: &Names,
) -> Result<ValidationSet, Invalid> {
    let most = line::most_bytes(expected)?;
    let (rows, end) = Rows::of(bytes, most);
    let mut reader = ReaderBuilder::new().from_reader(rows);
    let head = reader.headers().map_err(|error| broken(&error, 1, most))?;
    let head = head.iter().map(|it| renamed(it, names, expected)).collect();
    let mut table = Table::new(&head, expected)?;
    let mut record = StringRecord::new();
    loop {
        let (start, at) = (reader.position().byte(), reader.position().line());
        end.allow(start, most);
        let read = reader.read_record(&mut record);
        if !read.map_err(|error| broken(&error, at, most))? {
            break;
        }
        table.push(&record)?;
    }
    assemble(&[table.finish()?], expected)
}

/// A column's name with the name of the input that it belongs to.
fn renamed(column: &str, names: &Names, expected: SetRequirements<'_>) -> String {
    let column = column.trim();
    let whole = meant(column, names, expected.signature);
    match column.rsplit_once('.') {
        Some((name, element)) if whole == column => {
            let input = meant(name, names, expected.signature);
            format!("{input}.{element}")
        }
        _ => whole.to_owned(),
    }
}

/// The error of the row that begins at line `at`.
fn broken(error: &::csv::Error, at: u64, most: u64) -> Invalid {
    match error.kind() {
        // The reader reads memory, so only a row that is too long causes this error.
        ErrorKind::Io(_) => Invalid::Line {
            line: usize::try_from(at).unwrap_or(usize::MAX),
            limit: most,
        },
        _ => Invalid::Table(error.to_string()),
    }
}

/// The rows, as they are read.
struct Table<'a> {
    expected: SetRequirements<'a>,
    inputs: Vec<Column>,
    labels: Option<Column>,
    records: usize,
    held: u64,
}

/// One tensor that grows by rows.
struct Column {
    name: String,
    data_type: DataType,
    /// The shape of one record.
    shape: Vec<usize>,
    /// The positions of its elements in a row.
    columns: Vec<usize>,
    elements: Elements,
}

// === impl Table ===

impl<'a> Table<'a> {
    fn new(head: &'a StringRecord, expected: SetRequirements<'a>) -> Result<Self, Invalid> {
        let signature = expected.signature;
        let inputs: Vec<&str> = signature.inputs.iter().map(|it| it.name.as_str()).collect();
        let column = |column: &'a str| match column.trim() {
            super::LABELS if !inputs.contains(&super::LABELS) => LABEL,
            column => column,
        };
        let mut named =
            table::assign(head.iter().map(column), &inputs, &[LABEL]).map_err(Invalid::Table)?;
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
    /// A column for a tensor, from the columns of its elements: the element and the position of each.
    fn new(spec: TensorSpec, columns: Vec<usize>, row: RowShape<'_>) -> Result<Self, Invalid> {
        let wrong = |why: &str| Invalid::Table(format!("`{}` {why}", spec.name));
        let shape = table::shape_of(row, columns.len());
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
            columns,
            elements: Elements::new(data_type),
        })
    }

    fn push(&mut self, record: &StringRecord) -> Result<(), String> {
        for at in &self.columns {
            let cell = record.get(*at).unwrap_or_default();
            table::push(&self.name, cell, self.data_type, &mut self.elements)?;
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
