//! The batches that were sent to each slot and are not answered yet, in order.
//!
//! This is for policies that keep more than one batch on a slot, or a queue for each slot: they look at the batches of
//! a slot, not at whether it is free. What the published systems call a device is a slot here, because they only know
//! devices with one executor. A batch takes one slot, however many slots its queue asks for.

use std::collections::{BTreeMap, VecDeque};

use sextant_schedule::{BatchId, DeviceSpec, IndexedHeap, NEVER, Nanos, PoolIx, PoolLoad};
use sextant_types::index::{DeviceIx, IndexVec, QueueIx, SlotIx};

/// A batch in progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlotBatch {
    number: u64,
    /// Its queue.
    pub queue: QueueIx,
    /// Rows in it.
    pub rows: u32,
    /// When its inputs have arrived.
    ready: Nanos,
    /// Its expected start.
    pub start: Nanos,
    /// Expected run time, ns.
    pub expected: Nanos,
}

#[derive(Debug)]
struct Slot {
    pool: PoolIx,
    device: DeviceIx,
    sent: VecDeque<SlotBatch>,
}

#[derive(Debug, Default)]
struct Ends {
    /// For every slot that is not set aside: the expected end of its last batch; 0 if it is idle.
    ends: IndexedHeap<SlotIx>,
    up: u32,
    idle: u32,
}

/// Every slot of every pool.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: IndexVec<SlotIx, Option<Slot>>,
    vacant: Vec<SlotIx>,
    of_device: BTreeMap<DeviceIx, Vec<SlotIx>>,
    pools: IndexVec<PoolIx, Ends>,
    /// By [`BatchId::at`]: number and slot; number 0 if no batch is in progress.
    batches: Vec<(u64, SlotIx)>,
    vacant_batches: Vec<u32>,
    numbers: u64,
}

// === impl SlotBatch ===

impl SlotBatch {
    fn end(&self) -> Nanos {
        self.start.saturating_add(self.expected)
    }
}

// === impl Slot ===

impl Slot {
    /// Expected ends of the first and the last batch; `None` if the slot is idle.
    fn ends(&self) -> Option<(Nanos, Nanos)> {
        Some((self.sent.front()?.end(), self.sent.back()?.end()))
    }

    /// Recomputes the expected starts: from `at` on, the slot runs the remaining batches one after the other.
    fn follow(&mut self, at: Nanos) {
        let mut free = at;
        for sent in &mut self.sent {
            sent.start = sent.ready.max(free);
            free = sent.end();
        }
    }
}

// === impl Slots ===

impl Slots {
    /// Adds the slots of a device, idle. A device that is already up is first taken down.
    pub fn up(&mut self, device: DeviceIx, spec: DeviceSpec) -> Vec<BatchId> {
        let lost = self.down(device);
        self.pool(spec.pool);
        for _ in 0..spec.slots.max(1) {
            let vacant = self.vacant.pop();
            let slot = vacant.unwrap_or_else(|| self.slots.push(None));
            self.slots[slot] = Some(Slot {
                pool: spec.pool,
                device,
                sent: VecDeque::new(),
            });
            self.of_device.entry(device).or_default().push(slot);
            let pool = self.pool(spec.pool);
            pool.up += 1;
            pool.idle += 1;
            pool.ends.set(slot, 0);
        }
        lost
    }

    /// Removes the slots of a device; returns the batches that were in progress on them.
    pub fn down(&mut self, device: DeviceIx) -> Vec<BatchId> {
        let mut lost = Vec::new();
        for slot in self.of_device.remove(&device).unwrap_or_default() {
            let gone = self.slots[slot].take();
            let gone = gone.expect("a device's slots are there while it is up");
            self.vacant.push(slot);
            for (at, entry) in self.batches.iter_mut().enumerate() {
                if entry.0 != 0 && entry.1 == slot {
                    let (number, at) = (entry.0, at as u32);
                    lost.push(BatchId { number, at });
                    self.vacant_batches.push(at);
                    *entry = Default::default();
                }
            }
            let pool = self.pool(gone.pool);
            pool.up -= 1;
            pool.idle -= u32::from(gone.sent.is_empty());
            pool.ends.remove(slot);
        }
        lost.sort_unstable();
        lost
    }

    /// Moves a device's slots with their batches to another pool; returns the pool that they have left.
    pub fn transfer(&mut self, device: DeviceIx, pool: PoolIx) -> Option<PoolIx> {
        let slots = self.of_device.get(&device)?.clone();
        let before = self.pool_of(*slots.first()?);
        if before == pool {
            return None;
        }
        for slot in slots {
            let of = self.get_mut(slot);
            of.pool = pool;
            let (idle, until) = (of.sent.is_empty(), of.ends().map_or(0, |(_, last)| last));
            let from = self.pool(before);
            from.up -= 1;
            from.idle -= u32::from(idle);
            // A slot that was set aside is evaluated anew.
            from.ends.remove(slot);
            let to = self.pool(pool);
            to.up += 1;
            to.idle += u32::from(idle);
            to.ends.set(slot, until);
        }
        Some(before)
    }

    /// The pool of a device that is up.
    pub fn pool_of_device(&self, device: DeviceIx) -> Option<PoolIx> {
        let slot = *self.of_device.get(&device)?.first()?;
        Some(self.pool_of(slot))
    }

