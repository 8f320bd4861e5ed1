//! Uploads files to the server: streamed, with a bar on a terminal.

use std::{io::IsTerminal, path::Path};

use futures::TryStreamExt;
use indicatif::{ProgressBar, ProgressStyle};
use reqwest::{Body, multipart::Part};
use tokio::fs::File;
use tokio_util::io::ReaderStream;

use super::Error;

/// Bytes that are read and sent at once.
const CHUNK_BYTES: usize = 256 * 1024;

/// A file that is sent as it is read.
#[derive(Debug)]
pub struct Upload {
    file: File,
    length: u64,
    name: String,
}

impl Upload {
    /// Opens the file; nothing is read yet.
    pub async fn open(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Io {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).await.map_err(failed)?;
        let metadata = file.metadata().await.map_err(failed)?;
        if metadata.is_dir() {
            return Err(failed(std::io::ErrorKind::IsADirectory.into()));
        }
        let name = path.file_name().unwrap_or(path.as_os_str());
        Ok(Self {
            file,
            length: metadata.len(),
            name: name.to_string_lossy().into_owned(),
        })
    }

    /// Bytes of the file.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The body of a request.
    pub fn body(self, bar: &ProgressBar) -> Body {
        let bar = bar.clone();
        let chunks = ReaderStream::with_capacity(self.file, CHUNK_BYTES)
            .inspect_ok(move |chunk| bar.inc(chunk.len() as u64));
        Body::wrap_stream(chunks)
    }

    /// A part of a multipart form.
    pub fn part(self, bar: &ProgressBar) -> Part {
        let (length, name) = (self.length, self.name.clone());
        Part::stream_with_length(self.body(bar), length).file_name(name)
    }
}

/// A bar over `length` bytes, invisible where standard error is not a terminal.
pub fn bar(what: &str, length: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(
        "{msg:28} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
    );
    ProgressBar::new(length)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        .with_message(what.to_owned())
}
