//! The order of a pool's candidates.

use super::{Eagerness, IndexedHeap, KEPT_BACK, Nanos, Pool, QueueSpec, Shares};
use sextant_types::index::QueueIx;

#[derive(Debug, Default)]
pub(super) struct Ranks {
    /// By the time from which they may start: the candidates that wait for it.
    pub(super) deferred: IndexedHeap<QueueIx>,
    /// By what waiting is worth: those of them that may start before, if waiting is worth little.
    pub(super) worth: IndexedHeap<QueueIx>,
    /// By rank: the candidates that are ready and wait for a slot.
    pub(super) ready: IndexedHeap<QueueIx>,
    /// By the time at which they have to be formed again: every candidate.
    pub(super) expiry: IndexedHeap<QueueIx>,
    /// The waiting work by tenant, and which tenants go first if there is too much of it.
    pub(super) shares: Shares,
    /// How eager the pool is in its present state.
    pub(super) eager: Eagerness,
    /// Whether the pool's timer must be set again.
    pub(super) changed: bool,
}

/// Which heaps of the pool hold a seat's candidate, and under which keys. A heap is then touched
/// only if something changes in it: with thousands of queues each look is a cache miss.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Entries {
    pub(super) ready: bool,
    pub(super) deferred: Option<Nanos>,
    pub(super) worth: Option<f32>,
    pub(super) expiry: Option<Nanos>,
}

// === impl Ranks ===

impl Ranks {
    pub(super) fn remove(&mut self, queue: QueueIx, entries: &mut Entries) {
        if entries.ready {
            self.ready.remove(queue);
        }
        if entries.deferred.is_some() {
            self.deferred.remove(queue);
        }
        if entries.worth.is_some() {
            self.worth.remove(queue);
        }
        if entries.expiry.is_some() {
            self.expiry.remove(queue);
        }
        *entries = Entries::default();
    }

    pub(super) fn defer(
        &mut self,
        queue: QueueIx,
        entries: &mut Entries,
        ready_at: Nanos,
        worth: Option<f32>,
        wake: Nanos,
    ) {
        if std::mem::take(&mut entries.ready) {
            self.ready.remove(queue);
        }
        if entries.deferred.replace(ready_at) != Some(ready_at) {
            self.deferred.set(queue, ready_at);
        }
        match (worth, std::mem::replace(&mut entries.worth, worth)) {
            (Some(worth), _) => self.worth.set(queue, u64::from(worth.max(0.0).to_bits())),
            (None, Some(_)) => drop(self.worth.remove(queue)),
            (None, None) => {}
        }
        self.expire(queue, entries, wake);
    }

    pub(super) fn make_ready(
        &mut self,
        queue: QueueIx,
        entries: &mut Entries,
        rank: u64,
        wake: Nanos,
    ) {
        if entries.deferred.take().is_some() {
            self.deferred.remove(queue);
        }
        if entries.worth.take().is_some() {
            self.worth.remove(queue);
        }
        entries.ready = true;
        self.ready.set(queue, rank);
        self.expire(queue, entries, wake);
    }

    pub(super) fn expire(&mut self, queue: QueueIx, entries: &mut Entries, wake: Nanos) {
        if entries.expiry.replace(wake) != Some(wake) {
            self.expiry.set(queue, wake);
        }
    }

    /// Whether the candidates of a queue are held back for the sake of other tenants.
    #[inline]
    pub(super) fn keeps_back(&mut self, spec: &QueueSpec, pool: Option<&Pool>) -> bool {
        pool.is_some_and(|pool| self.shares.keeps_back(spec.tenant, pool.slots()))
    }

    /// Moves candidates forward that no longer have to be held back.
    #[inline]
    pub(super) fn bring_forward(&mut self) {
        while let Some(queue) = self.shares.next_due() {
            if let Some(rank) = self.ready.key(queue) {
                self.ready.set(queue, rank & !KEPT_BACK);
            }
        }
    }

    /// When the pool must be looked at: when a candidate expires; while a slot is free, when the
    /// time of a candidate comes; otherwise when a slot may take its next batch.
    pub(super) fn next(&self, pool: &Pool) -> Option<Nanos> {
        let expiry = self.expiry.first().map(|(at, _)| at);
        let first = self.deferred.first().map(|(at, _)| at);
        let (due, waits) = if pool.has_free() {
            let due = first.map(|at| at.saturating_sub(self.eager.early));
            // The candidates that are ready even so wait for several slots.
            (due, !self.ready.is_empty())
        } else {
            (None, !self.ready.is_empty() || first.is_some())
        };
        let grant = pool.next_grant().filter(|_| waits);
        expiry.into_iter().chain(due).chain(grant).min()
    }
}