    /// Adds a batch behind those of the slot; `ready` is when its inputs have arrived.
    pub fn send(&mut self, now: Nanos, slot: SlotIx, ready: Nanos, batch: Batch) -> BatchId {
        let start = ready.max(self.free_at(slot, now));
        self.numbers += 1;
        let number = self.numbers;
        let at = self.vacant_batches.pop().unwrap_or_else(|| {
            self.batches.push(Default::default());
            self.batches.len() as u32 - 1
        });
        self.batches[at as usize] = (number, slot);
        let sent = SlotBatch {
            number,
            queue: batch.queue,
            rows: batch.rows,
            ready,
            start,
            expected: batch.expected,
        };
        let of = self.get_mut(slot);
        let (pool, idle) = (of.pool, of.sent.is_empty());
        of.sent.push_back(sent);
        let pool = self.pool(pool);
        pool.idle -= u32::from(idle);
        pool.ends.set(slot, sent.end());
        BatchId { number, at }
    }

    /// A batch has left its slot. Returns the slot and the batch with its true start. `None` if the batch is not in
    /// progress: a late answer of a device that was given up changes nothing.
    pub fn finish(&mut self, now: Nanos, batch: BatchId) -> Option<(SlotIx, SlotBatch)> {
        let entry = self.batches.get_mut(batch.at as usize)?;
        if entry.0 != batch.number || batch.number == 0 {
            return None;
        }
        let slot = std::mem::take(entry).1;
        self.vacant_batches.push(batch.at);
        let of = self.get_mut(slot);
        let at = of
            .sent
            .iter()
            .position(|sent| sent.number == batch.number)?;
        let sent = of.sent.remove(at)?;
        if at == 0 {
            of.follow(now);
        }
        let (pool, until) = (of.pool, of.ends().map(|(_, last)| last));
        let pool = self.pool(pool);
        pool.idle += u32::from(until.is_none());
        pool.ends.set(slot, until.unwrap_or(0));
        Some((slot, sent))
    }

    /// Expected end of all batches on a slot, 0 if it is idle. An overdue batch is assumed to end now, so the batches
    /// behind it move with the clock.
    pub fn free_at(&self, slot: SlotIx, now: Nanos) -> Nanos {
        let ends = self.slots.known(slot).and_then(Slot::ends);
        ends.map_or(0, |(first, last)| {
            last.saturating_add(now.saturating_sub(first))
        })
    }

    /// The time from which a slot may take one more batch: when it is idle, or `ahead` before it will be. [`NEVER`] if
    /// the slot must answer first: nothing is sent ahead, or more work than `ahead` lies behind a batch that may be
    /// stuck.
    pub fn ready_at(&self, slot: SlotIx, ahead: Nanos) -> Nanos {
        let ends = self.slots.known(slot).and_then(Slot::ends);
        match ends {
            None => 0,
            Some((first, last)) if ahead == 0 || last - first > ahead => NEVER,
            Some((_, last)) => last.saturating_sub(ahead),
        }
    }

    /// The slot of the pool that is free first, and the time; 0 if it is idle.
    pub fn first(&self, pool: PoolIx) -> Option<(Nanos, SlotIx)> {
        self.pools.get(pool)?.ends.first()
    }

    /// Keeps a slot out of [`Self::first`] until it answers.
    pub fn set_aside(&mut self, slot: SlotIx) {
        let pool = self.get_mut(slot).pool;
        self.pool(pool).ends.remove(slot);
    }

    /// Whether the slot is up.
    pub fn is_up(&self, slot: SlotIx) -> bool {
        self.slots.known(slot).is_some()
    }

    /// The device of a slot that is up.
    pub fn device(&self, slot: SlotIx) -> DeviceIx {
        self.get(slot).device
    }

    /// The pool of a slot that is up.
    pub fn pool_of(&self, slot: SlotIx) -> PoolIx {
        self.get(slot).pool
    }

    /// The slots of a pool, by number.
    pub fn of_pool(&self, pool: PoolIx) -> impl Iterator<Item = SlotIx> + '_ {
        let numbered = self.slots.numbered();
        numbered.filter_map(move |(at, slot)| {
            slot.as_ref()
                .is_some_and(|slot| slot.pool == pool)
                .then_some(at)
        })
    }

    /// The numbers of all present and past slots.
    pub fn numbers(&self) -> impl Iterator<Item = SlotIx> + use<> {
        self.slots.numbers()
    }

    /// Every pool.
    pub fn pools(&self) -> impl Iterator<Item = PoolIx> + use<> {
        self.pools.numbers()
    }

    /// Makes room for a pool.
    pub fn know(&mut self, pool: PoolIx) {
        self.pool(pool);
    }

    /// The load of a pool for which `queued` ns of device time wait.
    pub fn load(&self, pool: PoolIx, queued: Nanos) -> PoolLoad {
        let Some(of) = self.pools.get(pool) else {
            return PoolLoad::default();
        };
        let end = of.ends.first().map_or(0, |(end, _)| end);
        PoolLoad {
            slots: of.up,
            idle: of.idle,
            busy_until: if of.idle > 0 { 0 } else { end },
            queued: queued / Nanos::from(of.up.max(1)),
        }
    }

    fn pool(&mut self, pool: PoolIx) -> &mut Ends {
        self.pools.grown(pool)
    }

    fn get(&self, slot: SlotIx) -> &Slot {
        let slot = self.slots.known(slot);
        slot.expect("only slots that are up are asked for")
    }

    fn get_mut(&mut self, slot: SlotIx) -> &mut Slot {
        let slot = self.slots.known_mut(slot);
        slot.expect("only slots that are up are asked for")
    }
}

/// What [`Slots::send`] needs to know of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch {
    pub queue: QueueIx,
    pub rows: u32,
    pub expected: Nanos,
}
