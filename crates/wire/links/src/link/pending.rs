//! Calls without an answer. Each is removed once: by its report, or because the link broke.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use parking_lot::Mutex;
use sextant_rpc::{InferError, InferOutcome, WorkError};
use sextant_types::VariantId;
use tokio::sync::oneshot;

use super::messages;

/// Called with the result of a batch.
pub(super) type Done = Box<dyn FnOnce(InferOutcome) + Send>;

/// The result of another call.
pub(super) type Outcome = Result<messages::Done, WorkError>;

/// Calls by their ids. Once the link is broken none can be added.
pub(super) struct Pending(Mutex<Calls>);

struct Calls {
    next: u64,
    broken: bool,
    batches: HashMap<u64, (VariantId, Done)>,
    others: HashMap<u64, oneshot::Sender<Outcome>>,
}

impl Pending {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Calls {
            next: 0,
            broken: false,
            batches: HashMap::new(),
            others: HashMap::new(),
        }))
    }

    /// Adds a batch. Returns `done` if the link is broken.
    pub(super) fn add_batch(&self, variant: VariantId, done: Done) -> Result<u64, Done> {
        let mut calls = self.0.lock();
        if calls.broken {
            return Err(done);
        }
        let id = calls.number();
        calls.batches.insert(id, (variant, done));
        Ok(id)
    }

    /// Adds another call. Its receiver fails if the link breaks.
    pub(super) fn add(&self) -> Option<(u64, oneshot::Receiver<Outcome>)> {
        let mut calls = self.0.lock();
        if calls.broken {
            return None;
        }
        let id = calls.number();
        let (sender, receiver) = oneshot::channel();
        calls.others.insert(id, sender);
        Some((id, receiver))
    }

    /// Removes and returns a batch, if it is there.
    pub(super) fn take_batch(&self, id: u64) -> Option<(VariantId, Done)> {
        self.0.lock().batches.remove(&id)
    }

    /// Passes an outcome to the waiting call. The caller may have gone.
    pub(super) fn answer(&self, id: u64, outcome: Outcome) {
        let waiting = self.0.lock().others.remove(&id);
        if let Some(sender) = waiting {
            drop(sender.send(outcome));
        }
    }

    /// Answers all calls: the link is broken because of `reason`.
    pub(super) fn fail(&self, reason: &str) {
        let batches = {
            let mut calls = self.0.lock();
            calls.broken = true;
            calls.others.clear();
            std::mem::take(&mut calls.batches)
        };
        for (variant, done) in batches.into_values() {
            let reason = reason.to_owned();
            finish(done, Err(InferError::Disconnected { variant, reason }));
        }
    }
}

impl Calls {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// Calls a result handler. A handler that panics does not affect others.
pub(super) fn finish(done: Done, outcome: InferOutcome) {
    drop(catch_unwind(AssertUnwindSafe(|| done(outcome))));
}
