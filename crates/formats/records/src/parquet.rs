//! Records as rows of Parquet, read as validation sets are: each row as a row of CSV, or as a line of JSON if a column
//! holds lists.

use std::{io, ops::Range, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;
use sextant_datasets::parquet::{Format, Ranges, Rows, Size};
use sextant_objects::ObjectPath;
use sextant_types::Signature;
use tokio::{runtime::Handle, task::spawn_blocking};

use crate::{
    Error, Files, csv,
    reader::{BYTES_AT_ONCE, Line},
};

mod write;

pub(crate) use write::Sheet;

/// Most bytes of a group of rows before compression: some of its columns are in memory at once.
const MAX_GROUP_BYTES: u64 = 1 << 30;

/// A file that is open before a row.
pub(crate) struct Table {
    /// `None` while a thread reads it. The lock is never waited for: it lets threads share a value that only one may
    /// use at a time.
    rows: Mutex<Option<Rows>>,
    /// How lines become records; `None` if they are JSON.
    columns: Option<Arc<csv::Rows>>,
    /// The store's error when the file's reader asked for bytes.
    failure: Arc<Mutex<Option<sextant_objects::Error>>>,
    path: ObjectPath,
    size: Size,
}

impl Table {
    /// Opens a file of `size` bytes before record `first`.
    pub(crate) async fn open(
        files: &Files,
        path: &ObjectPath,
        (size, first): (u64, u64),
        signature: &Signature,
    ) -> Result<Self, Error> {
        let failure = Arc::default();
        let ranges = Ranges {
            size,
            read: reading(files, path, &failure),
        };
        let opened = spawn_blocking(move || Rows::open(ranges, first)).await;
        let rows = opened.map_err(|_| unreadable(path))?;
        let rows = rows.map_err(|error| why(path, &failure, &error))?;
        let columns = match rows.format() {
            Format::Csv => Some(csv::Rows::new(rows.head(), signature).map(Arc::new)),
            Format::JsonLines => None,
        };
        let size = rows.size();
        if size.largest_group_bytes > MAX_GROUP_BYTES {
            let reason = "it has groups of rows of over 1 GiB: write smaller ones";
            return Err(Error::input(path, reason));
        }
        Ok(Self {
            rows: Mutex::new(Some(rows)),
            columns: columns.transpose().map_err(|why| Error::input(path, why))?,
            failure,
            path: path.clone(),
            size,
        })
    }

    /// Number of records, and bytes of one.
    pub(crate) fn extent(&self) -> (u64, u64) {
        let Size { rows, bytes, .. } = self.size;
        (rows, bytes / rows.max(1))
    }

    /// How lines become records; `None` if they are JSON.
    pub(crate) fn columns(&self) -> Option<Arc<csv::Rows>> {
        self.columns.clone()
    }

    /// The next records as lines: up to `count`, fewer if they are large, but at least one, which must exist.
    pub(crate) async fn lines(&mut self, count: u32) -> Result<Vec<Line>, Error> {
        let rows = self.rows.get_mut().take();
        let mut rows = rows.ok_or_else(|| unreadable(&self.path))?;
        let read = spawn_blocking(move || {
            let lines = next_lines(&mut rows, count as usize);
            (rows, lines)
        });
        let (rows, lines) = read.await.map_err(|_| unreadable(&self.path))?;
        *self.rows.get_mut() = Some(rows);
        if lines.is_empty() && count > 0 {
            return Err(Error::Changed {
                path: self.path.to_string(),
            });
        }
        let line = |line: Result<Vec<u8>, sextant_datasets::Error>| match line {
            Ok(line) => Ok(Ok(Bytes::from(line))),
            Err(error @ sextant_datasets::Error::Column { .. }) => Ok(Err(error.to_string())),
            Err(error) => Err(why(&self.path, &self.failure, &error)),
        };
        lines.into_iter().map(line).collect()
    }
}

/// Up to `count` lines, fewer if they are long or the file ends.
fn next_lines(rows: &mut Rows, count: usize) -> Vec<Result<Vec<u8>, sextant_datasets::Error>> {
    let (mut lines, mut bytes) = (Vec::new(), 0);
    while lines.len() < count
        && bytes < BYTES_AT_ONCE
        && let Some(line) = rows.next()
    {
        bytes += line.as_ref().map_or(0, Vec::len);
        lines.push(line);
    }
    lines
}

/// Reads ranges of a file for a reader that waits for them on its own thread.
fn reading(
    files: &Files,
    path: &ObjectPath,
    failure: &Arc<Mutex<Option<sextant_objects::Error>>>,
) -> impl Fn(Range<u64>) -> io::Result<Bytes> + Clone + Send + Sync + use<> {
    let (files, path, failure) = (files.clone(), path.clone(), Arc::clone(failure));
    let runtime = Handle::current();
    move |range| {
        let length = range.end - range.start;
        match runtime.block_on(files.get_range(&path, range)) {
            Ok(bytes) if bytes.len() as u64 == length => Ok(bytes),
            Ok(_) => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            Err(error) => {
                let said = io::Error::other(error.to_string());
                *failure.lock() = Some(error);
                Err(said)
            }
        }
    }
}

/// The error of a reader: the store's, if the store failed.
fn why(
    path: &ObjectPath,
    failure: &Mutex<Option<sextant_objects::Error>>,
    error: &sextant_datasets::Error,
) -> Error {
    match failure.lock().take() {
        Some(error) => error.into(),
        None => Error::input(path, error.to_string()),
    }
}

/// The error of a file over which the reader panicked.
fn unreadable(path: &ObjectPath) -> Error {
    Error::input(path, "it cannot be read as Parquet")
}
