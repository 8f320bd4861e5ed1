//! Answers as Parquet: a column for each output, of lists if a record has several elements.
//!
//! Rows are written in groups whose size depends on the columns alone, so that the same answers make the same file
//! whatever their chunks were. A record without an answer is null in each column.

use std::{mem, sync::Arc};

use ::parquet::{
    basic::{Compression, LogicalType, Repetition, Type as Physical},
    data_type::{
        BoolType, ByteArray, ByteArrayType, DataType as Typed, DoubleType, FloatType, Int32Type,
        Int64Type,
    },
    errors::ParquetError,
    file::{
        properties::WriterProperties,
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    schema::types::{Type, TypePtr},
};
use bytes::Bytes;
use half::f16;
use sextant_types::DataType;

use crate::{Error, part::Column, text};

/// Approximate bytes of a group's elements.
const GROUP_BYTES: u64 = 4 << 20;

/// Most rows of a group.
const MOST_ROWS: u64 = 1 << 16;

/// A file that is being written.
pub(crate) struct Sheet {
    columns: Arc<[Column]>,
    /// Its bytes are taken whenever a group is complete.
    writer: SerializedFileWriter<Vec<u8>>,
    /// Elements that wait for their group, by column.
    waiting: Vec<Cells>,
    /// Whether each waiting row has an answer.
    there: Vec<bool>,
    group_rows: usize,
}

/// Elements of rows, one after the other, also of rows without an answer.
enum Cells {
    Plain(Vec<u8>),
    Texts(Vec<ByteArray>),
}

type Group<'a> = SerializedRowGroupWriter<'a, Vec<u8>>;

// === impl Sheet ===

impl Sheet {
    /// A file without rows.
    pub(crate) fn new(columns: &[Column]) -> Result<Self, Error> {
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
        let writer = schema(columns).and_then(|schema| {
            SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties.build()))
        });
        let record_bytes: u64 = columns.iter().map(Column::record_bytes).sum();
        let group_rows = (GROUP_BYTES / record_bytes.max(1)).clamp(1, MOST_ROWS);
        let cells = |column: &Column| match column.is_text() {
            true => Cells::Texts(Vec::new()),
            false => Cells::Plain(Vec::new()),
        };
        Ok(Self {
            writer: writer.map_err(|error| failed(&error))?,
            waiting: columns.iter().map(cells).collect(),
            there: Vec::new(),
            group_rows: group_rows as usize,
            columns: columns.into(),
        })
    }

    /// Appends rows: the block of a part for each column, and whether each row has an answer. `None` for a block that
    /// nobody wrote.
    pub(crate) fn append(&mut self, blocks: &[Bytes], there: &[u8]) -> Option<()> {
        for (cells, block) in self.waiting.iter_mut().zip(blocks) {
            match cells {
                Cells::Plain(bytes) => bytes.extend_from_slice(block),
                Cells::Texts(texts) => {
                    for text in text::all(block.clone()) {
                        texts.push(ByteArray::from(text?.into_bytes()));
                    }
                }
            }
        }
        self.there.extend(there.iter().map(|it| *it != 0));
        Some(())
    }

    /// Appends rows without an answer.
    pub(crate) fn append_nothing(&mut self, rows: usize) {
        for (cells, column) in self.waiting.iter_mut().zip(self.columns.iter()) {
            match cells {
                Cells::Plain(bytes) => {
                    bytes.resize(bytes.len() + rows * column.record_bytes() as usize, 0);
                }
                Cells::Texts(texts) => {
                    let elements = rows * column.elements();
                    texts.extend((0..elements).map(|_| ByteArray::from("")));
                }
            }
        }
        self.there.extend((0..rows).map(|_| false));
    }

    /// The bytes of the next group, once all of its rows have been appended.
    pub(crate) fn group(&mut self) -> Result<Option<Bytes>, Error> {
        match self.there.len() >= self.group_rows {
            true => self.write(self.group_rows).map(Some),
            false => Ok(None),
        }
    }

    /// The bytes of the last group and of the footer.
    pub(crate) fn end(mut self) -> Result<Bytes, Error> {
        let mut last = match self.there.len() {
            0 => Bytes::new(),
            rows => self.write(rows)?,
        }
        .to_vec();
        let mut rest = self.writer.into_inner().map_err(|error| failed(&error))?;
        last.append(&mut rest);
        Ok(last.into())
    }

    fn write(&mut self, rows: usize) -> Result<Bytes, Error> {
        let there: Vec<bool> = self.there.drain(..rows).collect();
        let mut group = self
            .writer
            .next_row_group()
            .map_err(|error| failed(&error))?;
        for (column, cells) in self.columns.iter().zip(&mut self.waiting) {
            write(&mut group, (column, cells), &there).map_err(|error| failed(&error))?;
        }
        group.close().map_err(|error| failed(&error))?;
        let flushed = self.writer.flush().map_err(ParquetError::from);
        flushed.map_err(|error| failed(&error))?;
        Ok(mem::take(self.writer.inner_mut()).into())
    }
}

