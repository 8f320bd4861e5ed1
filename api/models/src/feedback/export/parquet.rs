//! An export as Parquet: a group of rows for each page, written as it is read.

use std::{
    io::{self, Write},
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;
use parquet::{
    basic::Compression,
    data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type},
    errors::ParquetError,
    file::{
        properties::WriterProperties,
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    schema::parser::parse_message_type,
};
use sextant_registry::Feedback;

use super::RowBody;

/// One column for each member of a line.
const SCHEMA: &str = "message feedback {
    required binary query (STRING);
    required int32 row;
    required binary kind (STRING);
    required binary value (JSON);
    optional double score;
    required binary model (STRING);
    optional int32 version;
    required binary variant (STRING);
    required double propensity;
    required int64 answered_ms (TIMESTAMP(MILLIS, true));
    required int64 given_ms (TIMESTAMP(MILLIS, true));
    optional binary subject (STRING);
    required binary actor (STRING);
}";

/// A file that is being written; its complete bytes are taken from it.
pub(super) struct File {
    writer: Option<SerializedFileWriter<Shared>>,
    written: Shared,
}

/// Bytes that were written and not taken yet.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

type Group<'a> = SerializedRowGroupWriter<'a, Shared>;

// === impl File ===

impl File {
    /// A file without rows.
    pub(super) fn new() -> Result<Self, ParquetError> {
        let written = Shared::default();
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .build();
        let writer = SerializedFileWriter::new(written.clone(), schema, Arc::new(properties))?;
        Ok(Self {
            writer: Some(writer),
            written,
        })
    }

    /// Appends rows, and returns the bytes that are complete. Without rows it ends the file.
    pub(super) fn append(&mut self, rows: &[Feedback]) -> Result<Bytes, ParquetError> {
        match (&mut self.writer, rows.is_empty()) {
            (Some(writer), false) => {
                let mut group = writer.next_row_group()?;
                write(&mut group, rows)?;
                group.close()?;
            }
            (writer, _) => {
                if let Some(writer) = writer.take() {
                    writer.close()?;
                }
            }
        }
        Ok(std::mem::take(&mut *self.written.0.lock()).into())
    }

    /// Whether the file has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.writer.is_none()
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes the columns in the order of the schema.
fn write(group: &mut Group<'_>, rows: &[Feedback]) -> Result<(), ParquetError> {
    let bodies: Vec<RowBody<'_>> = rows.iter().map(RowBody::new).collect();
    let each = || bodies.iter();
    texts(group, each().map(|it| it.query))?;
    let numbers = each().map(|it| it.row.cast_signed());
    column::<Int32Type>(group, &numbers.collect::<Vec<_>>(), None)?;
    texts(group, each().map(|it| it.kind))?;
    texts(group, rows.iter().map(|row| row.value.as_str()))?;
    optional::<DoubleType>(group, each().map(|it| it.score))?;
    texts(group, each().map(|it| it.model))?;
    let versions = each().map(|it| it.version.map(u32::cast_signed));
    optional::<Int32Type>(group, versions)?;
    texts(group, each().map(|it| it.variant))?;
    let shares = each().map(|it| it.propensity);
    column::<DoubleType>(group, &shares.collect::<Vec<_>>(), None)?;
    let times = each().map(|it| it.answered_ms.cast_signed());
    column::<Int64Type>(group, &times.collect::<Vec<_>>(), None)?;
    let times = each().map(|it| it.given_ms.cast_signed());
    column::<Int64Type>(group, &times.collect::<Vec<_>>(), None)?;
    let subjects = each().map(|it| it.subject.map(ByteArray::from));
    optional::<ByteArrayType>(group, subjects)?;
    texts(group, each().map(|it| it.actor))
}

fn texts<'a>(
    group: &mut Group<'_>,
    texts: impl Iterator<Item = &'a str>,
) -> Result<(), ParquetError> {
    let texts: Vec<ByteArray> = texts.map(ByteArray::from).collect();
    column::<ByteArrayType>(group, &texts, None)
}

fn optional<T: DataType>(
    group: &mut Group<'_>,
    values: impl Iterator<Item = Option<T::T>>,
) -> Result<(), ParquetError> {
    let values: Vec<Option<T::T>> = values.collect();
    let levels: Vec<i16> = values.iter().map(|it| i16::from(it.is_some())).collect();
    let there: Vec<T::T> = values.into_iter().flatten().collect();
    column::<T>(group, &there, Some(&levels))
}

fn column<T: DataType>(
    group: &mut Group<'_>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let column = group.next_column()?;
    let mut column =
        column.ok_or_else(|| ParquetError::General("the schema has fewer columns".to_owned()))?;
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}
