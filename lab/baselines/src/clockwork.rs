//! Clockwork (OSDI 2020, section 5): batch queues, strategies, and little work sent ahead.
//!
//! Every request is in one *batch queue* per batch size. It leaves the queue of size `b` once a batch of `b` would be
//! too late for it even at the earliest possible start. A batch queue that holds enough requests for its size is a
//! *strategy*, with the latest start of its first request; strategies are ordered by that start. A slot with less than
//! the look-ahead (5 ms) outstanding takes the first strategy and enlarges it to the largest size whose own batch queue
//! is full enough. A request that would be late even if the next free slot ran it alone is refused at once. A request
//! without a deadline, as from a closed loop that only needs throughput, is the least urgent.
//!
//! This is simpler than the paper, with the same decisions. The requests of a queue are in order of deadline, so a
//! batch queue is what is left of them after a prefix and costs one binary search. All slots of a pool hold the same
//! variants, so strategies are kept by pool, not by slot.
//!
//! Where the published code differs from the paper, this follows the paper: no safety margin is subtracted from the
//! deadline, and requests too tight for a large batch remain for a smaller one instead of being purged.
//!
//! LOAD and UNLOAD connect here: strategies exist only where [`super::Scheduler::on_loaded`] was called, and vanish
//! with [`super::Scheduler::on_unloaded`]. Demand and priority of models that are not loaded can be counted from the
//! same events without a change here.

use crate::Options;
use sextant_schedule::{
    Action, Actions, Delay, DropReason, IndexedHeap, NEVER, Nanos, PoolIx, Request, RequestQueue,
};
use sextant_types::index::{IndexVec, QueueIx, SlotIx};

use super::{
    pool_queues::PoolQueues,
    slots::{Batch, Slots},
};

mod events;
mod strategy;

use strategy::{Sizes, Strategy};

#[derive(Debug)]
struct Queue<T> {
    requests: RequestQueue<T>,
    by_pool: PoolQueues,
}

/// The scheduler of `clockwork`.
#[derive(Debug)]
pub(super) struct Clockwork<T> {
    sizes: Sizes,
    look_ahead: Nanos,
    delay: Delay,
    slots: Slots,
    /// For each pool: strategies by latest start, under [`Sizes::id`].
    pools: IndexVec<PoolIx, IndexedHeap<u32>>,
    queued: IndexVec<PoolIx, Nanos>,
    queues: IndexVec<QueueIx, Option<Queue<T>>>,
    /// When the first request of a queue becomes impossible.
    expiries: IndexedHeap<QueueIx>,
    /// For each pool: when a slot may take a strategy.
    grants: IndexedHeap<PoolIx>,
    /// Pools that have changed since their grants were set.
    changed: Vec<PoolIx>,
    waiting: usize,
}

impl<T> Clockwork<T> {
    /// A scheduler with the look-ahead and the batch sizes of `options`.
    pub fn new(options: &Options) -> Self {
        Self {
            sizes: Sizes::new(&options.batch_sizes, options.delay),
            look_ahead: options.look_ahead,
            delay: options.delay,
            slots: Slots::default(),
            pools: IndexVec::default(),
            queued: IndexVec::default(),
            queues: IndexVec::default(),
            expiries: IndexedHeap::default(),
            grants: IndexedHeap::default(),
            changed: Vec::new(),
            waiting: 0,
        }
    }

    fn know(&mut self, pool: PoolIx) {
        self.pools.grown(pool);
        self.queued.grown(pool);
        self.slots.know(pool);
    }

    fn queue(&self, queue: QueueIx) -> Option<&Queue<T>> {
        self.queues.known(queue)
    }

    fn queue_mut(&mut self, queue: QueueIx) -> Option<&mut Queue<T>> {
        self.queues.known_mut(queue)
    }

    /// When the next slot of a pool is expected to be free; 0 for at once.
    fn first_free(&self, pool: PoolIx) -> Nanos {
        self.slots.first(pool).map_or(0, |(free_at, _)| free_at)
    }

    /// Makes the strategies of a queue anew; with `missing` only those that do not exist.
    fn arm(&mut self, now: Nanos, queue: QueueIx, missing: bool) {
        let Some(of) = self.queues.known(queue) else {
            return;
        };
        for on_pool in of.by_pool.iter() {
            self.changed.push(on_pool.pool);
            let first = self.slots.first(on_pool.pool);
            let free_at = first.map_or(0, |(_, slot)| self.slots.free_at(slot, now));
            for size in 0..self.sizes.usable(&on_pool.spec) {
                let id = self.sizes.id(queue, size);
                let known = self.pools[on_pool.pool].key(id);
                if missing && known.is_some() {
                    continue;
                }
                let made = self
                    .sizes
                    .strategy(now, free_at, &of.requests, &on_pool.spec, size);
                let order = &mut self.pools[on_pool.pool];
                match made {
                    Some(strategy) => order.set(id, strategy.key),
                    None if known.is_some() => {
                        order.remove(id);
                    }
                    None => {}
                }
            }
        }
    }

    /// Makes the strategies of all queues of a pool anew, because a new device can meet deadlines that the others could
    /// not.
    fn arm_all(&mut self, now: Nanos, pool: PoolIx) {
        for queue in self.queues.numbers() {
            let of = self.queue(queue);
            if of.is_some_and(|of| of.by_pool.on(pool).is_some()) {
                self.arm(now, queue, false);
            }
        }
    }

