//! What is going on, for whoever watches.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};

use tokio::time::Instant;

/// Counts of everything since the load began, the time of warming up included.
#[derive(Debug, Default)]
pub struct Progress {
    sent: AtomicU64,
    answered: AtomicU64,
    unanswered: AtomicU64,
    /// When it was stopped first.
    stopped: OnceLock<Instant>,
}

// === impl Progress ===

impl Progress {
    /// Queries that were sent, or waited for a connection.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Queries that were answered.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Queries that were refused, or broke.
    pub fn unanswered(&self) -> u64 {
        self.unanswered.load(Ordering::Relaxed)
    }

    /// Has the load end now: what is under way is waited for, nothing more is sent.
    pub fn stop(&self) {
        self.stopped.get_or_init(Instant::now);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped_at().is_some()
    }

    /// From when on nothing was due; what ends then is only waited for.
    pub(crate) fn stopped_at(&self) -> Option<Instant> {
        self.stopped.get().copied()
    }

    pub(crate) fn count_sent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_end(&self, answered: bool) {
        let count = match answered {
            true => &self.answered,
            false => &self.unanswered,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}