fn failed(error: &ParquetError) -> Error {
    Error::output("parquet", error.to_string())
}

/// A column for each output.
fn schema(columns: &[Column]) -> Result<TypePtr, ParquetError> {
    let fields = columns.iter().map(|column| field(column).map(Arc::new));
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder("answers").with_fields(fields);
    schema.build().map(Arc::new)
}

/// One element, or lists as deep as a record has dimensions.
fn field(column: &Column) -> Result<Type, ParquetError> {
    if is_single(column) {
        return leaf(&column.name, column.data_type, Repetition::OPTIONAL);
    }
    let mut inner = leaf("element", column.data_type, Repetition::REQUIRED)?;
    for depth in (0..column.shape.len()).rev() {
        let list = Type::group_type_builder("list")
            .with_repetition(Repetition::REPEATED)
            .with_fields(vec![Arc::new(inner)]);
        let (name, repetition) = match depth {
            0 => (column.name.as_str(), Repetition::OPTIONAL),
            _ => ("element", Repetition::REQUIRED),
        };
        inner = Type::group_type_builder(name)
            .with_repetition(repetition)
            .with_logical_type(Some(LogicalType::List))
            .with_fields(vec![Arc::new(list.build()?)])
            .build()?;
    }
    Ok(inner)
}

fn leaf(name: &str, data_type: DataType, repetition: Repetition) -> Result<Type, ParquetError> {
    let whole = |bits, is_signed| Some(LogicalType::integer(bits, is_signed));
    let (physical, logical) = match data_type {
        DataType::Bool => (Physical::BOOLEAN, None),
        DataType::Int8 => (Physical::INT32, whole(8, true)),
        DataType::Int16 => (Physical::INT32, whole(16, true)),
        DataType::Int32 => (Physical::INT32, whole(32, true)),
        DataType::Int64 => (Physical::INT64, whole(64, true)),
        DataType::Uint8 => (Physical::INT32, whole(8, false)),
        DataType::Uint16 => (Physical::INT32, whole(16, false)),
        DataType::Uint32 => (Physical::INT32, whole(32, false)),
        DataType::Uint64 => (Physical::INT64, whole(64, false)),
        DataType::Fp16 | DataType::Bf16 | DataType::Fp32 => (Physical::FLOAT, None),
        DataType::Fp64 => (Physical::DOUBLE, None),
        DataType::Bytes => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    Type::primitive_type_builder(name, physical)
        .with_repetition(repetition)
        .with_logical_type(logical)
        .build()
}

/// Whether a record has one element, which needs no list.
fn is_single(column: &Column) -> bool {
    column.shape.len() <= 1 && column.elements() == 1
}

/// Writes a column of a group, and removes its elements from the waiting ones.
fn write(
    group: &mut Group<'_>,
    (column, cells): (&Column, &mut Cells),
    there: &[bool],
) -> Result<(), ParquetError> {
    let elements = column.elements();
    let bytes = match cells {
        Cells::Texts(texts) => {
            let texts: Vec<ByteArray> = texts.drain(..there.len() * elements).collect();
            let texts = kept(&texts, elements, there).concat();
            return values::<ByteArrayType>(group, &texts, (column, there));
        }
        Cells::Plain(bytes) => {
            let record_bytes = column.record_bytes() as usize;
            let bytes: Vec<u8> = bytes.drain(..there.len() * record_bytes).collect();
            kept(&bytes, record_bytes, there).concat()
        }
    };
    let of = (column, there);
    match column.data_type {
        DataType::Bool => {
            let flags: Vec<bool> = bytes.iter().map(|it| *it != 0).collect();
            values::<BoolType>(group, &flags, of)
        }
        DataType::Int8 => values::<Int32Type>(group, &read(&bytes, i8::from_le_bytes), of),
        DataType::Int16 => values::<Int32Type>(group, &read(&bytes, i16::from_le_bytes), of),
        DataType::Int32 => values::<Int32Type>(group, &read(&bytes, i32::from_le_bytes), of),
        DataType::Uint8 => values::<Int32Type>(group, &read(&bytes, u8::from_le_bytes), of),
        DataType::Uint16 => values::<Int32Type>(group, &read(&bytes, u16::from_le_bytes), of),
        // Parquet stores unsigned numbers in the bits of signed ones.
        DataType::Uint32 => values::<Int32Type>(group, &read(&bytes, i32::from_le_bytes), of),
        DataType::Int64 | DataType::Uint64 => {
            values::<Int64Type>(group, &read(&bytes, i64::from_le_bytes), of)
        }
        DataType::Fp16 => values::<FloatType>(group, &read(&bytes, f16::from_le_bytes), of),
        DataType::Fp64 => values::<DoubleType>(group, &read(&bytes, f64::from_le_bytes), of),
        // BF16 was converted to FP32 when it was answered, and texts are not handled here.
        DataType::Fp32 | DataType::Bf16 | DataType::Bytes => {
            values::<FloatType>(group, &read(&bytes, f32::from_le_bytes), of)
        }
    }
}

/// The elements of rows with an answer, `each` elements per row.
fn kept<'a, T>(all: &'a [T], each: usize, there: &[bool]) -> Vec<&'a [T]> {
    let rows = all.chunks(each.max(1)).zip(there);
    rows.filter(|(_, there)| **there)
        .map(|(row, _)| row)
        .collect()
}

