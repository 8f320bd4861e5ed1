//! One chunk of answers, stored until the output is joined.
//!
//! A part is eight bytes (a mark and the length of the header), a header in JSON, and blocks. For JSONL there is one
//! block, the lines. For arrays there is one block for each output, with a row for each record, and one with lines
//! about the records that were not answered, whose rows are zero. For CSV there is one block of rows instead of the
//! arrays. For Parquet there is one more block after the arrays, with a byte for each record that says whether it was
//! answered.

use std::io::Write as _;

use bytes::Bytes;
use half::bf16;
use serde::{Deserialize, Serialize};
use sextant_objects::ObjectPath;
use sextant_types::{Code, Data, DataType, NamedTensor, Tensor, offline::RecordFormat};

use crate::{Error, Files, json, rows, text};

const MARK: &[u8; 4] = b"SXP1";

/// Bytes that are read at first, which mostly contain the header.
const HEADER_GUESS_BYTES: u64 = 4096;

/// The outputs of one record, or why there are none.
pub type RecordAnswer = Result<Vec<NamedTensor>, RecordFailure>;

/// Why a record was not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordFailure {
    /// A stable code.
    pub code: Code,
    /// What happened.
    pub message: String,
}

/// Answers to neighbouring records.
#[derive(Debug, Clone, Copy)]
pub struct Chunk<'a> {
    /// Place of the first record in the output, from 0.
    pub first: u64,
    /// In the order of the records.
    pub answers: &'a [RecordAnswer],
    /// Whether the outputs have a batch dimension, of one row.
    pub batched: bool,
    /// The paths of the files, if the records are files; empty if they are parts of files.
    pub names: &'a [String],
}

/// An output of the model as an array: the properties that all records share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Type of its elements in the file.
    pub data_type: DataType,
    /// Dimensions of one record.
    pub shape: Vec<usize>,
    /// Code points of the longest text so far; 0 if they are not texts.
    #[serde(default)]
    pub width: usize,
}

/// What is known after a chunk and needed for the next.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Records that were not answered, in all chunks so far.
    pub failed: u64,
    /// The arrays of the output, or the content of the columns of CSV; empty before the first answer, and for JSONL.
    pub columns: Vec<Column>,
}

/// The header of a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartHeader {
    /// Number of records.
    pub records: u64,
    /// Number of records that were not answered.
    pub refused: u64,
    /// What is known after it.
    pub tally: Tally,
    pub(crate) blocks: Vec<Block>,
    /// Where the blocks begin, bytes.
    #[serde(skip)]
    pub(crate) start: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Block {
    pub(crate) bytes: u64,
    pub(crate) crc: u32,
}

impl Column {
    /// Elements of one record.
    pub(crate) fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes of one record in an array.
    pub(crate) fn record_bytes(&self) -> u64 {
        let element = self.data_type.size();
        let element = element.unwrap_or_else(|| self.points() * text::POINT_BYTES);
        (self.elements() * element) as u64
    }

    /// Code points that an array has room for in each text.
    pub(crate) fn points(&self) -> usize {
        self.width.max(1)
    }

    /// Whether its elements are texts.
    pub(crate) fn is_text(&self) -> bool {
        self.data_type == DataType::Bytes
    }

    /// Makes room for the texts of an output.
    fn widen(&mut self, tensor: &Tensor) {
        if let Data::Strings(strings) = tensor.data() {
            let widest = strings.iter().map(text::points).max();
            self.width = self.width.max(widest.unwrap_or(0));
        }
    }

    /// The output at this position of one record, if this column can hold it.
    pub(crate) fn of<'a>(
        &self,
        outputs: &'a [NamedTensor],
        place: usize,
        batched: bool,
    ) -> Option<&'a Tensor> {
        let output = outputs.get(place)?;
        let is_same = output.name == self.name && row(&output.tensor, batched) == self.shape;
        is_same.then_some(&output.tensor)
    }
}

impl Tally {
    /// Forgets the arrays: the next chunk begins another output.
    pub fn begin_output(&mut self) {
        self.columns.clear();
    }

