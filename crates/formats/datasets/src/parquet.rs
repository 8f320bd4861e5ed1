//! Parquet: a record in each row.
//!
//! If all columns hold single values, as in data frames, the columns are the elements of a record: the file becomes
//! CSV. If a column holds lists, each column is an input with its name, beside `label`: the file becomes JSON lines.

use std::{
    cell::Cell,
    io::{self, Read, Write},
    ops::Range,
    rc::Rc,
};

use ::parquet::{
    errors::ParquetError,
    file::{
        metadata::{ParquetMetaData, RowGroupMetaData},
        reader::{ChunkReader, FileReader, Length, SerializedFileReader},
        serialized_reader::ReadOptionsBuilder,
    },
    record::{Field, Row, reader::RowIter},
};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use sextant_types::convert::special_text;

use crate::Error;

mod bounds;

use bounds::{Bounded, rows_at_once};

/// The first bytes of a file.
pub const MAGIC: &[u8] = b"PAR1";

/// The format that the file becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A column for each element.
    Csv,
    /// `{"inputs": {..}, "label": ..}` in each line.
    JsonLines,
}

/// The prefix of the columns in which pandas keeps the names of rows.
const INDEX: &str = "__index_level_";

/// Bytes that are read at once if it is not known how many are needed.
const PIECE_BYTES: u64 = 16 << 10;

/// Writes the rows of `file` to `out`.
///
/// # Errors
/// If the file is broken, holds a value that no tensor can hold, or takes too much memory.
pub fn convert(file: impl ChunkReader + 'static, mut out: impl Write) -> Result<Format, Error> {
    let rows = Rows::open(file, 0)?;
    let format = rows.format();
    out.write_all(rows.head())?;
    for line in rows {
        out.write_all(&line?)?;
    }
    out.flush()?;
    Ok(format)
}

/// The rows of a file, each as a line of the format that the file becomes, with its end.
///
/// A row with a value that no tensor can hold is [`Error::Column`], and the next row follows; after any other error
/// there are no more rows.
pub struct Rows {
    format: Format,
    head: Vec<u8>,
    size: Size,
    rows: RowIter<'static>,
    /// The row that was read last, counted from 1.
    number: u64,
}

/// The size of a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Number of rows.
    pub rows: u64,
    /// Bytes of its values before compression.
    pub bytes: u64,
    /// The same for the largest group of rows.
    pub largest_group_bytes: u64,
}

/// A file that is read by ranges: `read` returns all bytes of a range.
pub struct Ranges<F> {
    /// Bytes of the file.
    pub size: u64,
    /// Reads a range.
    pub read: F,
}

/// The bytes after a position in a file.
pub struct RangeReader<F> {
    read: F,
    range: Range<u64>,
    piece: Bytes,
}

// === impl Rows ===

impl Rows {
    /// Opens a file before a row, counted from 0.
    ///
    /// # Errors
    /// If the file is not Parquet, is broken, or takes too much memory.
    pub fn open(file: impl ChunkReader + 'static, first: u64) -> Result<Self, Error> {
        let (end, before) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let (ends, passed) = (Rc::clone(&end), Rc::clone(&before));
        let size = Rc::new(Cell::new(Size::NOTHING));
        let sum = Rc::clone(&size);
        let is_needed = move |group: &RowGroupMetaData, _| {
            sum.set(sum.get().with(group));
            ends.set(sum.get().rows);
            if ends.get() <= first {
                passed.set(ends.get());
            }
            ends.get() > first
        };
        let options = ReadOptionsBuilder::new().with_predicate(Box::new(is_needed));
        let reader = SerializedFileReader::new_with_options(file, options.build())?;
        let (format, head) = columns_of(reader.metadata())?;
        let at_once = rows_at_once(reader.metadata().file_metadata().schema_descr());
        let rows = RowIter::from_file_into(Box::new(Bounded(reader)));
        let mut rows = rows.with_batch_size(at_once);
        for _ in before.get()..first {
            rows.next().transpose()?;
        }
        Ok(Self {
            format,
            head,
            size: size.get(),
            rows,
            number: first,
        })
    }

    /// The format that the file becomes.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The text before the lines: the names of the columns in CSV, else nothing.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// The size of the file's content.
    pub fn size(&self) -> Size {
        self.size
    }

    fn line(&self, row: &Row) -> Result<Vec<u8>, Error> {
        match self.format {
            Format::Csv => cells(row, self.number),
            Format::JsonLines => record(row, self.number),
        }
    }
}

impl Iterator for Rows {
    type Item = Result<Vec<u8>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.rows.next()?;
        self.number += 1;
        Some(row.map_err(Error::from).and_then(|row| self.line(&row)))
    }
}

