//! One read of a blob at a time, shared by all who ask for it meanwhile.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use bytes::Bytes;
use sextant_types::Digest;

use crate::Error;

type Landed = Result<Bytes, Arc<Error>>;

/// The reads under way.
#[derive(Debug, Default)]
pub(super) struct Flights {
    open: Mutex<HashMap<Digest, Weak<Flight>>>,
}

/// One read and those who wait for it.
#[derive(Debug, Default)]
pub(super) struct Flight {
    landed: tokio::sync::Mutex<Option<Landed>>,
}

/// The right to read, or what was read by whoever had it before. When the reader gives up, the next
/// one has it.
pub(super) struct Seat<'a> {
    landed: tokio::sync::MutexGuard<'a, Option<Landed>>,
}

impl Flights {
    /// The open flight of a blob, else a new one.
    pub(super) fn join(&self, digest: &Digest) -> Arc<Flight> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flight) = open.get(digest).and_then(Weak::upgrade) {
            return flight;
        }
        // Those that everyone gave up.
        open.retain(|_, flight| flight.strong_count() > 0);
        let flight = Arc::default();
        open.insert(*digest, Arc::downgrade(&flight));
        flight
    }

    /// Nobody joins it any more.
    pub(super) fn close(&self, digest: &Digest, flight: &Arc<Flight>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open
            .get(digest)
            .is_some_and(|it| it.as_ptr() == Arc::as_ptr(flight))
        {
            open.remove(digest);
        }
    }
}

impl Flight {
    /// Waits until it is one's turn.
    pub(super) async fn board(&self) -> Seat<'_> {
        Seat {
            landed: self.landed.lock().await,
        }
    }
}

impl Seat<'_> {
    /// What an earlier reader of this flight got.
    pub(super) fn landed(&self) -> Option<Result<Bytes, Error>> {
        let landed = self.landed.as_ref()?;
        Some(match landed {
            Ok(bytes) => Ok(bytes.clone()),
            Err(error) => Err(copy(error)),
        })
    }

    /// Hands on what was read.
    pub(super) fn land(mut self, read: Result<Bytes, Error>) -> Result<Bytes, Error> {
        let landed = read.map_err(Arc::new);
        let own = match &landed {
            Ok(bytes) => Ok(bytes.clone()),
            Err(error) => Err(copy(error)),
        };
        *self.landed = Some(landed);
        own
    }
}

/// The same error once more; what cannot be copied becomes its source.
fn copy(error: &Arc<Error>) -> Error {
    let source = |object: &String| (object.clone(), io::Error::other(error.clone()));
    match &**error {
        Error::NotFound { object } => Error::NotFound {
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
