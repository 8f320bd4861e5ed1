//! What was sent to each device and is not answered yet, in order.
//!
//! For the policies that keep more than one batch on a device, or a queue for each: a device is
//! known by what lies on it, not by free slots. A worker with several slots counts as that many
//! devices. A batch takes one of them, however many slots its queue asks for: the published systems
//! know devices with one executor only.

use std::collections::{BTreeMap, VecDeque};

use sextant_schedule::{BatchId, IndexedHeap, NEVER, Nanos, PoolIx, PoolLoad, WorkerSpec};
use sextant_types::index::IndexVec;

/// A batch under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    number: u64,
    /// Its queue.
    pub queue: u32,
    /// Rows in it.
    pub rows: u32,
    /// When its inputs are there.
    ready: Nanos,
    /// When it starts as far as is known.
    pub start: Nanos,
    /// How long it should run, ns.
    pub expected: Nanos,
}

#[derive(Debug)]
struct Device {
    pool: PoolIx,
    worker: u32,
    sent: VecDeque<Sent>,
}

#[derive(Debug, Default)]
struct Ends {
    /// By when the last batch on it should end, 0 when idle: every device that is not set aside.
    ends: IndexedHeap,
    up: u32,
    idle: u32,
}

/// Every device of every pool.
#[derive(Debug, Default)]
pub(super) struct Devices {
    devices: Vec<Option<Device>>,
    vacant: Vec<u32>,
    of_worker: BTreeMap<u32, Vec<u32>>,
    pools: IndexVec<PoolIx, Ends>,
    /// By [`BatchId::at`]: number and device; number 0 where nothing is under way.
    batches: Vec<(u64, u32)>,
    vacant_batches: Vec<u32>,
    numbers: u64,
}

// === impl Sent ===

impl Sent {
    fn end(&self) -> Nanos {
        self.start.saturating_add(self.expected)
    }
}

// === impl Device ===

impl Device {
    /// When the first and the last batch on it should end; `None` when it is idle.
    fn ends(&self) -> Option<(Nanos, Nanos)> {
        Some((self.sent.front()?.end(), self.sent.back()?.end()))
    }

    /// What is known again: from `at` on the device runs what is left, one after the other.
    fn follow(&mut self, at: Nanos) {
        let mut free = at;
        for sent in &mut self.sent {
            sent.start = sent.ready.max(free);
            free = sent.end();
        }
    }
}

// === impl Devices ===

impl Devices {
    /// Adds the devices of a worker, idle; one that is up already is first taken down.
    pub fn up(&mut self, worker: u32, spec: WorkerSpec) -> Vec<BatchId> {
        let lost = self.down(worker);
        self.pool(spec.pool);
        for _ in 0..spec.slots.max(1) {
            let device = self.vacant.pop().unwrap_or_else(|| {
                self.devices.push(None);
                self.devices.len() as u32 - 1
            });
            self.devices[device as usize] = Some(Device {
                pool: spec.pool,
                worker,
                sent: VecDeque::new(),
            });
            self.of_worker.entry(worker).or_default().push(device);
            let pool = self.pool(spec.pool);
            pool.up += 1;
            pool.idle += 1;
            pool.ends.set(device, 0);
        }
        lost
    }

    /// Removes the devices of a worker; tells the batches that were under way on them.
    pub fn down(&mut self, worker: u32) -> Vec<BatchId> {
        let mut lost = Vec::new();
        for device in self.of_worker.remove(&worker).unwrap_or_default() {
            let gone = self.devices[device as usize].take();
            let gone = gone.expect("a worker's devices are there while it is up");
            self.vacant.push(device);
            for (at, entry) in self.batches.iter_mut().enumerate() {
                if entry.0 != 0 && entry.1 == device {
                    let (number, at) = (entry.0, at as u32);
                    lost.push(BatchId { number, at });
                    self.vacant_batches.push(at);
                    *entry = (0, 0);
                }
            }
            let pool = self.pool(gone.pool);
            pool.up -= 1;
            pool.idle -= u32::from(gone.sent.is_empty());
            pool.ends.remove(device);
        }
        lost.sort_unstable();
        lost
    }

    /// A worker's devices belong to another pool from now on, with what lies on them; tells the pool
    /// that they have left.
    pub fn transfer(&mut self, worker: u32, pool: PoolIx) -> Option<PoolIx> {
        let devices = self.of_worker.get(&worker)?.clone();
        let before = self.pool_of(*devices.first()?);
        if before == pool {
            return None;
        }
        for device in devices {
            let of = self.get_mut(device);
            of.pool = pool;
            let (idle, until) = (of.sent.is_empty(), of.ends().map_or(0, |(_, last)| last));
            let from = self.pool(before);
            from.up -= 1;
            from.idle -= u32::from(idle);
            // One that was set aside is found out again.
            from.ends.remove(device);
            let to = self.pool(pool);
            to.up += 1;
            to.idle += u32::from(idle);
            to.ends.set(device, until);
        }
        Some(before)
    }

