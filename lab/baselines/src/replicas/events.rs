//! What lanes make of a scheduler's events.

use sextant_schedule::{BatchId, DeviceSpec, PoolIx, PoolLoad, Scheduler};

use super::{
    Action, Actions, DropReason, NEVER, Nanos, Queue, QueueSpec, Replicas, Request, Sharing,
};
use sextant_types::index::{DeviceIx, QueueIx};

impl<T: std::fmt::Debug + Send, S: Sharing> Scheduler<T> for Replicas<T, S> {
    fn on_device_up(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        spec: DeviceSpec,
        _: &mut Actions<T>,
    ) -> Vec<BatchId> {
        self.know(spec.pool);
        (self.stale, self.now) = (true, now);
        self.slots.up(device, spec)
    }

    fn on_device_down(&mut self, now: Nanos, device: DeviceIx, _: &mut Actions<T>) -> Vec<BatchId> {
        (self.stale, self.now) = (true, now);
        self.slots.down(device)
    }

    fn on_device_moved(&mut self, now: Nanos, device: DeviceIx, pool: PoolIx, _: &mut Actions<T>) {
        self.know(pool);
        if self.slots.transfer(device, pool).is_some() {
            (self.stale, self.now) = (true, now);
        }
    }

    fn on_loaded(
        &mut self,
        now: Nanos,
        pool: PoolIx,
        queue: QueueIx,
        spec: QueueSpec,
        _: &mut Actions<T>,
    ) {
        self.know(pool);
        (self.stale, self.now) = (true, now);
        let of = self.queues.grown(queue).get_or_insert_with(Queue::default);
        of.by_pool.count(0, &mut self.queued);
        of.by_pool.load(pool, spec);
        of.by_pool.count(of.rows, &mut self.queued);
    }

    fn on_unloaded(&mut self, now: Nanos, pool: PoolIx, queue: QueueIx, actions: &mut Actions<T>) {
        let Some(of) = self.queues.known_mut(queue) else {
            return;
        };
        (self.stale, self.now) = (true, now);
        of.by_pool.count(0, &mut self.queued);
        of.by_pool.unload(pool);
        of.by_pool.count(of.rows, &mut self.queued);
        if !of.by_pool.is_empty() {
            return;
        }
        let requests = self.recall(queue);
        let reason = DropReason::Gone;
        for request in self.left(queue, requests) {
            actions.push(Action::Drop { request, reason });
        }
        self.queues[queue] = None;
    }

    fn on_request(
        &mut self,
        now: Nanos,
        queue: QueueIx,
        mut request: Request<T>,
        actions: &mut Actions<T>,
    ) {
        let delay = self.delay;
        self.now = now;
        let Some(of) = self.queue_mut(queue) else {
            let reason = DropReason::Gone;
            return actions.push(Action::Drop { request, reason });
        };
        if let Some(reason) = of.by_pool.refusal(now, delay, of.rows, &request) {
            return actions.push(Action::Drop { request, reason });
        }
        request.deadline = delay.inward(request.deadline);
        self.count(now, queue, &request);
        self.keep_planned(now, actions);
        if let Some(slot) = self.route(now, queue, request) {
            self.serve(now, slot, actions);
        }
    }

    fn on_result(&mut self, now: Nanos, batch: BatchId, actions: &mut Actions<T>) {
        self.now = now;
        if let Some((slot, sent)) = self.slots.finish(now, batch) {
            self.learn(now, slot, &sent);
            self.keep_planned(now, actions);
            self.serve(now, slot, actions);
        }
    }

    fn on_timer(&mut self, now: Nanos, actions: &mut Actions<T>) {
        self.now = now;
        self.keep_planned(now, actions);
        self.expire(now, actions);
        while let Some((at, slot)) = self.timers.first()
            && at <= now
        {
            self.serve(now, slot, actions);
        }
    }

    fn next_timer(&self) -> Option<Nanos> {
        let stale = (self.stale && self.waiting > 0).then_some(self.now);
        let plan = (self.plan_at < NEVER).then_some(self.plan_at);
        let (timer, expiry) = (self.timers.first_key(), self.expiries.first_key());
        [stale, plan, timer, expiry]
            .into_iter()
            .flatten()
            .min()
            .filter(|at| *at < NEVER)
    }

    fn waiting(&self) -> usize {
        self.waiting
    }

    fn load(&self, pool: PoolIx) -> PoolLoad {
        let queued = self.queued.get(pool).copied().unwrap_or(0);
        self.slots.load(pool, queued)
    }
}
