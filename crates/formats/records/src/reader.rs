//! The records of a file, in order, a chunk at a time.

use std::sync::Arc;

use bytes::Bytes;
use sextant_objects::ObjectPath;
use sextant_types::{NamedTensor, Signature, offline::RecordFormat};

use crate::{
    Error, Files, Outline,
    csv::{self, Rows},
    json,
    lines::Lines,
    parquet::Table,
    tensors::{self, Array},
    whole::WholeFiles,
};

/// Bytes of records of unknown size that are read at once; the last record may exceed it.
pub(crate) const BYTES_AT_ONCE: usize = 64 << 20;

/// The inputs of one record, with a batch of one if the model has batches; or why there are none.
pub type Record = Result<Vec<NamedTensor>, String>;

/// Reads a file that was read through before.
pub struct Reader {
    files: Files,
    path: ObjectPath,
    signature: Arc<Signature>,
    source: Source,
}

enum Source {
    Lines(Lines),
    Rows(Arc<Rows>, Lines),
    Table(Table),
    Arrays { arrays: Arc<[Array]>, next: u64 },
    Wholes(WholeFiles),
}

/// Records as they are in their file.
pub struct Unparsed(Content);

enum Content {
    /// Lines, or why there are none.
    Lines {
        lines: Vec<Line>,
        /// How they become records; `None` if they are JSON.
        rows: Option<Arc<Rows>>,
        signature: Arc<Signature>,
    },
    Arrays {
        arrays: Arc<[Array]>,
        /// The elements of all records, by array.
        bytes: Vec<Bytes>,
        count: usize,
        batched: bool,
    },
    /// Records that need no parsing.
    Records(Vec<Record>),
}

/// A line, or why there is none.
pub(crate) type Line = Result<Bytes, String>;

impl Reader {
    /// Opens a file at record `first`; refuses a file that has changed since it was read through.
    pub async fn open(
        files: &Files,
        path: &ObjectPath,
        outline: &Outline,
        signature: &Signature,
        first: u64,
    ) -> Result<Self, Error> {
        outline.check(files, path).await?;
        let size = outline.size_bytes;
        let mark = outline.mark(first);
        let source = match outline.format {
            RecordFormat::Jsonl => {
                let mut lines = Lines::new(files.clone(), path.clone(), size, mark.byte);
                skip(&mut lines, path, first - mark.record).await?;
                Source::Lines(lines)
            }
            RecordFormat::Csv => {
                let (rows, mut lines) = csv::open(files, path, size, signature).await?;
                if mark.byte > 0 {
                    lines = Lines::rows(files.clone(), path.clone(), size, mark.byte);
                }
                skip(&mut lines, path, first - mark.record).await?;
                Source::Rows(Arc::new(rows), lines)
            }
            RecordFormat::Parquet => {
                Source::Table(Table::open(files, path, (size, first), signature).await?)
            }
            RecordFormat::File => Source::Wholes(WholeFiles::new(outline, signature, first)),
            format @ (RecordFormat::Npy | RecordFormat::Npz) => {
                let arrays = tensors::arrays(files, path, (format, size), signature).await?;
                Source::Arrays {
                    arrays: arrays.into(),
                    next: first,
                }
            }
        };
        Ok(Self {
            files: files.clone(),
            path: path.clone(),
            signature: Arc::new(signature.clone()),
            source,
        })
    }

    /// The next `count` records, all of which must exist.
    pub async fn read(&mut self, count: u32) -> Result<Vec<Record>, Error> {
        let mut records = Vec::new();
        while records.len() < count as usize {
            let left = count - records.len() as u32;
            records.extend(self.fetch(left).await?.parse());
        }
        Ok(records)
    }

