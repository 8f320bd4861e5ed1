//! Passes a file of the artefact store to another process, piece by piece: this process never holds the whole file.

use std::{
    fs::File,
    io::{self, Write},
    os::unix::fs::FileExt,
    sync::Arc,
};

use sextant_objects::ObjectStore;
use sextant_types::{Code, Digest};
use tokio::runtime::Handle;

use crate::measure::{Cancel, MeasureError};

/// Bytes of the file that are held at once.
const PIECE_BYTES: u64 = 1 << 18;

/// A validation set's file.
#[derive(Clone)]
pub(crate) struct SetFile {
    pub(crate) digest: Digest,
    /// Its size.
    pub(crate) bytes: u64,
    pub(crate) source: Source,
}

/// Where the file is read from.
#[derive(Clone)]
pub(crate) enum Source {
    /// A file of this machine.
    File(Arc<File>),
    /// A store elsewhere; the handle is that of the runtime that does the store's work.
    Store(Arc<dyn ObjectStore>, Handle),
}

/// Why the file was not passed on completely.
pub(crate) enum PourFailure {
    /// The receiver is gone.
    NobodyTakes(io::Error),
    /// The file cannot be read, or is no longer needed.
    Source(MeasureError),
}

// === impl SetFile ===

impl SetFile {
    /// Writes the whole file. Blocks; the caller must not be a task of the runtime.
    pub(crate) fn pour(&self, to: &mut impl Write, cancel: &Cancel) -> Result<(), PourFailure> {
        let mut buffer = Vec::new();
        let mut at = 0;
        while at < self.bytes {
            cancel.check().map_err(PourFailure::Source)?;
            let end = self.bytes.min(at + PIECE_BYTES);
            let written = match &self.source {
                Source::File(file) => {
                    // One buffer serves all pieces: memory that threads allocate for other threads accumulates in the
                    // allocator.
                    buffer.resize((end - at) as usize, 0);
                    let read = file.read_exact_at(&mut buffer, at);
                    read.map_err(|error| PourFailure::Source(unreadable(&error)))?;
                    to.write_all(&buffer)
                }
                Source::Store(objects, runtime) => {
                    let piece = objects.get_blob_range(&self.digest, at..end);
                    let piece = runtime.block_on(piece);
                    to.write_all(&piece.map_err(|error| PourFailure::Source(failed(&error)))?)
                }
            };
            written.map_err(PourFailure::NobodyTakes)?;
            at = end;
        }
        to.flush().map_err(PourFailure::NobodyTakes)
    }
}

/// A failure of the store; it says nothing about the model.
fn failed(error: &sextant_objects::Error) -> MeasureError {
    let is_io = matches!(error, sextant_objects::Error::Io { .. });
    MeasureError::Store {
        code: error.code(),
        message: error.to_string(),
        is_transient: is_io || error.kind().is_retryable(),
    }
}

/// The same for a file that was open.
fn unreadable(error: &io::Error) -> MeasureError {
    MeasureError::Store {
        code: Code::Unavailable,
        message: format!("the file of the validation set cannot be read: {error}"),
        is_transient: true,
    }
}
