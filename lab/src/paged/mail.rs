//! Messages in transit between the controller and the workers.

use sextant_schedule::Nanos;
use sextant_types::index::DeviceIx;

use super::worker::{Order, Outcome};

/// A message in transit, ordered by time, then by when it was sent.
#[derive(Debug)]
pub(super) struct Mail {
    pub(super) at: Nanos,
    pub(super) number: u64,
    pub(super) worker: DeviceIx,
    pub(super) message: Message,
}

#[derive(Debug)]
pub(super) enum Message {
    Order(Order),
    Outcome(Outcome),
}

// === impl Mail ===

impl Mail {
    fn key(&self) -> (Nanos, u64) {
        (self.at, self.number)
    }
}

impl PartialEq for Mail {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Mail {}

impl PartialOrd for Mail {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Mail {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}
