//! The content of a file of records: it is found once, so that a later reader finds its place.

use serde::{Deserialize, Serialize};
use sextant_objects::{ObjectInfo, ObjectPath};
use sextant_types::{Signature, offline::RecordFormat};

use crate::{Error, Files, WholeFile, csv, lines::Lines, parquet::Table, tensors};

/// Bytes between two marks.
const MARK_EVERY_BYTES: u64 = 16 << 20;

/// Most bytes of arrays that are read as one chunk.
const MAX_CHUNK_BYTES: u64 = 64 << 20;

/// The content of a file, and the file's version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outline {
    /// Its format.
    pub format: RecordFormat,
    /// Its size, bytes.
    pub size_bytes: u64,
    /// When it was last written, ms since the Unix epoch.
    pub modified_ms: u64,
    /// Records in it.
    pub records: u64,
    /// Bytes of one record, on average in Parquet; 0 if they differ.
    pub record_bytes: u64,
    /// Places from which lines can be read without those before them, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
    /// The files, in order, if each is one record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<WholeFile>,
}

/// Where a record begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Which record, from 0.
    pub record: u64,
    /// Its first byte, or one of the empty lines before it.
    pub byte: u64,
}

impl Outline {
    /// Reads through a file. Arrays are checked against the model's inputs. Lines are only counted,
    /// because a line that cannot be read fails alone.
    pub async fn scan(
        files: &Files,
        path: &ObjectPath,
        format: RecordFormat,
        signature: &Signature,
    ) -> Result<Self, Error> {
        let info = stat(files, path).await?;
        if format == RecordFormat::File {
            return Self::of_files(vec![info], signature);
        }
        let mut outline = Self {
            format,
            size_bytes: info.size_bytes,
            modified_ms: info.modified_ms,
            records: 0,
            record_bytes: 0,
            marks: Vec::new(),
            files: Vec::new(),
        };
        match format {
            RecordFormat::Jsonl => {
                let lines = Lines::new(files.clone(), path.clone(), info.size_bytes, 0);
                outline.count_lines(lines).await?;
                return Ok(outline);
            }
            RecordFormat::Csv => {
                let (_, lines) = csv::open(files, path, info.size_bytes, signature).await?;
                outline.count_lines(lines).await?;
                return Ok(outline);
            }
            RecordFormat::Parquet => {
                let table = Table::open(files, path, (info.size_bytes, 0), signature).await?;
                (outline.records, outline.record_bytes) = table.extent();
                return Ok(outline);
            }
            RecordFormat::Npy | RecordFormat::Npz | RecordFormat::File => {}
        }
        let place = (format, info.size_bytes);
        let arrays = tensors::arrays(files, path, place, signature).await?;
        outline.records = arrays.first().map_or(0, |array| array.records);
        outline.record_bytes = arrays
            .iter()
            .fold(0, |sum, array| array.record_bytes.saturating_add(sum));
        if outline.record_bytes == 0 && outline.records > outline.size_bytes {
            // Their number would otherwise be unlimited.
            return Err(Error::input(path, "its records hold no elements"));
        }
        Ok(outline)
    }

    async fn count_lines(&mut self, mut lines: Lines) -> Result<(), Error> {
        let mut marked = 0;
        loop {
            let byte = lines.position();
            if lines.next().await?.is_none() {
                return Ok(());
            }
            if byte >= marked + MARK_EVERY_BYTES {
                let record = self.records;
                self.marks.push(Mark { record, byte });
                marked = byte;
            }
            self.records += 1;
        }
    }

    /// Number of records that are answered together if `asked` were requested: fewer if they are
    /// large, but at least one.
    pub fn chunk(&self, asked: u32) -> u32 {
        let fitting = MAX_CHUNK_BYTES / self.record_bytes.max(1);
        asked.min(u32::try_from(fitting).unwrap_or(u32::MAX)).max(1)
    }

    /// Refuses a file that has changed since it was read through.
    pub(crate) async fn check(&self, files: &Files, path: &ObjectPath) -> Result<(), Error> {
        if !self.files.is_empty() {
            // Each file is checked when it is read.
            return Ok(());
        }
        let info = stat(files, path).await?;
        if (info.size_bytes, info.modified_ms) != (self.size_bytes, self.modified_ms) {
            return Err(Error::Changed {
                path: path.to_string(),
            });
        }
        Ok(())
    }

    /// The last mark at or before a record.
    pub(crate) fn mark(&self, record: u64) -> Mark {
        let behind = self.marks.partition_point(|mark| mark.record <= record);
        let start = Mark { record: 0, byte: 0 };
        behind.checked_sub(1).map_or(start, |at| self.marks[at])
    }
}

async fn stat(files: &Files, path: &ObjectPath) -> Result<ObjectInfo, Error> {
    let found = files.stat(path).await?;
    found.ok_or_else(|| {
        let object = path.to_string();
        Error::Objects(sextant_objects::Error::NotFound { object })
    })
}