    /// Early rejection: refuses the first requests that not even the next free slot can meet.
    fn reject(&mut self, now: Nanos, queue: QueueIx, actions: &mut Actions<T>) {
        while let Some(of) = self.queue(queue)
            && let (deadline, rows) = (of.requests.deadline(0), of.requests.rows_of(0))
            && rows > 0
            && !of.by_pool.iter().any(|on_pool| {
                let start = self.sizes.start(now, self.first_free(on_pool.pool), rows);
                start.saturating_add(on_pool.spec.latency.of(rows)) <= deadline
            })
        {
            let reason = DropReason::Expired;
            for request in self.take(queue, 0, 1) {
                actions.push(Action::Drop { request, reason });
            }
        }
        self.expect_expiry(now, queue);
    }

    fn expect_expiry(&mut self, now: Nanos, queue: QueueIx) {
        let Some(of) = self.queue(queue) else { return };
        let (deadline, rows) = (of.requests.deadline(0), of.requests.rows_of(0));
        if deadline == NEVER {
            self.expiries.remove(queue);
            return;
        }
        let before = self.delay.before_start(rows);
        let last = of.by_pool.iter().map(|on_pool| {
            deadline
                .saturating_sub(on_pool.spec.latency.of(rows))
                .saturating_sub(before)
        });
        let at = last.max().unwrap_or(0).saturating_add(1);
        self.expiries.set(queue, at.max(now + 1));
    }

    /// Takes requests out of a queue and updates every sum.
    fn take(&mut self, queue: QueueIx, from: usize, count: usize) -> Vec<Request<T>> {
        let Some(of) = self.queues.known_mut(queue) else {
            return Vec::new();
        };
        let mut requests = of.requests.take(from, count);
        of.by_pool.count(of.requests.rows(), &mut self.queued);
        for request in &mut requests {
            request.deadline = self.delay.outward(request.deadline);
        }
        self.waiting -= requests.len();
        requests
    }

    /// Gives strategies to the slots of a pool with less than the look-ahead outstanding.
    fn dispatch(&mut self, now: Nanos, pool: PoolIx, actions: &mut Actions<T>) {
        self.changed.push(pool);
        while let Some((_, id)) = self.pools[pool].first()
            && let Some((free_at, slot)) = self.slots.first(pool)
            && free_at <= now.saturating_add(self.look_ahead)
        {
            if self.slots.ready_at(slot, self.look_ahead) > now {
                self.slots.set_aside(slot);
                continue;
            }
            let (queue, size) = self.sizes.of(id);
            if let Some(strategy) = self.choose(now, pool, queue, size, slot) {
                self.send(now, slot, queue, strategy, actions);
            }
            // If a strategy has changed, others may have become possible: requests behind those that left this size may
            // fill another.
            self.reject(now, queue, actions);
            self.arm(now, queue, false);
        }
    }

    /// Recomputes when the pools that have changed may give a strategy to a slot. A slot that must answer first is
    /// recomputed at its answer, and the next slot is tried.
    fn expect_grants(&mut self) {
        while let Some(pool) = self.changed.pop() {
            let waits = !self.pools[pool].is_empty();
            let first = self.slots.first(pool).filter(|_| waits);
            match first {
                Some((free_at, _)) => {
                    let at = free_at.saturating_sub(self.look_ahead);
                    self.grants.set(pool, at);
                }
                None => drop(self.grants.remove(pool)),
            }
        }
    }

    /// The first strategy, enlarged; `None` if it has changed since the strategies of its queue were made.
    fn choose(
        &self,
        now: Nanos,
        pool: PoolIx,
        queue: QueueIx,
        size: usize,
        slot: SlotIx,
    ) -> Option<Strategy> {
        let free_at = self.slots.free_at(slot, now);
        let id = self.sizes.id(queue, size);
        let known = self.pools[pool].key(id);
        let of = self.queue(queue)?;
        let spec = &of.by_pool.on(pool)?.spec;
        let strategy = |size| self.sizes.strategy(now, free_at, &of.requests, spec, size);
        let mut chosen = strategy(size).filter(|chosen| Some(chosen.key) == known)?;
        for larger in size + 1..self.sizes.usable(spec) {
            match strategy(larger) {
                Some(strategy) => chosen = strategy,
                None => break,
            }
        }
        Some(chosen)
    }

    fn send(
        &mut self,
        now: Nanos,
        slot: SlotIx,
        queue: QueueIx,
        strategy: Strategy,
        actions: &mut Actions<T>,
    ) {
        let pool = self.slots.pool_of(slot);
        let on_pool = self.queue(queue).and_then(|of| of.by_pool.on(pool));
        let expected = on_pool.map_or(0, |on_pool| on_pool.spec.latency.of(strategy.rows));
        let requests = self.take(queue, strategy.passed, strategy.count);
        let earliest = self.sizes.start(now, 0, strategy.rows);
        let deadline = requests.first().map_or(NEVER, |first| first.deadline);
        let deadline = self.delay.inward(deadline);
        let batch = Batch {
            queue,
            rows: strategy.rows,
            expected,
        };
        actions.push(Action::Infer {
            queue,
            device: self.slots.device(slot),
            requests,
            earliest,
            latest: match deadline {
                NEVER => NEVER,
                _ => deadline - expected,
            },
            expected,
            id: self.slots.send(now, slot, earliest, batch),
        });
    }
}
