//! The number of bytes that the store may hold.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
};

use super::folder::Fault;

/// Bytes in use and the limit.
#[derive(Debug)]
pub(super) struct Budget {
    used: AtomicU64,
    max: u64,
}

impl Budget {
    pub(super) fn new(used: u64, max: Option<u64>) -> Self {
        Self {
            used: AtomicU64::new(used),
            max: max.unwrap_or(u64::MAX),
        }
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that still fit.
    pub(super) fn left(&self) -> u64 {
        self.max.saturating_sub(self.used())
    }

    /// Takes `bytes`, or nothing if they do not fit.
    pub(super) fn reserve(&self, bytes: u64) -> Result<(), Fault> {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.max);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .map(drop)
            .map_err(|_| Fault::Full(None::<io::Error>))
    }

    /// Gives back bytes, at most those in use: other processes may have removed files.
    pub(super) fn release(&self, bytes: u64) {
        let _ = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                Some(used.saturating_sub(bytes))
            });
    }
}
