//! A file of the artefact store on its way to another process, piece by piece: it is never held here.

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

/// Bytes that are held of it at once.
const PIECE_BYTES: u64 = 1 << 18;

/// A validation set's file.
#[derive(Clone)]
pub(crate) struct SetFile {
    pub(crate) digest: Digest,
    /// Its size.
    pub(crate) bytes: u64,
    pub(crate) source: Source,
}

/// Where it is read.
#[derive(Clone)]
pub(crate) enum Source {
    /// A file of this machine.
    File(Arc<File>),
    /// A store elsewhere, whose own work is done by a runtime.
    Store(Arc<dyn ObjectStore>, Handle),
}

/// Why not all of it was poured.
pub(crate) enum PourFailure {
    /// Whoever takes it is gone.
    NobodyTakes(io::Error),
    /// It cannot be read, or is not wanted any more.
    Source(MeasureError),
}

// === impl SetFile ===

impl SetFile {
    /// Writes all of it. Blocks; the caller is no task of the runtime.
    pub(crate) fn pour(&self, to: &mut impl Write, cancel: &Cancel) -> Result<(), PourFailure> {
        let mut buffer = Vec::new();
        let mut at = 0;
        while at < self.bytes {
            cancel.check().map_err(PourFailure::Source)?;
            let end = self.bytes.min(at + PIECE_BYTES);
            let written = match &self.source {
                Source::File(file) => {
                    // One buffer serves all pieces: what threads allocate for others piles up in the allocator.
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

/// A failure of the store, which says nothing about a model.
fn failed(error: &sextant_objects::Error) -> MeasureError {
    let is_io = matches!(error, sextant_objects::Error::Io { .. });
    MeasureError::Store {
        code: error.code(),
        message: error.to_string(),
        is_transient: is_io || error.kind().is_retryable(),
    }
}

/// The same of a file that was open.
fn unreadable(error: &io::Error) -> MeasureError {
    MeasureError::Store {
        code: Code::Unavailable,
        message: format!("the file of the validation set cannot be read: {error}"),
        is_transient: true,
    }
}
