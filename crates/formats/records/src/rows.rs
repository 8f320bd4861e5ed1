//! Answers as rows of CSV. Columns are named as for inputs: the output's name, with `.` and a position if it has
//! several elements.

use ::csv::{Error as CsvError, Writer};
use serde_json::Value;
use sextant_formats::json::values;
use sextant_types::offline::RecordFormat;

use crate::{Chunk, Column, Error, part::uneven};

/// The row that names the columns.
pub(crate) fn head(columns: &[Column]) -> Result<Vec<u8>, Error> {
    let names = columns.iter().flat_map(|column| {
        let name = &column.name;
        (0..column.elements()).map(move |at| match column.elements() {
            1 => name.clone(),
            _ => format!("{name}.{at}"),
        })
    });
    let names: Vec<String> = names.collect();
    write(|out| out.write_record(&names))
}

/// A row for each record, with empty cells for one that was not answered.
pub(crate) fn block(columns: &[Column], chunk: Chunk<'_>) -> Result<Vec<u8>, Error> {
    if columns.is_empty() {
        return Ok(Vec::new());
    }
    let mut rows = Vec::with_capacity(chunk.answers.len());
    for answer in chunk.answers {
        let mut row = Vec::new();
        for (place, column) in columns.iter().enumerate() {
            match answer {
                Ok(outputs) => {
                    let output = column.of(outputs, place, chunk.batched);
                    let output = output.ok_or_else(|| uneven(RecordFormat::Csv, column))?;
                    row.extend(values(output).into_iter().map(cell));
                }
                Err(_) => row.extend((0..column.elements()).map(|_| String::new())),
            }
        }
        rows.push(row);
    }
    write(|out| rows.iter().try_for_each(|row| out.write_record(row)))
}

/// Rows for `records` records that were not answered.
pub(crate) fn nothing(columns: &[Column], records: u64) -> Result<Vec<u8>, Error> {
    let cells: Vec<&str> = columns
        .iter()
        .flat_map(|it| vec![""; it.elements()])
        .collect();
    write(|out| (0..records).try_for_each(|_| out.write_record(&cells)))
}

/// An element as [`values`] returns it: a missing value is an empty cell.
fn cell(value: Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text,
        other => other.to_string(),
    }
}

fn write(
    rows: impl FnOnce(&mut Writer<Vec<u8>>) -> Result<(), CsvError>,
) -> Result<Vec<u8>, Error> {
    let mut out = Writer::from_writer(Vec::new());
    let failed = |error: String| Error::output(RecordFormat::Csv.as_str(), error);
    rows(&mut out).map_err(|error| failed(error.to_string()))?;
    out.into_inner().map_err(|error| failed(error.to_string()))
}