    /// The next records before they are parsed, since parsing takes a core for a while: up to `count`, fewer if they
    /// are large, but at least one.
    pub async fn fetch(&mut self, count: u32) -> Result<Unparsed, Error> {
        let signature = Arc::clone(&self.signature);
        let content = match &mut self.source {
            Source::Lines(lines) => Content::Lines {
                lines: next_lines(lines, &self.path, count).await?,
                rows: None,
                signature,
            },
            Source::Rows(rows, lines) => Content::Lines {
                lines: next_lines(lines, &self.path, count).await?,
                rows: Some(Arc::clone(rows)),
                signature,
            },
            Source::Table(table) => Content::Lines {
                lines: table.lines(count).await?,
                rows: table.columns(),
                signature,
            },
            Source::Wholes(wholes) => Content::Records(wholes.read(&self.files, count).await?),
            Source::Arrays { arrays, next } => {
                let rows = (*next, u64::from(count));
                *next += u64::from(count);
                Content::Arrays {
                    bytes: elements(&self.files, &self.path, arrays, rows).await?,
                    arrays: Arc::clone(arrays),
                    count: count as usize,
                    batched: signature.batched,
                }
            }
        };
        Ok(Unparsed(content))
    }
}

impl Unparsed {
    /// The records.
    pub fn parse(self) -> Vec<Record> {
        match self.0 {
            Content::Lines {
                lines,
                rows,
                signature,
            } => {
                let record = |line: Line| -> Record {
                    match &rows {
                        Some(rows) => rows.parse(&line?),
                        None => json::parse(&line?, &signature),
                    }
                };
                lines.into_iter().map(record).collect()
            }
            Content::Arrays {
                arrays,
                bytes,
                count,
                batched,
            } => rows_of(&arrays, &bytes, count, batched),
            Content::Records(records) => records,
        }
    }
}

async fn skip(lines: &mut Lines, path: &ObjectPath, count: u64) -> Result<(), Error> {
    for _ in 0..count {
        next_line(lines, path).await?;
    }
    Ok(())
}

async fn next_line(lines: &mut Lines, path: &ObjectPath) -> Result<Bytes, Error> {
    let line = lines.next().await?;
    line.ok_or_else(|| Error::Changed {
        path: path.to_string(),
    })
}

/// Up to `count` lines, fewer if they are long, but at least one.
async fn next_lines(lines: &mut Lines, path: &ObjectPath, count: u32) -> Result<Vec<Line>, Error> {
    let (mut found, mut bytes) = (Vec::new(), 0);
    while found.len() < count as usize && bytes < BYTES_AT_ONCE {
        let line = next_line(lines, path).await?;
        bytes += line.len();
        found.push(Ok(line));
    }
    Ok(found)
}

/// The elements of `count` records from `first` on, by array.
async fn elements(
    files: &Files,
    path: &ObjectPath,
    arrays: &[Array],
    (first, count): (u64, u64),
) -> Result<Vec<Bytes>, Error> {
    let mut found = Vec::with_capacity(arrays.len());
    for array in arrays {
        let start = array.start + first * array.record_bytes;
        let end = start + count * array.record_bytes;
        let bytes = match end - start {
            0 => Bytes::new(),
            _ => files.get_range(path, start..end).await?,
        };
        if bytes.len() as u64 != end - start {
            return Err(Error::Changed {
                path: path.to_string(),
            });
        }
        found.push(bytes);
    }
    Ok(found)
}

fn rows_of(arrays: &[Array], bytes: &[Bytes], count: usize, batched: bool) -> Vec<Record> {
    let mut records: Vec<Record> = vec![Ok(Vec::new()); count];
    for (array, bytes) in arrays.iter().zip(bytes) {
        let rows = array.decode(bytes, count, batched);
        for (record, row) in records.iter_mut().zip(rows) {
            match (record.as_mut(), row) {
                (Ok(inputs), Ok(row)) => inputs.push(row),
                (Ok(_), Err(problem)) => {
                    *record = Err(format!("input `{}`: {problem}", array.input));
                }
                (Err(_), _) => {}
            }
        }
    }
    records
}
