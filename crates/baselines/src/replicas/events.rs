//! What lanes make of a scheduler's events.

use sextant_schedule::{BatchId, PoolIx, PoolLoad, Scheduler, WorkerSpec};

use super::{
    Action, Actions, DropReason, IndexedHeap, NEVER, Nanos, Queue, QueueSpec, Replicas, Request,
    Sharing,
};

impl<T: std::fmt::Debug + Send, S: Sharing> Scheduler<T> for Replicas<T, S> {
    fn on_worker_up(
        &mut self,
        now: Nanos,
        worker: u32,
        spec: WorkerSpec,
        _: &mut Actions<T>,
    ) -> Vec<BatchId> {
        self.know(spec.pool);
        (self.stale, self.now) = (true, now);
        self.devices.up(worker, spec)
    }

    fn on_worker_down(&mut self, now: Nanos, worker: u32, _: &mut Actions<T>) -> Vec<BatchId> {
        (self.stale, self.now) = (true, now);
        self.devices.down(worker)
    }

    fn on_worker_moved(&mut self, now: Nanos, worker: u32, pool: PoolIx, _: &mut Actions<T>) {
        self.know(pool);
        if self.devices.transfer(worker, pool).is_some() {
            (self.stale, self.now) = (true, now);
        }
    }

    fn on_loaded(
        &mut self,
        now: Nanos,
        pool: PoolIx,
        queue: u32,
        spec: QueueSpec,
        _: &mut Actions<T>,
    ) {
        self.know(pool);
        (self.stale, self.now) = (true, now);
        let at = queue as usize;
        if self.queues.len() <= at {
            self.queues.resize_with(at + 1, || None);
        }
        let of = self.queues[at].get_or_insert_with(Queue::default);
        of.seats.count(0, &mut self.queued);
        of.seats.load(pool, spec);
        of.seats.count(of.rows, &mut self.queued);
    }

    fn on_unloaded(&mut self, now: Nanos, pool: PoolIx, queue: u32, actions: &mut Actions<T>) {
        let Some(Some(of)) = self.queues.get_mut(queue as usize) else {
            return;
        };
        (self.stale, self.now) = (true, now);
        of.seats.count(0, &mut self.queued);
        of.seats.unload(pool);
        of.seats.count(of.rows, &mut self.queued);
        if !of.seats.is_empty() {
            return;
        }
        let requests = self.recall(queue);
        let reason = DropReason::Gone;
        for request in self.left(queue, requests) {
            actions.push(Action::Drop { request, reason });
        }
        self.queues[queue as usize] = None;
    }

    fn on_request(
        &mut self,
        now: Nanos,
        queue: u32,
        mut request: Request<T>,
        actions: &mut Actions<T>,
    ) {
        let delay = self.delay;
        self.now = now;
        let Some(of) = self.queue_mut(queue) else {
            let reason = DropReason::Gone;
            return actions.push(Action::Drop { request, reason });
        };
        if let Some(reason) = of.seats.refusal(now, delay, of.rows, &request) {
            return actions.push(Action::Drop { request, reason });
        }
        request.deadline = delay.inward(request.deadline);
        self.count(now, queue, &request);
        self.keep_planned(now, actions);
        if let Some(device) = self.route(now, queue, request) {
            self.serve(now, device, actions);
        }
    }

    fn on_result(&mut self, now: Nanos, batch: BatchId, actions: &mut Actions<T>) {
        self.now = now;
        if let Some((device, sent)) = self.devices.finish(now, batch) {
            self.learn(now, device, &sent);
            self.keep_planned(now, actions);
            self.serve(now, device, actions);
        }
    }

    fn on_timer(&mut self, now: Nanos, actions: &mut Actions<T>) {
        self.now = now;
        self.keep_planned(now, actions);
        self.expire(now, actions);
        while let Some((at, device)) = self.timers.first()
            && at <= now
        {
            self.serve(now, device, actions);
        }
    }

    fn next_timer(&self) -> Option<Nanos> {
        let stale = (self.stale && self.waiting > 0).then_some(self.now);
        let plan = (self.plan_at < NEVER).then_some(self.plan_at);
        let first = |heap: &IndexedHeap| heap.first().map(|(at, _)| at);
        [stale, plan, first(&self.timers), first(&self.expiries)]
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
        self.devices.load(pool, queued)
    }
}
