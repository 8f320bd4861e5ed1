//! Lines of a file, read by ranges.

use bytes::{Bytes, BytesMut};
use sextant_objects::ObjectPath;

use crate::{Error, Files};

/// Bytes that are fetched at once.
const PIECE_BYTES: u64 = 1 << 20;

/// Longest accepted line, bytes: it is held in memory whole.
const MAX_LINE_BYTES: usize = 256 << 20;

/// The lines of a file that hold something, without the white space around them.
pub(crate) struct Lines {
    files: Files,
    path: ObjectPath,
    size: u64,
    /// Where the next piece begins.
    fetched: u64,
    /// Where `buffer` begins.
    at: u64,
    buffer: BytesMut,
    /// Bytes of `buffer` that hold no line end.
    searched: usize,
    /// Whether ends of lines within quotation marks are none.
    quoted: bool,
    /// Whether a quotation mark is open behind what was searched.
    open: bool,
}

impl Lines {
    /// From the start of a line.
    pub(crate) fn new(files: Files, path: ObjectPath, size: u64, start: u64) -> Self {
        Self {
            files,
            path,
            size,
            fetched: start,
            at: start,
            buffer: BytesMut::new(),
            searched: 0,
            quoted: false,
            open: false,
        }
    }

    /// The same of rows of CSV, in which a cell in quotation marks may go over several lines.
    pub(crate) fn rows(files: Files, path: ObjectPath, size: u64, start: u64) -> Self {
        Self {
            quoted: true,
            ..Self::new(files, path, size, start)
        }
    }

    /// Where the next line begins, bytes.
    pub(crate) fn position(&self) -> u64 {
        self.at
    }

    /// The next line that holds something; `None` at the end of the file.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some(line) = self.any_line().await? {
            let trimmed = line.trim_ascii();
            if !trimmed.is_empty() {
                return Ok(Some(line.slice_ref(trimmed)));
            }
        }
        Ok(None)
    }

    async fn any_line(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(end) = self.line_end() {
                return Ok(Some(self.take(end)));
            }
            if self.fetched >= self.size {
                let rest = self.buffer.len();
                return Ok((rest > 0).then(|| self.take(rest)));
            }
            if self.searched > MAX_LINE_BYTES {
                let reason = format!("the line at byte {} is over 256 MiB", self.at);
                return Err(Error::input(&self.path, reason));
            }
            self.fetch().await?;
        }
    }

    /// Looks for the end of a line in what has not been searched.
    fn line_end(&mut self) -> Option<usize> {
        loop {
            let rest = &self.buffer[self.searched..];
            let found = match self.quoted {
                true => memchr::memchr2(b'\n', b'"', rest),
                false => memchr::memchr(b'\n', rest),
            };
            let Some(found) = found else {
                self.searched = self.buffer.len();
                return None;
            };
            let is_mark = rest[found] == b'"';
            self.searched += found + 1;
            self.open ^= is_mark;
            if !is_mark && !self.open {
                return Some(self.searched);
            }
        }
    }

    fn take(&mut self, bytes: usize) -> Bytes {
        self.at += bytes as u64;
        self.searched = 0;
        self.open = false;
        self.buffer.split_to(bytes).freeze()
    }

    async fn fetch(&mut self) -> Result<(), Error> {
        let end = (self.fetched + PIECE_BYTES).min(self.size);
        let piece = self.files.get_range(&self.path, self.fetched..end).await?;
        if piece.len() as u64 != end - self.fetched {
            return Err(Error::Changed {
                path: self.path.to_string(),
            });
        }
        self.fetched = end;
        self.buffer.extend_from_slice(&piece);
        Ok(())
    }
}
