//! Lines of a file, read by ranges.

use bytes::{Bytes, BytesMut};
use sextant_objects::ObjectPath;

use crate::{Error, Files};

/// Bytes that are fetched at once.
const PIECE_BYTES: u64 = 1 << 20;

/// Longest accepted line, bytes: it is held in memory whole.
const MAX_LINE_BYTES: usize = 256 << 20;

/// The byte order mark at the beginning of files from spreadsheets; it is not text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The lines of a file that are not empty: of JSON without the white space around them; of CSV unchanged, because white
/// space is text there.
pub(crate) struct Lines {
    files: Files,
    path: ObjectPath,
    size: u64,
    /// Where the next piece begins.
    fetched: u64,
    /// Where `buffer` begins.
    at: u64,
    buffer: BytesMut,
    /// Bytes of `buffer` that are known to hold no line end.
    searched: usize,
    /// Whether line ends within quotation marks do not count.
    quoted: bool,
    /// Whether a quotation mark is open at the end of the searched bytes.
    open: bool,
    /// The position in `buffer` of the quotation mark that closed the last quoted cell.
    closed: Option<usize>,
}

impl Lines {
    /// Begins at the start of a line.
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
            closed: None,
        }
    }

    /// The same for rows of CSV, in which a quoted cell may span several lines.
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

    /// The next line that is not empty; `None` at the end of the file.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some(line) = self.any_line().await? {
            let trimmed = line.trim_ascii();
            match (trimmed.is_empty(), self.quoted) {
                (true, _) => {}
                (false, true) => return Ok(Some(line)),
                (false, false) => return Ok(Some(line.slice_ref(trimmed))),
            }
        }
        Ok(None)
    }

    async fn any_line(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(end) = self.line_end() {
                return Ok(Some(self.take(end)));
            }
            if self.fetched >= self.size && self.open {
                let reason = format!(
                    "the row at byte {} has a quotation mark that is not closed",
                    self.at
                );
                return Err(Error::input(&self.path, reason));
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

    /// Searches a line end in the bytes that have not been searched.
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
            let at = self.searched + found;
            self.searched = at + 1;
            match (self.buffer[at], self.open) {
                (b'"', true) => (self.open, self.closed) = (false, Some(at)),
                (b'"', false) => self.open = self.is_opening(at),
                (_, true) => {}
                (_, false) => return Some(self.searched),
            }
        }
    }

    /// Whether a quotation mark begins a cell, or is the second of a pair, which stands for one mark. Anywhere else it
    /// is text, as in `5" pipe`.
    fn is_opening(&self, at: usize) -> bool {
        let before = &self.buffer[..at];
        let follows_one = at > 0 && self.closed == Some(at - 1);
        before.is_empty()
            || before == BYTE_ORDER_MARK
            || before.ends_with(b",")
            || before.ends_with(b"\r")
            || follows_one
    }

    fn take(&mut self, bytes: usize) -> Bytes {
        self.at += bytes as u64;
        self.searched = 0;
        self.open = false;
        self.closed = None;
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