fn read<const N: usize, T, U: From<T>>(bytes: &[u8], read: fn([u8; N]) -> T) -> Vec<U> {
    let (elements, _) = bytes.as_chunks::<N>();
    elements.iter().map(|it| read(*it).into()).collect()
}

fn values<T: Typed>(
    group: &mut Group<'_>,
    values: &[T::T],
    (column, there): (&Column, &[bool]),
) -> Result<(), ParquetError> {
    let (definition, repetition) = levels(column, there);
    let repetition = (!is_single(column)).then_some(&repetition[..]);
    let writer = group.next_column()?;
    let mut writer =
        writer.ok_or_else(|| ParquetError::General("the schema has fewer columns".to_owned()))?;
    let typed = writer.typed::<T>();
    typed.write_batch(values, Some(&definition), repetition)?;
    writer.close()
}

/// The definition level and the repetition level of each element.
fn levels(column: &Column, there: &[bool]) -> (Vec<i16>, Vec<i16>) {
    let elements = column.elements();
    let depth = match is_single(column) {
        true => 0,
        false => column.shape.len() as i16,
    };
    let (mut definition, mut repetition) = (Vec::new(), Vec::new());
    for is_there in there {
        match (is_there, elements) {
            (false, _) => {
                definition.push(0);
                repetition.push(0);
            }
            (true, 0) => {
                definition.push(1);
                repetition.push(0);
            }
            (true, _) => {
                definition.extend(std::iter::repeat_n(1 + depth, elements));
                repetition.extend((0..elements).map(|at| depth - begun(&column.shape, at)));
            }
        }
    }
    (definition, repetition)
}

/// Number of lists that begin with an element.
fn begun(shape: &[usize], at: usize) -> i16 {
    let mut span = 1;
    let spans = shape.iter().rev().map(|size| {
        span *= size;
        span
    });
    spans.take_while(|span| at.is_multiple_of(*span)).count() as i16
}
