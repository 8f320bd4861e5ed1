//! The activity of one connection.
//!
//! The connection's streams and bodies write here, each to one atomic number. The connection's own task and the task
//! that accepts connections read. The numbers need not be exact to the moment: each limit is checked several times
//! before its time is over.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use super::Patience;

/// The activity of one connection.
#[derive(Debug)]
pub(super) struct Activity {
    /// The connection's number. It orders two connections that have been idle for the same time.
    pub number: u64,
    /// When the service began to accept.
    epoch: Instant,
    /// Requests without a complete answer.
    in_flight: AtomicUsize,
    /// Bodies of requests that a handler waits for.
    awaited: AtomicUsize,
    /// Answers of which there is more than the client has taken.
    offered: AtomicUsize,
    /// Whether the client does not take the bytes that the server writes.
    blocked: AtomicBool,
    /// Bytes that the client took.
    written: AtomicU64,
    /// When the last answer was complete, or when the connection began if there was none, ms.
    idle_since_ms: AtomicU64,
    /// When the head of the next request began, ms; [`NOT_BEGUN`] before.
    head_since_ms: AtomicU64,
    /// Whether the client has sent a request.
    was_asked: AtomicBool,
    /// Tells the connection to end as soon as it is idle.
    end: CancellationToken,
}

const NOT_BEGUN: u64 = u64::MAX;

// === impl Activity ===

impl Activity {
    pub fn new(number: u64, epoch: Instant) -> Self {
        Self {
            number,
            epoch,
            in_flight: AtomicUsize::new(0),
            awaited: AtomicUsize::new(0),
            offered: AtomicUsize::new(0),
            blocked: AtomicBool::new(false),
            written: AtomicU64::new(0),
            idle_since_ms: AtomicU64::new(since(epoch)),
            head_since_ms: AtomicU64::new(NOT_BEGUN),
            was_asked: AtomicBool::new(false),
            end: CancellationToken::new(),
        }
    }

    /// Bytes have arrived.
    pub fn heard(&self) {
        let waits = self.head_since_ms.load(Ordering::Relaxed) == NOT_BEGUN;
        if waits && !self.is_busy() {
            let now = since(self.epoch);
            self.head_since_ms.store(now, Ordering::Relaxed);
        }
    }

    /// A request has come; [`answered`](Self::answered) ends it.
    pub fn asked(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.was_asked.store(true, Ordering::Relaxed);
        self.head_since_ms.store(NOT_BEGUN, Ordering::Relaxed);
    }

    /// The answer to a request is complete, or the client no longer waits for it.
    pub fn answered(&self) {
        let now = since(self.epoch);
        self.idle_since_ms.store(now, Ordering::Relaxed);
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sets whether a handler waits for a body.
    pub fn awaits(&self, waits: bool) {
        count(&self.awaited, waits);
    }

    /// Sets whether there is more of an answer than the client has taken.
    pub fn offers(&self, offers: bool) {
        count(&self.offered, offers);
    }

    /// The client took `bytes`.
    pub fn wrote(&self, bytes: usize) {
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Sets whether the client does not take the bytes that the server writes.
    pub fn blocks(&self, blocks: bool) {
        if self.blocked.load(Ordering::Relaxed) != blocks {
            self.blocked.store(blocks, Ordering::Relaxed);
        }
    }

    /// Whether a request has no complete answer, or the client has not taken the whole answer.
    pub fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 0 || self.blocked.load(Ordering::Relaxed)
    }

    /// Whether a handler waits for the body of a request.
    pub fn is_awaiting(&self) -> bool {
        self.awaited.load(Ordering::Relaxed) > 0
    }

    /// Whether the server waits for the client to take bytes.
    fn is_offering(&self) -> bool {
        self.blocked.load(Ordering::Relaxed) || self.offered.load(Ordering::Relaxed) > 0
    }

    /// When the connection became idle, ms; `None` while it is busy.
    pub fn idle_since_ms(&self) -> Option<u64> {
        let since_ms = self.idle_since_ms.load(Ordering::Relaxed);
        (!self.is_busy()).then_some(since_ms)
    }

    /// Tells the connection to end as soon as it is idle.
    pub fn end(&self) {
        self.end.cancel();
    }

    pub fn is_told_to_end(&self) -> bool {
        self.end.is_cancelled()
    }

    pub async fn told_to_end(&self) {
        self.end.cancelled().await;
    }

    /// Whether the connection has been idle, or the head of a request incomplete, for too long.
    pub fn is_overdue(&self, patience: &Patience) -> bool {
        let Some(idle_since_ms) = self.idle_since_ms() else {
            return false;
        };
        let head_since_ms = self.head_since_ms.load(Ordering::Relaxed);
        let (since_ms, longest) = if head_since_ms != NOT_BEGUN {
            (head_since_ms, patience.head)
        } else if self.was_asked.load(Ordering::Relaxed) {
            (idle_since_ms, patience.idle)
        } else {
            (idle_since_ms, patience.head)
        };
        let waited_ms = since(self.epoch).saturating_sub(since_ms);
        Duration::from_millis(waited_ms) >= longest
    }
}

fn count(counter: &AtomicUsize, one_more: bool) {
    if one_more {
        counter.fetch_add(1, Ordering::Relaxed);
    } else {
        counter.fetch_sub(1, Ordering::Relaxed);
    }
}

fn since(epoch: Instant) -> u64 {
    u64::try_from(epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// How fast a client takes the bytes that the server writes.
#[derive(Debug)]
pub(super) struct Pace {
    since: Instant,
    written: u64,
}

// === impl Pace ===

impl Pace {
    pub fn new() -> Self {
        Self {
            since: Instant::now(),
            written: 0,
        }
    }

    /// Whether the client has taken fewer bytes than it must, over at least the time of the grace.
    pub fn is_too_slow(&mut self, activity: &Activity, patience: &Patience) -> bool {
        let written = activity.written.load(Ordering::Relaxed);
        let elapsed = self.since.elapsed();
        let offers = activity.is_offering();
        if offers && elapsed < patience.grace {
            return false;
        }
        let wanted = patience.min_bytes_per_s as f64 * elapsed.as_secs_f64();
        let too_slow = offers && ((written - self.written) as f64) < wanted;
        *self = Self {
            since: Instant::now(),
            written,
        };
        too_slow
    }
}
