//! Clockwork's handling of a scheduler's events.

use sextant_schedule::{BatchId, DeviceSpec, PoolIx, PoolLoad, QueueSpec, Scheduler};

use super::{
    Action, Actions, Clockwork, DropReason, Nanos, PoolQueues, Queue, Request, RequestQueue,
};
use sextant_types::index::{DeviceIx, QueueIx};

impl<T: std::fmt::Debug + Send> Scheduler<T> for Clockwork<T> {
    fn on_device_up(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        spec: DeviceSpec,
        actions: &mut Actions<T>,
    ) -> Vec<BatchId> {
        self.know(spec.pool);
        self.changed.extend(self.slots.pool_of_device(device));
        let lost = self.slots.up(device, spec);
        self.arm_all(now, spec.pool);
        self.dispatch(now, spec.pool, actions);
        self.expect_grants();
        lost
    }

    fn on_device_down(&mut self, _: Nanos, device: DeviceIx, _: &mut Actions<T>) -> Vec<BatchId> {
        self.changed.extend(self.slots.pool_of_device(device));
        let lost = self.slots.down(device);
        self.expect_grants();
        lost
    }

    fn on_device_moved(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        pool: PoolIx,
        actions: &mut Actions<T>,
    ) {
        self.know(pool);
        if let Some(before) = self.slots.transfer(device, pool) {
            self.changed.push(before);
            self.arm_all(now, pool);
            self.dispatch(now, pool, actions);
            self.expect_grants();
        }
    }

    /// Activates the queue's strategies on the pool.
    fn on_loaded(
        &mut self,
        now: Nanos,
        pool: PoolIx,
        queue: QueueIx,
        spec: QueueSpec,
        actions: &mut Actions<T>,
    ) {
        self.know(pool);
        for size in 0..self.sizes.len() {
            let id = self.sizes.id(queue, size);
            self.pools[pool].remove(id);
        }
        let of = self.queues.grown(queue).get_or_insert_with(|| Queue {
            requests: RequestQueue::default(),
            by_pool: PoolQueues::default(),
        });
        of.by_pool.count(0, &mut self.queued);
        of.by_pool.load(pool, spec);
        of.by_pool.count(of.requests.rows(), &mut self.queued);
        self.reject(now, queue, actions);
        self.arm(now, queue, false);
        self.dispatch(now, pool, actions);
        self.expect_grants();
    }

    fn on_unloaded(&mut self, now: Nanos, pool: PoolIx, queue: QueueIx, actions: &mut Actions<T>) {
        let Some(of) = self.queues.known_mut(queue) else {
            return;
        };
        of.by_pool.count(0, &mut self.queued);
        if of.by_pool.unload(pool) {
            for size in 0..self.sizes.len() {
                let id = self.sizes.id(queue, size);
                self.pools[pool].remove(id);
            }
        }
        of.by_pool.count(of.requests.rows(), &mut self.queued);
        self.changed.push(pool);
        if !of.by_pool.is_empty() {
            self.reject(now, queue, actions);
            self.arm(now, queue, false);
            self.expect_grants();
            return;
        }
        let reason = DropReason::Gone;
        for request in self.take(queue, 0, usize::MAX - 1) {
            actions.push(Action::Drop { request, reason });
        }
        self.queues[queue] = None;
        self.expiries.remove(queue);
        self.expect_grants();
    }

    fn on_request(
        &mut self,
        now: Nanos,
        queue: QueueIx,
        mut request: Request<T>,
        actions: &mut Actions<T>,
    ) {
        let delay = self.delay;
        let Some(of) = self.queue_mut(queue) else {
            let reason = DropReason::Gone;
            return actions.push(Action::Drop { request, reason });
        };
        let waiting = of.requests.rows();
        if let Some(reason) = of.by_pool.refusal(now, delay, waiting, &request) {
            return actions.push(Action::Drop { request, reason });
        }
        request.deadline = delay.inward(request.deadline);
        let (at, _) = of.requests.push(now, request);
        let last = at + 1 == of.requests.len();
        self.waiting += 1;
        let Some(of) = self.queues.known_mut(queue) else {
            return;
        };
        of.by_pool.count(of.requests.rows(), &mut self.queued);
        if at == 0 {
            self.reject(now, queue, actions);
        }
        // An appended request changes only the sizes that lacked it.
        self.arm(now, queue, last);
        let mut on_pool = 0;
        while let Some(pool) = self.queue(queue).and_then(|of| of.by_pool.pool(on_pool)) {
            self.dispatch(now, pool, actions);
            on_pool += 1;
        }
        self.expect_grants();
    }

    fn on_result(&mut self, now: Nanos, batch: BatchId, actions: &mut Actions<T>) {
        if let Some((slot, _)) = self.slots.finish(now, batch) {
            self.dispatch(now, self.slots.pool_of(slot), actions);
            self.expect_grants();
        }
    }

    fn on_timer(&mut self, now: Nanos, actions: &mut Actions<T>) {
        while let Some((at, queue)) = self.expiries.first()
            && at <= now
        {
            self.reject(now, queue, actions);
            self.arm(now, queue, false);
        }
        self.expect_grants();
        while let Some((at, pool)) = self.grants.first()
            && at <= now
        {
            self.dispatch(now, pool, actions);
            self.expect_grants();
        }
    }

    fn next_timer(&self) -> Option<Nanos> {
        let expiry = self.expiries.first().map(|(at, _)| at);
        let grant = self.grants.first().map(|(at, _)| at);
        expiry.into_iter().chain(grant).min()
    }

    fn waiting(&self) -> usize {
        self.waiting
    }

    fn load(&self, pool: PoolIx) -> PoolLoad {
        let queued = self.queued.get(pool).copied().unwrap_or(0);
        self.slots.load(pool, queued)
    }
}
