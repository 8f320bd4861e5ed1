//! The records of a file, in order, a chunk at a time.

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

/// The inputs of one record, with a batch of one where the model has batches; or why there are
/// none.
pub type Record = Result<Vec<NamedTensor>, String>;

/// Reads a file that was looked through.
pub struct Reader {
    files: Files,
    path: ObjectPath,
    signature: Signature,
    source: Source,
}

enum Source {
    Lines(Lines),
    Rows(Rows, Lines),
    Table(Table),
    Arrays { arrays: Vec<Array>, next: u64 },
    Wholes(WholeFiles),
}

impl Reader {
    /// Opens a file at record `first`; refuses one that changed since it was looked through.
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
                Source::Rows(rows, lines)
            }
            RecordFormat::Parquet => {
                Source::Table(Table::open(files, path, (size, first), signature).await?)
            }
            RecordFormat::File => Source::Wholes(WholeFiles::new(outline, signature, first)),
            format @ (RecordFormat::Npy | RecordFormat::Npz) => {
                let arrays = tensors::arrays(files, path, (format, size), signature).await?;
                Source::Arrays {
                    arrays,
                    next: first,
                }
            }
        };
        Ok(Self {
            files: files.clone(),
            path: path.clone(),
            signature: signature.clone(),
            source,
        })
    }

    /// The next `count` records, all of which must be there.
    pub async fn read(&mut self, count: u32) -> Result<Vec<Record>, Error> {
        match &mut self.source {
            Source::Lines(lines) => {
                let mut records = Vec::with_capacity(count as usize);
                for _ in 0..count {
                    let line = next_line(lines, &self.path).await?;
                    records.push(json::parse(&line, &self.signature));
                }
                Ok(records)
            }
            Source::Rows(rows, lines) => {
                let mut records = Vec::with_capacity(count as usize);
                for _ in 0..count {
                    let line = next_line(lines, &self.path).await?;
                    records.push(rows.parse(&line));
                }
                Ok(records)
            }
            Source::Table(table) => table.read(count, &self.signature).await,
            Source::Wholes(wholes) => wholes.read(&self.files, count).await,
            Source::Arrays { arrays, next } => {
                let rows = (*next, u64::from(count));
                *next += u64::from(count);
                let batched = self.signature.batched;
                rows_of(&self.files, &self.path, arrays, rows, batched).await
            }
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

async fn rows_of(
    files: &Files,
    path: &ObjectPath,
    arrays: &[Array],
    (first, count): (u64, u64),
    batched: bool,
) -> Result<Vec<Record>, Error> {
    let mut records: Vec<Record> = vec![Ok(Vec::new()); count as usize];
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
        let rows = array.decode(&bytes, count as usize, batched);
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
    Ok(records)
}
