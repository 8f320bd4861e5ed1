//! The requests of models that are loaded nowhere.

use std::collections::BTreeSet;

use sextant_schedule::{IndexedHeap, NEVER, Nanos, Request, RequestQueue};

/// Requests by model, in order of their deadlines.
#[derive(Debug)]
pub(super) struct Cold<T> {
    queues: Vec<RequestQueue<T>>,
    /// By model: when its first request cannot be helped any more.
    expiries: IndexedHeap,
    /// Models for which something waits.
    models: BTreeSet<u32>,
    waiting: usize,
}

// === impl Cold ===

impl<T> Default for Cold<T> {
    fn default() -> Self {
        Self {
            queues: Vec::new(),
            expiries: IndexedHeap::default(),
            models: BTreeSet::new(),
            waiting: 0,
        }
    }
}

impl<T> Cold<T> {
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// The models for which something waits.
    pub fn models(&self) -> Vec<u32> {
        self.models.iter().copied().collect()
    }

    /// Requests of one model.
    pub fn len_of(&self, model: u32) -> usize {
        self.queues.get(model as usize).map_or(0, RequestQueue::len)
    }

    /// Rows of one model's requests.
    pub fn rows_of(&self, model: u32) -> u32 {
        self.queues
            .get(model as usize)
            .map_or(0, RequestQueue::rows)
    }

    pub fn push(&mut self, now: Nanos, model: u32, request: Request<T>) {
        let at = model as usize;
        if self.queues.len() <= at {
            self.queues.resize_with(at + 1, RequestQueue::default);
        }
        self.queues[at].push(now, request);
        self.models.insert(model);
        self.waiting += 1;
    }

    /// The first request of a model.
    pub fn first(&self, model: u32) -> Option<&Request<T>> {
        self.queues.get(model as usize)?.first()
    }

    pub fn pop(&mut self, model: u32) -> Option<Request<T>> {
        let queue = self.queues.get_mut(model as usize)?;
        let request = queue.pop()?;
        if queue.is_empty() {
            self.models.remove(&model);
        }
        self.waiting -= 1;
        Some(request)
    }

    /// The first request of a model can be helped until `last`, [`NEVER`] for as long as it takes;
    /// `None` when there is none.
    pub fn expect(&mut self, model: u32, last: Option<Nanos>) {
        match last {
            None | Some(NEVER) => drop(self.expiries.remove(model)),
            Some(last) => self.expiries.set(model, last + 1),
        }
    }

    pub fn next_expiry(&self) -> Option<Nanos> {
        self.expiries.first().map(|(at, _)| at)
    }

    /// A model whose first request cannot be helped at `now`.
    pub fn expired(&self, now: Nanos) -> Option<u32> {
        let first = self.expiries.first().filter(|(at, _)| *at <= now);
        first.map(|(_, model)| model)
    }
}
