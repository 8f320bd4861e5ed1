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
            if let Some(end) = memchr::memchr(b'\n', &self.buffer[self.searched..]) {
                return Ok(Some(self.take(self.searched + end + 1)));
            }
            self.searched = self.buffer.len();
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

    fn take(&mut self, bytes: usize) -> Bytes {
        self.at += bytes as u64;
        self.searched = 0;
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