    /// The pool of a worker that is up.
    pub fn pool_of_worker(&self, worker: u32) -> Option<PoolIx> {
        let device = *self.of_worker.get(&worker)?.first()?;
        Some(self.pool_of(device))
    }

    /// Puts a batch behind what lies on the device; `ready` is when its inputs are there.
    pub fn send(&mut self, now: Nanos, device: u32, ready: Nanos, batch: Batch) -> BatchId {
        let start = ready.max(self.free_at(device, now));
        self.numbers += 1;
        let number = self.numbers;
        let at = self.vacant_batches.pop().unwrap_or_else(|| {
            self.batches.push((0, 0));
            self.batches.len() as u32 - 1
        });
        self.batches[at as usize] = (number, device);
        let sent = Sent {
            number,
            queue: batch.queue,
            rows: batch.rows,
            ready,
            start,
            expected: batch.expected,
        };
        let of = self.get_mut(device);
        let (pool, idle) = (of.pool, of.sent.is_empty());
        of.sent.push_back(sent);
        let pool = self.pool(pool);
        pool.idle -= u32::from(idle);
        pool.ends.set(device, sent.end());
        BatchId { number, at }
    }

    /// A batch has left its device; tells the device and what is known of the batch, its true start
    /// included. `None` for a batch that is not under way: a late answer of a worker that was given
    /// up changes nothing.
    pub fn finish(&mut self, now: Nanos, batch: BatchId) -> Option<(u32, Sent)> {
        let entry = self.batches.get_mut(batch.at as usize)?;
        if entry.0 != batch.number || batch.number == 0 {
            return None;
        }
        let device = std::mem::take(entry).1;
        self.vacant_batches.push(batch.at);
        let of = self.get_mut(device);
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
        pool.ends.set(device, until.unwrap_or(0));
        Some((device, sent))
    }

    /// When everything on a device should have ended, 0 when it is idle. What is overdue is taken
    /// to end now, so what lies behind it moves on with the clock.
    pub fn free_at(&self, device: u32, now: Nanos) -> Nanos {
        let ends = self.devices[device as usize]
            .as_ref()
            .and_then(Device::ends);
        ends.map_or(0, |(first, last)| {
            last.saturating_add(now.saturating_sub(first))
        })
    }

    /// From when a device may take one more batch: when it is idle, or `ahead` before it will be.
    /// [`NEVER`] while it has to answer first: nothing is sent ahead, or more work than `ahead`
    /// lies behind a batch that may be stuck.
    pub fn ready_at(&self, device: u32, ahead: Nanos) -> Nanos {
        let ends = self.devices[device as usize]
            .as_ref()
            .and_then(Device::ends);
        match ends {
            None => 0,
            Some((first, last)) if ahead == 0 || last - first > ahead => NEVER,
            Some((_, last)) => last.saturating_sub(ahead),
        }
    }

    /// The device of the pool that is free first, and when, 0 for idle.
    pub fn first(&self, pool: PoolIx) -> Option<(Nanos, u32)> {
        self.pools.get(pool)?.ends.first()
    }

    /// Keeps a device out of [`Self::first`] until it answers.
    pub fn set_aside(&mut self, device: u32) {
        let pool = self.get_mut(device).pool;
        self.pool(pool).ends.remove(device);
    }

    /// Whether the device is up.
    pub fn is_up(&self, device: u32) -> bool {
        matches!(self.devices.get(device as usize), Some(Some(_)))
    }

    /// The worker of a device that is up.
    pub fn worker(&self, device: u32) -> u32 {
        self.get(device).worker
    }

    /// The pool of a device that is up.
    pub fn pool_of(&self, device: u32) -> PoolIx {
        self.get(device).pool
    }

    /// The devices of a pool, by number.
    pub fn of_pool(&self, pool: PoolIx) -> impl Iterator<Item = u32> + '_ {
        let numbered = (0..).zip(&self.devices);
        numbered.filter_map(move |(at, device)| {
            device
                .as_ref()
                .is_some_and(|device| device.pool == pool)
                .then_some(at)
        })
    }

    /// Numbers of devices are below this.
    pub fn bound(&self) -> usize {
        self.devices.len()
    }

    /// Every pool.
    pub fn pools(&self) -> impl Iterator<Item = PoolIx> + use<> {
        self.pools.numbers()
    }

    /// Makes room for a pool.
    pub fn know(&mut self, pool: PoolIx) {
        self.pool(pool);
    }

    /// The state of a pool, for which `queued` ns of device time wait.
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

    fn get(&self, device: u32) -> &Device {
        let device = self.devices[device as usize].as_ref();
        device.expect("only devices that are up are asked for")
    }

    fn get_mut(&mut self, device: u32) -> &mut Device {
        let device = self.devices[device as usize].as_mut();
        device.expect("only devices that are up are asked for")
    }
}

/// What [`Devices::send`] needs to know of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch {
    pub queue: u32,
    pub rows: u32,
    pub expected: Nanos,
}
