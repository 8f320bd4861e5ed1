//! The requests of variants that are loaded nowhere.

use std::collections::BTreeMap;

use sextant_schedule::{IndexedHeap, NEVER, Nanos, Request, RequestQueue};
use sextant_types::index::VariantIx;

/// Requests by variant, in order of their deadlines.
#[derive(Debug)]
pub(super) struct ColdQueue<T> {
    /// By variant for which requests wait.
    queues: BTreeMap<VariantIx, RequestQueue<T>>,
    /// By variant: when its first request can no longer be met.
    expiries: IndexedHeap<VariantIx>,
    waiting: usize,
}

// === impl ColdQueue ===

impl<T> Default for ColdQueue<T> {
    fn default() -> Self {
        Self {
            queues: BTreeMap::new(),
            expiries: IndexedHeap::default(),
            waiting: 0,
        }
    }
}

impl<T> ColdQueue<T> {
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// The variants for which requests wait.
    pub fn variants(&self) -> Vec<VariantIx> {
        self.queues.keys().copied().collect()
    }

    /// The number of requests of one variant.
    pub fn len_of(&self, variant: VariantIx) -> usize {
        self.queues.get(&variant).map_or(0, RequestQueue::len)
    }

    /// Rows of one variant's requests.
    pub fn rows_of(&self, variant: VariantIx) -> u32 {
        self.queues.get(&variant).map_or(0, RequestQueue::rows)
    }

    pub fn push(&mut self, now: Nanos, variant: VariantIx, request: Request<T>) {
        let queue = self.queues.entry(variant).or_default();
        queue.push(now, request);
        self.waiting += 1;
    }

    /// The first request of a variant.
    pub fn first(&self, variant: VariantIx) -> Option<&Request<T>> {
        self.queues.get(&variant)?.first()
    }

    pub fn pop(&mut self, variant: VariantIx) -> Option<Request<T>> {
        let queue = self.queues.get_mut(&variant)?;
        let request = queue.pop()?;
        if queue.is_empty() {
            self.queues.remove(&variant);
        }
        self.waiting -= 1;
        Some(request)
    }

    /// Records that a LOAD can help the first request of a variant until `last`; [`NEVER`] if there is no limit, `None`
    /// if there is no request.
    pub fn expect(&mut self, variant: VariantIx, last: Option<Nanos>) {
        match last {
            None | Some(NEVER) => drop(self.expiries.remove(variant)),
            Some(last) => self.expiries.set(variant, last + 1),
        }
    }

    pub fn next_expiry(&self) -> Option<Nanos> {
        self.expiries.first().map(|(at, _)| at)
    }

    /// A variant whose first request can no longer be helped at `now`.
    pub fn expired(&self, now: Nanos) -> Option<VariantIx> {
        let first = self.expiries.first().filter(|(at, _)| *at <= now);
        first.map(|(_, variant)| variant)
    }
}
