//! The devices of one kind: which are free, and until when the others run.

use std::collections::BTreeMap;

use super::{IndexedHeap, Nanos, WorkerSpec, slots::SlotSet};

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

/// What a batch occupies once it is placed.
#[derive(Debug, Clone)]
pub struct Place {
    /// The worker.
    pub worker: u32,
    /// When its slots are free.
    pub free_at: Nanos,
    slot: u32,
    more: Vec<u32>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    worker: u32,
    /// Batches sent and not answered; 2 while one waits behind another.
    batches: u8,
    /// When the last of them should end.
    until: Nanos,
    up: bool,
}

/// The slots of one pool. A slot runs one batch at a time; a device with one executor has one slot,
/// a processor has as many as cores.
///
/// Of several free slots the one with the least number is taken, so that at low load the last
/// devices stay idle as a whole and can be given back.
#[derive(Debug, Clone, Default)]
pub struct Pool {
    slots: Vec<Slot>,
    vacant: Vec<u32>,
    /// Idle slots.
    free: SlotSet,
    /// Slots that will be idle within the lead.
    soon: SlotSet,
    /// Busy slots by the time from which they may take their next batch.
    grantable: IndexedHeap,
    workers: BTreeMap<u32, Vec<u32>>,
    /// How long before its end the next batch may be sent.
    lead: Nanos,
    up: u32,
    idle: u32,
    crowding: Crowding,
    /// Until when slots count as shared with batches without a deadline.
    shared_until: Nanos,
}

/// How scarce devices have been lately.
#[derive(Debug, Clone, Copy, Default)]
struct Crowding {
    /// Share of time with no idle slot, forgetting over a second.
    share: f64,
    observed: Nanos,
    /// Mean run time of batches, ns.
    mean_run: f64,
}

/// Time over which [`Crowding`] forgets, ns.
const CROWDING_MEMORY: f64 = 1e9;

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

// === impl Pool ===

impl Pool {
    /// Slots of workers that are up.
    pub fn slots(&self) -> u32 {
        self.up
    }

    /// Slots on which nothing runs.
    pub fn idle(&self) -> u32 {
        self.idle
    }

    /// Share of time in which no slot was idle, over about the last second, 0 to 1.
    pub fn crowded_share(&self) -> f64 {
        self.crowding.share
    }

    /// Mean run time of the last hundred batches or so, ns; 0 before the first.
    pub fn mean_run(&self) -> f64 {
        self.crowding.mean_run
    }

    /// A batch without a deadline runs from `start` to `until`.
    pub fn share(&mut self, start: Nanos, until: Nanos) {
        let after = until.saturating_add(until - start);
        self.shared_until = self.shared_until.max(after);
    }

    /// Whether a batch without a deadline runs, or ended no longer ago than it ran: there is
    /// device time that those with deadlines could have had.
    pub fn is_shared(&self, now: Nanos) -> bool {
        now < self.shared_until
    }

    /// Accounts for the time until `now`; to be called before slots are taken or given back.
    pub fn observe(&mut self, now: Nanos) {
        let passed = now.saturating_sub(self.crowding.observed) as f64;
        let all_busy = if self.idle == 0 { 1.0 } else { 0.0 };
        let weight = passed / (passed + CROWDING_MEMORY);
        self.crowding.share += weight * (all_busy - self.crowding.share);
        self.crowding.observed = now;
    }

    /// Whether some slot may take a batch.
    #[inline]
    pub fn has_free(&self) -> bool {
        !self.free.is_empty() || !self.soon.is_empty()
    }

    /// When the next busy slot ends, as far as is known; `None` when none is busy.
    pub fn next_free(&self) -> Option<Nanos> {
        let (_, slot) = self.grantable.first()?;
        Some(self.slots[slot as usize].until)
    }

    /// Workers that are up, in order.
    pub fn workers(&self) -> impl Iterator<Item = u32> + '_ {
        self.workers.keys().copied()
    }

    /// A batch was sent that takes `lead` to arrive. The pool's lead follows the largest of the
    /// last hundred or so: a slot is offered early enough for most, and not so early that small
    /// batches wait on it while others end.
    pub fn raise_lead(&mut self, lead: Nanos) {
        self.lead = lead.max(self.lead - self.lead / 64);
    }

    /// From when a busy slot may take its next batch ahead of its end; `None` without a lead.
    pub fn next_grant(&self) -> Option<Nanos> {
        if self.lead == 0 {
            return None;
        }
        self.grantable.first().map(|(at, _)| at)
    }

    /// Makes the slots grantable whose batch ends within the lead.
    pub fn advance(&mut self, now: Nanos) {
        while self.lead > 0
            && let Some((at, slot)) = self.grantable.first()
            && at <= now
        {
            self.grantable.remove(slot);
            self.soon.insert(slot);
        }
    }

    /// Where a batch of `slots` slots could run now. Does not take it.
    pub fn find(&self, slots: u16) -> Option<Place> {
        if slots <= 1 {
            let slot = self.free.first().or_else(|| self.soon.first())?;
            return Some(self.place(&[slot]));
        }
        self.workers.values().find_map(|of_worker| {
            let slots = usize::from(slots).min(of_worker.len());
            let free: Vec<u32> = of_worker
                .iter()
                .copied()
                .filter(|slot| self.offers(*slot))
                .take(slots)
                .collect();
            (free.len() == slots).then(|| self.place(&free))
        })
    }

    /// Where a batch of one slot could run on `worker`.
    pub fn find_on(&self, worker: u32) -> Option<Place> {
        let slot = self
            .workers
            .get(&worker)?
            .iter()
            .find(|slot| self.offers(**slot))?;
        Some(self.place(&[*slot]))
    }

    fn offers(&self, slot: u32) -> bool {
        self.free.contains(slot) || self.soon.contains(slot)
    }

    fn place(&self, slots: &[u32]) -> Place {
        let free_at = slots
            .iter()
            .map(|slot| self.slots[*slot as usize])
            .map(|slot| if slot.batches == 0 { 0 } else { slot.until })
            .max()
            .unwrap_or(0);
        Place {
            worker: self.slots[slots[0] as usize].worker,
            free_at,
            slot: slots[0],
            more: slots[1..].to_vec(),
        }
    }

    fn occupy(&mut self, slot: u32, until: Nanos) {
        let state = &mut self.slots[slot as usize];
        if state.batches == 0 {
            self.idle -= 1;
        }
        state.batches += 1;
        state.until = until;
        let behind = state.batches > 1;
        self.free.remove(slot);
        self.soon.remove(slot);
        if !behind {
            self.grantable.set(slot, until.saturating_sub(self.lead));
        }
    }

    fn release(&mut self, slot: u32) {
        let state = &mut self.slots[slot as usize];
        if !state.up {
            return;
        }
        state.batches = state.batches.saturating_sub(1);
        if state.batches == 0 {
            self.idle += 1;
            self.grantable.remove(slot);
            self.soon.remove(slot);
            self.free.insert(slot);
        } else {
            let at = state.until.saturating_sub(self.lead);
            self.grantable.set(slot, at);
        }
    }
}

// === impl Crowding ===

impl Crowding {
    fn ran(&mut self, nanos: f64) {
        let weight = if self.mean_run == 0.0 { 1.0 } else { 0.01 };
        self.mean_run += weight * (nanos - self.mean_run);
    }
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

    /// Batches under way.
    pub fn running(&self) -> impl Iterator<Item = &Running> {
        self.running.iter().flatten()
    }
}
