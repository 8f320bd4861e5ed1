//! On which pools a queue may run, and what its waiting rows mean there.

use sextant_schedule::{Delay, DropReason, Nanos, PoolIx, QueueSpec, Request};
use sextant_types::index::IndexVec;

/// A queue on a pool.
#[derive(Debug)]
pub(super) struct Seat {
    pub pool: PoolIx,
    pub spec: QueueSpec,
}

/// The pools of one queue, the fastest first: only what cannot be met there is lost.
#[derive(Debug, Default)]
pub(super) struct Seats {
    list: Vec<Seat>,
    work: Nanos,
}

impl Seats {
    /// Adds a pool or replaces its spec.
    pub fn load(&mut self, pool: PoolIx, spec: QueueSpec) {
        match self.list.iter_mut().find(|seat| seat.pool == pool) {
            Some(seat) => seat.spec = spec,
            None => self.list.push(Seat { pool, spec }),
        }
        self.list
            .sort_by_key(|seat| (seat.spec.latency.of(1), seat.pool));
    }

    /// Removes a pool; tells whether it was there.
    pub fn unload(&mut self, pool: PoolIx) -> bool {
        let before = self.list.len();
        self.list.retain(|seat| seat.pool != pool);
        self.list.len() < before
    }

    /// The pools.
    pub fn iter(&self) -> impl Iterator<Item = &Seat> {
        self.list.iter()
    }

    /// The seat on `pool`.
    pub fn on(&self, pool: PoolIx) -> Option<&Seat> {
        self.list.iter().find(|seat| seat.pool == pool)
    }

    /// The pool at a position.
    pub fn pool(&self, at: usize) -> Option<PoolIx> {
        self.list.get(at).map(|seat| seat.pool)
    }

    /// Whether there is no pool.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Why a request is refused on arrival, with `waiting` rows before it.
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

    /// Adds the work of `rows` waiting rows to what waits for each pool, in place of what was
    /// added before.
    pub fn count(&mut self, rows: u32, queued: &mut IndexVec<PoolIx, Nanos>) {
        let work = self.list.first().map_or(0, |seat| seat.spec.work(rows));
        let before = std::mem::replace(&mut self.work, work);
        for seat in &self.list {
            let queued = &mut queued[seat.pool];
            *queued = queued.saturating_sub(before).saturating_add(work);
        }
    }
}
