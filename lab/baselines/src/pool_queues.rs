//! The pools on which a queue may run, and the work of its waiting rows there.

use sextant_schedule::{Delay, DropReason, Nanos, PoolIx, QueueSpec, Request};
use sextant_types::index::IndexVec;

/// A queue on a pool.
#[derive(Debug)]
pub(super) struct PoolQueue {
    pub pool: PoolIx,
    pub spec: QueueSpec,
}

/// The pools of one queue, the fastest first: only a request that the fastest cannot meet is lost.
#[derive(Debug, Default)]
pub(super) struct PoolQueues {
    list: Vec<PoolQueue>,
    work: Nanos,
}

impl PoolQueues {
    /// Adds a pool or replaces its spec.
    pub fn load(&mut self, pool: PoolIx, spec: QueueSpec) {
        match self.list.iter_mut().find(|on_pool| on_pool.pool == pool) {
            Some(on_pool) => on_pool.spec = spec,
            None => self.list.push(PoolQueue { pool, spec }),
        }
        self.list
            .sort_by_key(|on_pool| (on_pool.spec.latency.of(1), on_pool.pool));
    }

    /// Removes a pool; returns whether it was there.
    pub fn unload(&mut self, pool: PoolIx) -> bool {
        let before = self.list.len();
        self.list.retain(|on_pool| on_pool.pool != pool);
        self.list.len() < before
    }

    /// The pools.
    pub fn iter(&self) -> impl Iterator<Item = &PoolQueue> {
        self.list.iter()
    }

    /// The queue on `pool`.
    pub fn on(&self, pool: PoolIx) -> Option<&PoolQueue> {
        self.list.iter().find(|on_pool| on_pool.pool == pool)
    }

    /// The pool at a position.
    pub fn pool(&self, at: usize) -> Option<PoolIx> {
        self.list.get(at).map(|on_pool| on_pool.pool)
    }

    /// Whether there is no pool.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Why a request is refused on arrival, given `waiting` rows before it.
    pub fn refusal<T>(
        &self,
        now: Nanos,
        delay: Delay,
        waiting: u32,
        request: &Request<T>,
    ) -> Option<DropReason> {
        let Some(fastest) = self.list.first() else {
            return Some(DropReason::Gone);
        };
        fastest.spec.refusal(now, delay, waiting, request)
    }

    /// Adds the work of `rows` waiting rows to each pool's waiting work, in place of what was added before.
    pub fn count(&mut self, rows: u32, queued: &mut IndexVec<PoolIx, Nanos>) {
        let work = self
            .list
            .first()
            .map_or(0, |on_pool| on_pool.spec.work(rows));
        let before = std::mem::replace(&mut self.work, work);
        for on_pool in &self.list {
            let queued = &mut queued[on_pool.pool];
            *queued = queued.saturating_sub(before).saturating_add(work);
        }
    }
}
