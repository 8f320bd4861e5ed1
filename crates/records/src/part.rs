//! One chunk of answers as it is kept until the output is joined.
//!
//! A part is eight bytes (a mark and the length of the header), a header in JSON, and blocks. For
//! JSONL there is one block, the lines. For arrays there is one for each output, with a row for
//! each record, and one of lines about the records that were not answered, whose rows are zero.

use std::io::Write as _;

use bytes::Bytes;
use half::bf16;
use serde::{Deserialize, Serialize};
use sextant_formats::npy::Header;
use sextant_objects::ObjectPath;
use sextant_rpc::offline::RecordFormat;
use sextant_types::{Code, Data, DataType, NamedTensor, Tensor};

use crate::{Error, Files, json};

const MARK: &[u8; 4] = b"SXP1";

/// Bytes that are fetched in the hope that the header is within.
const HEADER_GUESS_BYTES: u64 = 4096;

/// The outputs of one record, or why there are none.
pub type Answered = Result<Vec<NamedTensor>, Refused>;

/// Why a record was not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
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
    pub answers: &'a [Answered],
    /// Whether the outputs have a batch dimension, of one row.
    pub batched: bool,
}

/// An output of the model as an array: what all records have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Type of its elements in the file.
    pub data_type: DataType,
    /// Dimensions of one record.
    pub shape: Vec<usize>,
}

/// What is known after a chunk and needed for the next.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Records that were not answered, in all chunks so far.
    pub failed: u64,
    /// The arrays of the output; none before the first answer, nor for JSONL.
    pub columns: Vec<Column>,
}

/// What a part says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartHeader {
    /// Records in it.
    pub records: u64,
    /// Records in it that were not answered.
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
    /// Bytes of one record.
    pub(crate) fn record_bytes(&self) -> u64 {
        let elements: usize = self.shape.iter().product();
        (elements * self.data_type.size().unwrap_or(1)) as u64
    }
}

impl Tally {
    /// Forgets the arrays: the next chunk begins another output.
    pub fn begin_output(&mut self) {
        self.columns.clear();
    }

    /// One chunk as a part; the tally is then that after it.
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
                let reason = "answers are written as `jsonl`, `npy` or `npz`".to_owned();
                return Err(Error::output(format.as_str(), reason));
            }
            RecordFormat::Jsonl => vec![lines(chunk, true)],
            RecordFormat::Npy | RecordFormat::Npz => {
                after.find_columns(format, chunk)?;
                let mut blocks = after.arrays(format, chunk)?;
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
        let first = chunk.answers.iter().find_map(|answer| answer.as_ref().ok());
        let (true, Some(outputs)) = (self.columns.is_empty(), first) else {
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
        };
        self.columns = outputs.iter().map(column).collect();
        let text = |column: &&Column| Header::write(column.data_type, &[0]).is_none();
        match self.columns.iter().find(text) {
            Some(column) => {
                let reason = format!("output `{}` holds strings: write `jsonl`", column.name);
                Err(Error::output(format.as_str(), reason))
            }
            None => Ok(()),
        }
    }

    fn arrays(&self, format: RecordFormat, chunk: Chunk<'_>) -> Result<Vec<Vec<u8>>, Error> {
        let column = |(place, column): (usize, &Column)| {
            let record_bytes = column.record_bytes() as usize;
            let mut block = Vec::with_capacity(record_bytes * chunk.answers.len());
            for answer in chunk.answers {
                match answer {
                    Ok(outputs) => {
                        let output = outputs.get(place).filter(|output| {
                            output.name == column.name
                                && row(&output.tensor, chunk.batched) == column.shape
                        });
                        let output = output.ok_or_else(|| uneven(format, column))?;
                        append(&mut block, &output.tensor);
                    }
                    Err(_) => block.resize(block.len() + record_bytes, 0),
                }
            }
            Ok(block)
        };
        self.columns.iter().enumerate().map(column).collect()
    }
}

fn uneven(format: RecordFormat, column: &Column) -> Error {
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
        (None, Data::Strings(_)) => {}
    }
}

/// A line for each record, or only for those that were not answered.
fn lines(chunk: Chunk<'_>, all: bool) -> Vec<u8> {
    let mut text = Vec::new();
    for (offset, answer) in chunk.answers.iter().enumerate() {
        let index = chunk.first + offset as u64;
        let line = match answer {
            Ok(outputs) if all => json::answer(index, outputs, chunk.batched),
            Ok(_) => continue,
            Err(refused) => json::refusal(index, refused.code, &refused.message),
        };
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

    /// Where a block lies in the part, bytes.
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