    /// One chunk as a part; the tally is updated.
    pub fn encode(&mut self, format: RecordFormat, chunk: Chunk<'_>) -> Result<Bytes, Error> {
        let refused = chunk
            .answers
            .iter()
            .filter(|answer| answer.is_err())
            .count() as u64;
        let mut after = self.clone();
        after.failed += refused;
        let blocks = match format {
            RecordFormat::Csv => {
                after.find_columns(format, chunk)?;
                vec![rows::block(&after.columns, chunk)?, lines(chunk, false)]
            }
            RecordFormat::Jsonl | RecordFormat::File => vec![lines(chunk, true)],
            RecordFormat::Npy | RecordFormat::Npz | RecordFormat::Parquet => {
                after.find_columns(format, chunk)?;
                after.widen(chunk);
                let mut blocks = after.arrays(format, chunk)?;
                if format == RecordFormat::Parquet {
                    let answered = chunk.answers.iter().map(|it| u8::from(it.is_ok()));
                    blocks.push(answered.collect());
                }
                blocks.push(lines(chunk, false));
                blocks
            }
        };
        let header = PartHeader {
            records: chunk.answers.len() as u64,
            refused,
            tally: after.clone(),
            blocks: blocks.iter().map(|block| Block::of(block)).collect(),
            start: 0,
        };
        let part = header.write(&blocks, format)?;
        *self = after;
        Ok(part)
    }

    fn find_columns(&mut self, format: RecordFormat, chunk: Chunk<'_>) -> Result<(), Error> {
        if self.columns.is_empty() {
            self.begin_columns(format, chunk)?;
        }
        // A pipeline leaves out what steps would have given that were skipped.
        let mut answered = chunk.answers.iter().flatten();
        match answered.all(|outputs| outputs.len() == self.columns.len()) {
            true => Ok(()),
            false => {
                let reason = "not every record has the same outputs: write `jsonl`";
                Err(Error::output(format.as_str(), reason))
            }
        }
    }

    fn begin_columns(&mut self, format: RecordFormat, chunk: Chunk<'_>) -> Result<(), Error> {
        let first = chunk.answers.iter().find_map(|answer| answer.as_ref().ok());
        let Some(outputs) = first else {
            return Ok(());
        };
        if format == RecordFormat::Npy && outputs.len() != 1 {
            let reason = format!("the model has {} outputs: write `npz`", outputs.len());
            return Err(Error::output(format.as_str(), reason));
        }
        let column = |output: &NamedTensor| Column {
            name: output.name.clone(),
            data_type: stored_type(output.tensor.data_type()),
            shape: row(&output.tensor, chunk.batched).to_vec(),
            width: 0,
        };
        self.columns = outputs.iter().map(column).collect();
        Ok(())
    }

    fn widen(&mut self, chunk: Chunk<'_>) {
        let texts = self.columns.iter_mut().enumerate();
        for (place, column) in texts.filter(|(_, column)| column.is_text()) {
            let answered = chunk.answers.iter().flatten();
            let outputs = answered.filter_map(|outputs| outputs.get(place));
            outputs.for_each(|output| column.widen(&output.tensor));
        }
    }

    fn arrays(&self, format: RecordFormat, chunk: Chunk<'_>) -> Result<Vec<Vec<u8>>, Error> {
        let column = |(place, column): (usize, &Column)| {
            let mut block = Vec::new();
            for answer in chunk.answers {
                match answer {
                    Ok(outputs) => {
                        let output = column.of(outputs, place, chunk.batched);
                        append(&mut block, output.ok_or_else(|| uneven(format, column))?);
                    }
                    Err(_) => append_nothing(&mut block, column),
                }
            }
            Ok(block)
        };
        self.columns.iter().enumerate().map(column).collect()
    }
}

pub(crate) fn uneven(format: RecordFormat, column: &Column) -> Error {
    let (name, shape) = (&column.name, &column.shape);
    let reason = format!("output `{name}` is not {shape:?} for every record: write `jsonl`");
    Error::output(format.as_str(), reason)
}

