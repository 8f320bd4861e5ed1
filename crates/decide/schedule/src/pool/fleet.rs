//! All pools, and the batches that run on them.

use std::collections::BTreeMap;

use sextant_types::index::{DeviceIx, IndexVec, PoolIx, QueueIx, SlotIx};

use super::{Place, Pool, Slot};
use crate::{DeviceSpec, Nanos};

/// Identifies a batch on its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId {
    /// Counts up and is never reused.
    pub number: u64,
    /// Position in the table of running batches.
    pub at: u32,
}

/// A batch under way.
#[derive(Debug, Clone)]
pub struct RunningBatch {
    number: u64,
    pool: PoolIx,
    /// The first of its slots, then the others.
    slot: SlotIx,
    more: Vec<SlotIx>,
    /// Its queue.
    pub queue: QueueIx,
    /// Rows in the batch.
    pub rows: u32,
    /// When it starts, as far as is known.
    pub start: Nanos,
    /// When it should end.
    pub until: Nanos,
}

/// A device that is up.
#[derive(Debug, Clone, Default)]
struct Device {
    pool: PoolIx,
    /// Its slots, by their numbers in the pool.
    slots: Vec<SlotIx>,
}

/// All pools, and the batches that run on them.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    pools: IndexVec<PoolIx, Pool>,
    devices: BTreeMap<DeviceIx, Device>,
    running: Vec<Option<RunningBatch>>,
    vacant: Vec<u32>,
    numbers: u64,
}

// === impl Fleet ===

impl Fleet {
    /// The pool, if it was ever named.
    #[inline]
    pub fn pool(&self, pool: PoolIx) -> Option<&Pool> {
        self.pools.get(pool)
    }

    /// The pool. It is made if it is new.
    pub fn pool_mut(&mut self, pool: PoolIx) -> &mut Pool {
        self.pools.grown(pool)
    }

    /// The pool of a device that is up.
    pub fn pool_of(&self, device: DeviceIx) -> Option<PoolIx> {
        self.devices.get(&device).map(|of| of.pool)
    }

    /// Adds a device with idle slots. A device that is up already is first taken down.
    pub fn up(&mut self, device: DeviceIx, spec: DeviceSpec) -> Vec<BatchId> {
        let lost = self.down(device);
        let idle = Slot {
            device,
            up: true,
            ..Slot::default()
        };
        let slots = vec![idle; usize::from(spec.slots.max(1))];
        let slots = self.pool_mut(spec.pool).admit(device, slots);
        let pool = spec.pool;
        self.devices.insert(device, Device { pool, slots });
        lost
    }

    /// Removes a device. Returns the batches that were under way on it.
    pub fn down(&mut self, device: DeviceIx) -> Vec<BatchId> {
        let Some(of) = self.devices.remove(&device) else {
            return Vec::new();
        };
        let states = self.pool_mut(of.pool).dismiss(device, &of.slots);
        let mut lost = Vec::new();
        for at in states.iter().flat_map(|state| state.running).flatten() {
            // A batch of several slots appears on each of them.
            if let Some(running) = self.running[at as usize].take() {
                let number = running.number;
                lost.push(BatchId { number, at });
                self.vacant.push(at);
            }
        }
        lost.sort_unstable();
        lost
    }

    /// Moves a device to another pool, with what runs on it. Returns the pool that it has left.
    /// O(its slots).
    pub fn transfer(&mut self, now: Nanos, device: DeviceIx, pool: PoolIx) -> Option<PoolIx> {
        let of = self.devices.get(&device).filter(|of| of.pool != pool)?;
        let (before, slots) = (of.pool, of.slots.clone());
        self.pool_mut(pool).observe(now);
        let from = self.pool_mut(before);
        from.observe(now);
        let states = from.dismiss(device, &slots);
        let batches: Vec<u32> = states.iter().flat_map(|of| of.running).flatten().collect();
        if self.pool_mut(pool).slots() == 0 {
            let from = std::mem::take(self.pool_mut(before));
            self.pool_mut(pool).inherit(&from);
            *self.pool_mut(before) = from;
        }
        let numbers = self.pool_mut(pool).admit(device, states);
        let renamed = |slot: SlotIx| {
            let at = slots.iter().position(|known| *known == slot);
            at.map_or(slot, |at| numbers[at])
        };
        for at in batches {
            let running = self.running[at as usize].as_mut();
            // A batch of several slots appears on each of them.
            let Some(running) = running.filter(|running| running.pool != pool) else {
                continue;
            };
            running.pool = pool;
            running.slot = renamed(running.slot);
            for slot in &mut running.more {
                *slot = renamed(*slot);
            }
        }
        let moved = Device {
            pool,
            slots: numbers,
        };
        self.devices.insert(device, moved);
        Some(before)
    }

    /// Occupies the place with a batch that runs from `start` to `until`.
    pub fn occupy(
        &mut self,
        pool: PoolIx,
        place: Place,
        queue: QueueIx,
        rows: u32,
        (start, until): (Nanos, Nanos),
    ) -> BatchId {
        let at = self.vacant.pop().unwrap_or_else(|| {
            self.running.push(None);
            self.running.len() as u32 - 1
        });
        let of = self.pool_mut(pool);
        of.crowding.ran((until - start) as f64);
        of.occupy(place.slot, until, at);
        let more = place.more.iter();
        more.for_each(|slot| of.occupy(*slot, until, at));
        self.numbers += 1;
        let running = RunningBatch {
            number: self.numbers,
            pool,
            slot: place.slot,
            more: place.more,
            queue,
            rows,
            start,
            until,
        };
        self.running[at as usize] = Some(running);
        BatchId {
            number: self.numbers,
            at,
        }
    }

    /// A batch has left its device. Returns its pool and what it was. Returns `None` for a batch
    /// that is not under way: a late answer of a device that was given up changes nothing.
    pub fn release(&mut self, now: Nanos, batch: BatchId) -> Option<(PoolIx, RunningBatch)> {
        let entry = self.running.get_mut(batch.at as usize)?;
        let running = entry.take_if(|running| running.number == batch.number)?;
        self.vacant.push(batch.at);
        let pool = self.pool_mut(running.pool);
        pool.observe(now);
        pool.release(running.slot, batch.at);
        let more = running.more.iter();
        more.for_each(|slot| pool.release(*slot, batch.at));
        Some((running.pool, running))
    }
}
