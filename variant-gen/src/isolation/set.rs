//! A file of the artefact store on its way to another process, piece by piece: it is never held here.

use std::{
    io::{self, Write},
    sync::Arc,
};

use sextant_objects::ObjectStore;
use sextant_types::Digest;
use tokio::runtime::Handle;

use crate::measure::{Cancel, MeasureError};

/// Bytes that are held of it at once.
const PIECE_BYTES: u64 = 1 << 20;

/// A validation set's file.
#[derive(Clone)]
pub(crate) struct SetFile {
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) digest: Digest,
    /// Its size.
    pub(crate) bytes: u64,
    /// Where the store's own work is done.
    pub(crate) runtime: Handle,
}

/// Why not all of it was poured.
pub(crate) enum Spilt {
    /// Whoever takes it is gone.
    NobodyTakes(io::Error),
    /// It cannot be read, or is not wanted any more.
    Source(MeasureError),
}

// === impl SetFile ===

impl SetFile {
    /// Writes all of it. Blocks; the caller is no task of the runtime.
    pub(crate) fn pour(&self, to: &mut impl Write, cancel: &Cancel) -> Result<(), Spilt> {
        let mut at = 0;
        while at < self.bytes {
            cancel.check().map_err(Spilt::Source)?;
            let end = self.bytes.min(at + PIECE_BYTES);
            let piece = self.objects.get_blob_range(&self.digest, at..end);
            let piece = self.runtime.block_on(piece);
            let piece = piece.map_err(|error| Spilt::Source(failed(&error)))?;
            if piece.is_empty() {
                let error = io::Error::from(io::ErrorKind::UnexpectedEof);
                return Err(Spilt::NobodyTakes(error));
            }
            to.write_all(&piece).map_err(Spilt::NobodyTakes)?;
            at += piece.len() as u64;
        }
        to.flush().map_err(Spilt::NobodyTakes)
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