/// The dimensions of one record.
fn row(tensor: &Tensor, batched: bool) -> &[usize] {
    let skipped = usize::from(batched);
    tensor.shape().get(skipped..).unwrap_or_default()
}

fn stored_type(data_type: DataType) -> DataType {
    match data_type {
        DataType::Bf16 => DataType::Fp32,
        other => other,
    }
}

fn append(block: &mut Vec<u8>, tensor: &Tensor) {
    let wide = tensor.to_vec::<bf16>();
    match (wide, tensor.data()) {
        (Some(values), _) => {
            let bytes = values
                .into_iter()
                .flat_map(|value| value.to_f32().to_le_bytes());
            block.extend(bytes);
        }
        (None, Data::Plain(bytes)) => block.extend_from_slice(bytes),
        (None, Data::Strings(strings)) => strings.iter().for_each(|it| text::append(block, it)),
    }
}

/// Appends the placeholder of a record that was not answered.
fn append_nothing(block: &mut Vec<u8>, column: &Column) {
    match column.is_text() {
        true => (0..column.elements()).for_each(|_| text::append(block, b"")),
        false => block.resize(block.len() + column.record_bytes() as usize, 0),
    }
}

/// A line for each record, or only for those that were not answered.
fn lines(chunk: Chunk<'_>, all: bool) -> Vec<u8> {
    let mut text = Vec::new();
    for (offset, answer) in chunk.answers.iter().enumerate() {
        let index = chunk.first + offset as u64;
        let mut line = match answer {
            Ok(outputs) if all => json::answer(index, outputs, chunk.batched),
            Ok(_) => continue,
            Err(refused) => json::refusal(index, refused.code, &refused.message),
        };
        if let Some(name) = chunk.names.get(offset) {
            line["file"] = name.as_str().into();
        }
        // Writing into memory cannot fail.
        writeln!(text, "{line}").ok();
    }
    text
}

// === impl PartHeader ===

impl PartHeader {
    /// Reads the header of a part.
    pub async fn read(files: &Files, path: &ObjectPath) -> Result<Self, Error> {
        let damaged = |reason| Error::Part {
            path: path.to_string(),
            reason,
        };
        let mut bytes = files.get_range(path, 0..HEADER_GUESS_BYTES).await?;
        if !bytes.starts_with(MARK) || bytes.len() < 8 {
            return Err(damaged("it does not begin as parts do"));
        }
        let length = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let start = 8 + u64::from(length);
        if (bytes.len() as u64) < start {
            bytes = files.get_range(path, 0..start).await?;
        }
        let text = bytes.get(8..start as usize);
        let text = text.ok_or_else(|| damaged("its header is cut off"))?;
        let header: Self =
            serde_json::from_slice(text).map_err(|_| damaged("its header is unreadable"))?;
        Ok(Self { start, ..header })
    }

    fn write(&self, blocks: &[Vec<u8>], format: RecordFormat) -> Result<Bytes, Error> {
        let unwritable = |error: String| Error::output(format.as_str(), error);
        let header = serde_json::to_vec(self).map_err(|error| unwritable(error.to_string()))?;
        let length = u32::try_from(header.len()).map_err(|error| unwritable(error.to_string()))?;
        let mut part = MARK.to_vec();
        part.extend_from_slice(&length.to_le_bytes());
        part.extend_from_slice(&header);
        blocks
            .iter()
            .for_each(|block| part.extend_from_slice(block));
        Ok(Bytes::from(part))
    }

    /// Where a block is in the part, bytes.
    pub(crate) fn place(&self, block: usize) -> Option<(u64, Block)> {
        let before: u64 = self
            .blocks
            .iter()
            .take(block)
            .map(|block| block.bytes)
            .sum();
        Some((self.start + before, *self.blocks.get(block)?))
    }
}

impl Block {
    fn of(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.len() as u64,
            crc: crc32fast::hash(bytes),
        }
    }
}
