//! Parquet: a record in each row.
//!
//! Where all columns hold single values, as data frames do, the columns are the elements of a record: the file
//! becomes CSV. Where one holds lists, each column is an input of its name, beside `label`: the file
//! becomes JSON lines.

use std::{fs::File, io::Write};

use ::parquet::{
    errors::ParquetError,
    file::reader::{FileReader, SerializedFileReader},
    record::{Field, Row},
};
use serde_json::{Map, Value, json};

use crate::Error;

/// The bytes that a file begins with.
pub const MAGIC: &[u8] = b"PAR1";

/// What the file becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A column for each element.
    Csv,
    /// `{"inputs": {..}, "label": ..}` in each line.
    JsonLines,
}

/// Where pandas keeps the names of rows.
const INDEX: &str = "__index_level_";

/// Writes the rows of `file` to `out`.
///
/// # Errors
/// When the file is broken, or holds what no tensor does.
pub fn convert(file: File, out: impl Write) -> Result<Format, Error> {
    let reader = SerializedFileReader::new(file)?;
    let schema = reader.metadata().file_metadata().schema();
    let are_single = schema.get_fields().iter().all(|field| field.is_primitive());
    let rows = reader.get_row_iter(None)?;
    let rows = rows.enumerate().map(|(at, row)| Ok((at as u64 + 1, row?)));
    match are_single {
        true => table(rows, out).map(|()| Format::Csv),
        false => lines(rows, out).map(|()| Format::JsonLines),
    }
}

impl From<ParquetError> for Error {
    fn from(error: ParquetError) -> Self {
        Self::Parquet(error.to_string())
    }
}

fn columns(row: &Row) -> impl Iterator<Item = (&String, &Field)> {
    row.get_column_iter()
        .filter(|(name, _)| !name.starts_with(INDEX))
}

fn table(
    rows: impl Iterator<Item = Result<(u64, Row), Error>>,
    out: impl Write,
) -> Result<(), Error> {
    let mut out = csv::Writer::from_writer(out);
    let written = |error: csv::Error| Error::Output(error.into());
    for row in rows {
        let (number, row) = row?;
        if number == 1 {
            let names = columns(&row).map(|(name, _)| name);
            out.write_record(names).map_err(written)?;
        }
        let cells = columns(&row).map(|(column, field)| match value(field) {
            Ok(Value::Null) => Ok(String::new()),
            Ok(Value::String(text)) => Ok(text),
            Ok(other) => Ok(other.to_string()),
            // CSV knows no limits of numbers: the service reads `NaN` and `inf`.
            Err(Refused::Number(number)) => Ok(number.to_string()),
            Err(refused) => Err(refused.at(number, column)),
        });
        let cells = cells.collect::<Result<Vec<_>, _>>()?;
        out.write_record(cells).map_err(written)?;
    }
    out.flush()?;
    Ok(())
}

fn lines(
    rows: impl Iterator<Item = Result<(u64, Row), Error>>,
    mut out: impl Write,
) -> Result<(), Error> {
    for row in rows {
        let (number, row) = row?;
        let (mut inputs, mut label) = (Map::new(), None);
        for (column, field) in columns(&row) {
            let value = value(field).map_err(|refused| refused.at(number, column))?;
            match column.as_str() {
                "label" | "labels" => label = Some(value).filter(|it| !it.is_null()),
                _ => drop(inputs.insert(column.clone(), value)),
            }
        }
        let mut record = json!({ "inputs": inputs });
        if let Some(label) = label {
            record["label"] = label;
        }
        writeln!(out, "{record}")?;
    }
    out.flush()?;
    Ok(())
}

/// Why a field is no element.
enum Refused {
    /// JSON has no such number.
    Number(f64),
    /// Neither numbers nor text.
    Kind(&'static str),
}

impl Refused {
    fn at(self, row: u64, column: &str) -> Error {
        let why = match self {
            Self::Number(number) => format!(
                "a list holds `{number}`, which JSON lines cannot: replace it, or save an `.npz` archive"
            ),
            Self::Kind(kind) => format!("it holds {kind}: make numbers or text of them first"),
        };
        Error::Column {
            row,
            column: column.to_owned(),
            why,
        }
    }
}

fn value(field: &Field) -> Result<Value, Refused> {
    let float = |number: f64| match serde_json::Number::from_f64(number) {
        Some(number) => Ok(Value::Number(number)),
        None => Err(Refused::Number(number)),
    };
    Ok(match field {
        Field::Null => Value::Null,
        Field::Bool(it) => (*it).into(),
        Field::Byte(it) => (*it).into(),
        Field::Short(it) => (*it).into(),
        Field::Int(it) => (*it).into(),
        Field::Long(it) => (*it).into(),
        Field::UByte(it) => (*it).into(),
        Field::UShort(it) => (*it).into(),
        Field::UInt(it) => (*it).into(),
        Field::ULong(it) => (*it).into(),
        Field::Float16(it) => float(it.to_f64())?,
        Field::Float(it) => float((*it).into())?,
        Field::Double(it) => float(*it)?,
        Field::Str(it) => it.as_str().into(),
        Field::Bytes(it) => match std::str::from_utf8(it.data()) {
            Ok(text) => text.into(),
            Err(_) => return Err(Refused::Kind("bytes that are not text")),
        },
        Field::ListInternal(list) => {
            let items = list.elements().iter().map(value);
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        Field::Decimal(_) => return Err(Refused::Kind("decimals")),
        Field::Date(_)
        | Field::TimeMillis(_)
        | Field::TimeMicros(_)
        | Field::TimestampMillis(_)
        | Field::TimestampMicros(_) => return Err(Refused::Kind("dates or times")),
        Field::Group(_) | Field::MapInternal(_) => return Err(Refused::Kind("structures or maps")),
    })
}
