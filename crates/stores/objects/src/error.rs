//! Errors of an object store.

use std::io;

use sextant_types::{Code, Digest, ErrorKind};

use crate::InvalidPath;

/// An error of an object store. After an error no object was changed. The exception is
/// [`Error::Unavailable`] over a network, where an answer may be lost: then an object was changed
/// as a whole or not at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such blob or file.
    #[error("object `{object}` does not exist")]
    NotFound {
        /// Path or digest.
        object: String,
    },
    /// The disk, a quota or the store's own limit is reached.
    #[error("no room for `{object}` in the artefact store")]
    StorageFull {
        /// Path or digest.
        object: String,
        /// The operating system's error, if it came from there.
        #[source]
        source: Option<io::Error>,
    },
    /// A blob's bytes do not match its name.
    #[error("blob `{expected}` is corrupt: its bytes hash to `{actual}`")]
    Corrupt {
        /// The name.
        expected: Digest,
        /// The hash of the stored bytes.
        actual: Digest,
    },
    /// A path breaks the naming rule, or is a folder or a link.
    #[error(transparent)]
    InvalidPath(#[from] InvalidPath),
    /// A range that begins beyond the object's end.
    #[error("object `{object}` has `{size}` bytes: the range begins at `{start}`")]
    Range {
        /// Path of the object.
        object: String,
        /// Its size, bytes.
        size: u64,
        /// First requested byte.
        start: u64,
    },
    /// The stream that was to be stored failed; nothing was stored.
    #[error("the upload of `{object}` broke off")]
    Input {
        /// Path, or `blob`.
        object: String,
        /// The stream's error.
        #[source]
        source: io::Error,
    },
    /// The store could not be reached, or was overloaded, in all attempts.
    #[error("the artefact store is not available for `{object}`")]
    Unavailable {
        /// Path or digest.
        object: String,
        /// The error of the last attempt.
        #[source]
        source: io::Error,
    },
    /// A folder of the store was removed while the store is in use. It does not come back by
    /// itself.
    #[error(
        "`{object}` is not to be had: the folder of the artefact store was removed while the service runs; put it back \
         and start the service again"
    )]
    Lost {
        /// Path or digest.
        object: String,
    },
    /// The operating system or the store failed in a way that does not end by itself.
    #[error("the artefact store failed on `{object}`")]
    Io {
        /// Path or digest.
        object: String,
        /// The reason.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// The stable public code.
    pub fn code(&self) -> Code {
        match self {
            Self::NotFound { .. } => Code::ArtefactNotFound,
            Self::StorageFull { .. } => Code::StorageFull,
            Self::InvalidPath(_) => Code::InvalidPath,
            Self::Range { .. } | Self::Input { .. } => Code::InvalidRequest,
            Self::Unavailable { .. } | Self::Lost { .. } => Code::Unavailable,
            Self::Corrupt { .. } | Self::Io { .. } => Code::Internal,
        }
    }

    /// The kind of the error for the caller.
    pub fn kind(&self) -> ErrorKind {
        self.code().kind()
    }
}