/// The format that a file becomes, and the row that names its columns.
fn columns_of(metadata: &ParquetMetaData) -> Result<(Format, Vec<u8>), Error> {
    let fields = metadata.file_metadata().schema().get_fields();
    if !fields.iter().all(|field| field.is_primitive()) {
        return Ok((Format::JsonLines, Vec::new()));
    }
    let names = fields.iter().map(|field| field.name());
    let names: Vec<&str> = names.filter(|name| !name.starts_with(INDEX)).collect();
    if names.is_empty() {
        return Err(Error::Parquet("it has no columns".to_owned()));
    }
    Ok((Format::Csv, csv_row(names)?))
}

// === impl Size ===

impl Size {
    const NOTHING: Self = Self {
        rows: 0,
        bytes: 0,
        largest_group_bytes: 0,
    };

    fn with(self, group: &RowGroupMetaData) -> Self {
        let counted = |number: i64| u64::try_from(number).unwrap_or(0);
        let bytes = counted(group.total_byte_size());
        Self {
            rows: self.rows.saturating_add(counted(group.num_rows())),
            bytes: self.bytes.saturating_add(bytes),
            largest_group_bytes: self.largest_group_bytes.max(bytes),
        }
    }
}

// === impl Ranges ===

impl<F: Send + Sync> Length for Ranges<F> {
    fn len(&self) -> u64 {
        self.size
    }
}

impl<F> ChunkReader for Ranges<F>
where
    F: Fn(Range<u64>) -> io::Result<Bytes> + Clone + Send + Sync,
{
    type T = RangeReader<F>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(RangeReader {
            read: self.read.clone(),
            range: start..self.size,
            piece: Bytes::new(),
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let end = start.checked_add(length as u64);
        match end.filter(|end| *end <= self.size) {
            Some(end) if end > start => Ok((self.read)(start..end)?),
            Some(_) => Ok(Bytes::new()),
            None => Err(ParquetError::EOF("it is cut off".to_owned())),
        }
    }
}

impl<F: Fn(Range<u64>) -> io::Result<Bytes>> Read for RangeReader<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() && !self.range.is_empty() {
            let end = self.range.end.min(self.range.start + PIECE_BYTES);
            self.piece = (self.read)(self.range.start..end)?;
            self.range.start = end;
        }
        let count = buffer.len().min(self.piece.len());
        buffer[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
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

fn csv_row<T: AsRef<[u8]>>(cells: impl IntoIterator<Item = T>) -> Result<Vec<u8>, Error> {
    let mut out = csv::Writer::from_writer(Vec::new());
    let written = |error: csv::Error| Error::Output(error.into());
    out.write_record(cells).map_err(written)?;
    let row = out.into_inner();
    row.map_err(|error| Error::Output(error.into_error()))
}

fn cells(row: &Row, number: u64) -> Result<Vec<u8>, Error> {
    let cells = columns(row).map(|(column, field)| match value(field) {
        Ok(Value::Null) => Ok(String::new()),
        Ok(Value::String(text)) => Ok(text),
        Ok(other) => Ok(other.to_string()),
        Err(kind) => Err(refused(kind, number, column)),
    });
    csv_row(cells.collect::<Result<Vec<_>, _>>()?)
}

fn record(row: &Row, number: u64) -> Result<Vec<u8>, Error> {
    let (mut inputs, mut label) = (Map::new(), None);
    for (column, field) in columns(row) {
        let value = value(field).map_err(|kind| refused(kind, number, column))?;
        match column.as_str() {
            "label" | "labels" => label = Some(value).filter(|it| !it.is_null()),
            _ => drop(inputs.insert(column.clone(), value)),
        }
    }
    let mut record = json!({ "inputs": inputs });
    if let Some(label) = label {
        record["label"] = label;
    }
    Ok(format!("{record}\n").into_bytes())
}

fn refused(kind: &str, row: u64, column: &str) -> Error {
    Error::Column {
        row,
        column: column.to_owned(),
        why: format!("it holds {kind}: make numbers or text of them first"),
    }
}

/// An element as JSON: `null` is a missing value, infinities are text. The error names the refused kind of element.
fn value(field: &Field) -> Result<Value, &'static str> {
    let float = |number: f64| match number.is_infinite() {
        true => Value::from(special_text(number).trim_matches('"')),
        false => Value::from(number),
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
        Field::Float16(it) => float(it.to_f64()),
        Field::Float(it) => float((*it).into()),
        Field::Double(it) => float(*it),
        Field::Str(it) => it.as_str().into(),
        Field::Bytes(it) => match std::str::from_utf8(it.data()) {
            Ok(text) => text.into(),
            Err(_) => return Err("bytes that are not text"),
        },
        Field::ListInternal(list) => {
            let items = list.elements().iter().map(value);
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        Field::Decimal(_) => return Err("decimals"),
        Field::Date(_)
        | Field::TimeMillis(_)
        | Field::TimeMicros(_)
        | Field::TimestampMillis(_)
        | Field::TimestampMicros(_) => return Err("dates or times"),
        Field::Group(_) | Field::MapInternal(_) => return Err("structures or maps"),
    })
}
