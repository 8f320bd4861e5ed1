//! All pools, and the batches that run on them.

use std::collections::BTreeMap;

use super::{Place, Pool, Slot};
use crate::schedule::{Nanos, WorkerSpec};

/// Names a batch on its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId {
    /// Counts up; never used twice.
    pub(crate) number: u64,
    /// Position in the table of running batches.
    pub(crate) at: u32,
}

/// A batch under way.
#[derive(Debug, Clone)]
pub struct Running {
    number: u64,
    pool: u32,
    worker: u32,
    /// The first of its slots, then the others.
    slot: u32,
    more: Vec<u32>,
    /// Its queue.
    pub queue: u32,
    /// Rows in the batch.
    pub rows: u32,
    /// When it starts as far as is known.
    pub start: Nanos,
    /// When it should end.
    pub until: Nanos,
}

/// All pools, and the batches that run on them.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    pools: Vec<Pool>,
    /// By worker: its pool.
    pool_of: BTreeMap<u32, u32>,
    running: Vec<Option<Running>>,
    vacant: Vec<u32>,
    numbers: u64,
}

// === impl Fleet ===

impl Fleet {
    /// The pool, if it was ever named.
    #[inline]
    pub fn pool(&self, pool: u32) -> Option<&Pool> {
        self.pools.get(pool as usize)
    }

    /// The pool, made when it is new.
    pub fn pool_mut(&mut self, pool: u32) -> &mut Pool {
        let at = pool as usize;
        if self.pools.len() <= at {
            self.pools.resize_with(at + 1, Pool::default);
        }
        &mut self.pools[at]
    }

    /// Number of pools.
    pub fn len(&self) -> u32 {
        self.pools.len() as u32
    }

    /// Whether there is no pool.
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty()
    }

    /// The pool of a worker that is up.
    pub fn pool_of(&self, worker: u32) -> Option<u32> {
        self.pool_of.get(&worker).copied()
    }

    /// Adds a worker with idle slots; one that is up already is first taken down.
    pub fn up(&mut self, worker: u32, spec: WorkerSpec) -> Vec<BatchId> {
        let lost = self.down(worker);
        self.pool_of.insert(worker, spec.pool);
        let pool = self.pool_mut(spec.pool);
        for _ in 0..spec.slots.max(1) {
            let slot = pool.vacant.pop().unwrap_or_else(|| {
                pool.slots.push(Slot::default());
                pool.slots.len() as u32 - 1
            });
            pool.slots[slot as usize] = Slot {
                worker,
                batches: 0,
                until: 0,
                up: true,
            };
            pool.free.insert(slot);
            pool.workers.entry(worker).or_default().push(slot);
            pool.up += 1;
            pool.idle += 1;
        }
        lost
    }

    /// Removes a worker; tells the batches that were under way on it.
    pub fn down(&mut self, worker: u32) -> Vec<BatchId> {
        let Some(at) = self.pool_of.remove(&worker) else {
            return Vec::new();
        };
        let mut lost = Vec::new();
        for (at, entry) in self.running.iter_mut().enumerate() {
            if let Some(running) = entry
                && running.worker == worker
            {
                let number = running.number;
                lost.push(BatchId {
                    number,
                    at: at as u32,
                });
                self.vacant.push(at as u32);
                *entry = None;
            }
        }
        lost.sort_unstable();
        let pool = self.pool_mut(at);
        for slot in pool.workers.remove(&worker).unwrap_or_default() {
            pool.free.remove(slot);
            pool.soon.remove(slot);
            pool.grantable.remove(slot);
            pool.up -= 1;
            if pool.slots[slot as usize].batches == 0 {
                pool.idle -= 1;
            }
            pool.slots[slot as usize] = Slot::default();
            pool.vacant.push(slot);
        }
        lost
    }

    /// Takes the place for a batch that runs from `start` to `until`.
    pub fn occupy(
        &mut self,
        pool: u32,
        place: Place,
        queue: u32,
        rows: u32,
        (start, until): (Nanos, Nanos),
    ) -> BatchId {
        let of = self.pool_mut(pool);
        of.crowding.ran((until - start) as f64);
        of.occupy(place.slot, until);
        place.more.iter().for_each(|slot| of.occupy(*slot, until));
        self.numbers += 1;
        let running = Running {
            number: self.numbers,
            pool,
            worker: place.worker,
            slot: place.slot,
            more: place.more,
            queue,
            rows,
            start,
            until,
        };
        let at = self.vacant.pop().unwrap_or_else(|| {
            self.running.push(None);
            self.running.len() as u32 - 1
        });
        self.running[at as usize] = Some(running);
        BatchId {
            number: self.numbers,
            at,
        }
    }

    /// A batch has left its worker; tells what it was and its pool. `None` for a batch that is not
    /// under way: a late answer of a worker that was given up changes nothing.
    pub fn release(&mut self, now: Nanos, batch: BatchId) -> Option<(u32, Running)> {
        let entry = self.running.get_mut(batch.at as usize)?;
        let running = entry.take_if(|running| running.number == batch.number)?;
        self.vacant.push(batch.at);
        let pool = self.pool_mut(running.pool);
        pool.observe(now);
        pool.release(running.slot);
        running.more.iter().for_each(|slot| pool.release(*slot));
        Some((running.pool, running))
    }
}
