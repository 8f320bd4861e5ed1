//! One read of a blob at a time, shared by all concurrent callers.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Weak},
};

use bytes::Bytes;
use parking_lot::Mutex;
use sextant_types::Digest;

use crate::Error;

type Read = Result<Bytes, Arc<Error>>;

/// The running reads.
#[derive(Debug, Default)]
pub(super) struct SharedReads {
    open: Mutex<HashMap<Digest, Weak<SharedRead>>>,
}

/// One read and its callers.
#[derive(Debug, Default)]
pub(super) struct SharedRead {
    done: tokio::sync::Mutex<Option<Read>>,
}

/// The right to read, or the result of a caller that had it before. If the reader gives up, the
/// next caller gets the right.
pub(super) struct Turn<'a> {
    done: tokio::sync::MutexGuard<'a, Option<Read>>,
}

impl SharedReads {
    /// The running shared read of a blob, or a new one.
    pub(super) fn join(&self, digest: &Digest) -> Arc<SharedRead> {
        let mut open = self.open.lock();
        if let Some(shared) = open.get(digest).and_then(Weak::upgrade) {
            return shared;
        }
        // Removes the reads that every caller has dropped.
        open.retain(|_, shared| shared.strong_count() > 0);
        let shared = Arc::default();
        open.insert(*digest, Arc::downgrade(&shared));
        shared
    }

    /// From now on no caller joins it.
    pub(super) fn close(&self, digest: &Digest, shared: &Arc<SharedRead>) {
        let mut open = self.open.lock();
        if open
            .get(digest)
            .is_some_and(|it| it.as_ptr() == Arc::as_ptr(shared))
        {
            open.remove(digest);
        }
    }
}

impl SharedRead {
    /// Waits for the caller's turn.
    pub(super) async fn turn(&self) -> Turn<'_> {
        Turn {
            done: self.done.lock().await,
        }
    }
}

impl Turn<'_> {
    /// The result of an earlier reader of this shared read.
    pub(super) fn read_before(&self) -> Option<Result<Bytes, Error>> {
        let done = self.done.as_ref()?;
        Some(match done {
            Ok(bytes) => Ok(bytes.clone()),
            Err(error) => Err(copy(error)),
        })
    }

    /// Passes on the result.
    pub(super) fn finish(mut self, read: Result<Bytes, Error>) -> Result<Bytes, Error> {
        let done = read.map_err(Arc::new);
        let own = match &done {
            Ok(bytes) => Ok(bytes.clone()),
            Err(error) => Err(copy(error)),
        };
        *self.done = Some(done);
        own
    }
}

/// A copy of the error; what cannot be copied becomes its source.
fn copy(error: &Arc<Error>) -> Error {
    let source = |object: &String| (object.clone(), io::Error::other(error.clone()));
    match &**error {
        Error::NotFound { object } => Error::NotFound {
            object: object.clone(),
        },
        Error::Lost { object } => Error::Lost {
            object: object.clone(),
        },
        Error::Corrupt { expected, actual } => Error::Corrupt {
            expected: *expected,
            actual: *actual,
        },
        Error::InvalidPath(invalid) => Error::InvalidPath(invalid.clone()),
        Error::Range {
            object,
            size,
            start,
        } => Error::Range {
            object: object.clone(),
            size: *size,
            start: *start,
        },
        Error::StorageFull { object, .. } => {
            let (object, source) = source(object);
            Error::StorageFull {
                object,
                source: Some(source),
            }
        }
        Error::Unavailable { object, .. } => {
            let (object, source) = source(object);
            Error::Unavailable { object, source }
        }
        Error::Input { object, .. } | Error::Io { object, .. } => {
            let (object, source) = source(object);
            Error::Io { object, source }
        }
    }
}
