//! How candidates handle the events of a scheduler.

use super::{
    super::{Backlog, BatchId, DeviceSpec, News, PoolLoad, Scheduler},
    Action, Actions, Candidates, Cause, DropReason, Nanos, PoolIx, Queue, QueueSpec, Request, Rule,
    Seat,
};
use sextant_types::index::{DeviceIx, QueueIx, TenantIx};

impl<T: std::fmt::Debug + Send, R: Rule> Scheduler<T> for Candidates<T, R> {
    fn on_device_up(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        spec: DeviceSpec,
        actions: &mut Actions<T>,
    ) -> Vec<BatchId> {
        self.ranks_mut(spec.pool);
        let lost = self.fleet.up(device, spec);
        self.pool_changed(spec.pool);
        self.dispatch(now, spec.pool, actions);
        self.finish_event(now, actions);
        lost
    }

    fn on_device_down(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        actions: &mut Actions<T>,
    ) -> Vec<BatchId> {
        let pool = self.fleet.pool_of(device);
        let lost = self.fleet.down(device);
        // A candidate that asked for more slots than any remaining device has now asks for fewer.
        if let Some(pool) = pool {
            self.pool_changed(pool);
            self.dispatch(now, pool, actions);
            self.finish_event(now, actions);
        }
        lost
    }

    fn on_device_moved(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        pool: PoolIx,
        actions: &mut Actions<T>,
    ) {
        self.ranks_mut(pool);
        let Some(before) = self.fleet.transfer(now, device, pool) else {
            return;
        };
        self.pool_changed(before);
        self.pool_changed(pool);
        // A candidate that asked for more slots than any remaining device has now asks for fewer.
        self.dispatch(now, before, actions);
        self.dispatch(now, pool, actions);
        self.finish_event(now, actions);
    }

    fn on_loaded(
        &mut self,
        now: Nanos,
        pool: PoolIx,
        queue: QueueIx,
        spec: QueueSpec,
        actions: &mut Actions<T>,
    ) {
        self.ranks_mut(pool);
        let of = self.queues.grown(queue).get_or_insert_with(Queue::new);
        let work = std::mem::take(&mut of.work);
        for seat in &of.seats {
            let shares = &mut self.ranks[seat.pool].shares;
            shares.count(seat.spec.tenant, work, 0);
        }
        let shares = &mut self.ranks[pool].shares;
        match of.seats.iter_mut().find(|seat| seat.pool == pool) {
            Some(seat) => {
                shares.leave(queue, seat.spec.tenant);
                shares.enter(queue, &spec);
                seat.spec = spec;
            }
            None => {
                shares.enter(queue, &spec);
                of.seats.push(Seat::new(pool, spec));
            }
        }
        of.arrange();
        self.count_work(queue);
        self.refresh(now, queue, Cause::Queue, actions);
        self.finish_event(now, actions);
    }

    fn on_unloaded(&mut self, now: Nanos, pool: PoolIx, queue: QueueIx, actions: &mut Actions<T>) {
        let Some((at, _)) = self.seat_of(queue, pool) else {
            return;
        };
        let Some(of) = self.queue(queue) else { return };
        let mut seat = of.seats.remove(at);
        of.arrange();
        let (work, empty) = (of.work, of.seats.is_empty());
        let ranks = &mut self.ranks[pool];
        ranks.shares.count(seat.spec.tenant, work, 0);
        ranks.shares.leave(queue, seat.spec.tenant);
        ranks.remove(queue, &mut seat.entries);
        self.mark(pool);
        if empty {
            self.give_up(queue, usize::MAX - 1, DropReason::Gone, actions);
            self.queues[queue] = None;
        } else {
            self.count_work(queue);
            self.refresh(now, queue, Cause::Queue, actions);
        }
        self.dispatch(now, pool, actions);
        self.finish_event(now, actions);
    }

    fn on_request(
        &mut self,
        now: Nanos,
        queue: QueueIx,
        request: Request<T>,
        actions: &mut Actions<T>,
    ) {
        if !self.admit(now, queue, request, actions) {
            return;
        }
        if self.joined(now, queue) {
            return self.set_timers();
        }
        self.refresh(now, queue, Cause::Queue, actions);
        self.finish_event(now, actions);
    }

    fn on_requests(
        &mut self,
        now: Nanos,
        queue: QueueIx,
        requests: Vec<Request<T>>,
        actions: &mut Actions<T>,
    ) {
        for request in requests {
            self.admit(now, queue, request, actions);
        }
        self.refresh(now, queue, Cause::Queue, actions);
        self.finish_event(now, actions);
    }

    fn on_result(&mut self, now: Nanos, batch: BatchId, actions: &mut Actions<T>) {
        if let Some((pool, _)) = self.fleet.release(now, batch) {
            self.pool_changed(pool);
            self.dispatch(now, pool, actions);
            self.finish_event(now, actions);
        }
    }

    fn on_timer(&mut self, now: Nanos, actions: &mut Actions<T>) {
        while let Some((at, pool)) = self.timers.first()
            && at <= now
        {
            self.timers.remove(pool);
            self.mark(pool);
            let of = self.fleet.pool_mut(pool);
            of.advance(now);
            if of.observe_rest(now) {
                self.pool_changed(pool);
            }
            while let Some((at, queue)) = self.ranks[pool].expiry.first()
                && at <= now
            {
                self.refresh(now, queue, Cause::Timer, actions);
            }
            self.dispatch(now, pool, actions);
            // The changes may make other pools due.
            self.finish_event(now, actions);
        }
    }

    fn next_timer(&self) -> Option<Nanos> {
        self.timers.first().map(|(at, _)| at)
    }

    fn waiting(&self) -> usize {
        self.waiting
    }

    fn load(&self, pool: PoolIx) -> PoolLoad {
        let Some(of) = self.fleet.pool(pool) else {
            return PoolLoad::default();
        };
        let ranks = self.ranks.get(pool);
        let queued = ranks.map_or(0, |ranks| ranks.shares.work());
        PoolLoad {
            slots: of.slots(),
            idle: of.idle(),
            busy_until: match of.has_free() {
                true => 0,
                false => of.next_free().unwrap_or(0),
            },
            queued: queued / Nanos::from(of.slots().max(1)),
        }
    }

    fn backlogs(&self, pool: PoolIx, each: &mut dyn FnMut(Backlog)) {
        if let Some(ranks) = self.ranks.get(pool) {
            ranks.shares.backlogs().for_each(each);
        }
    }

    fn ahead(&self, pool: PoolIx, tenant: TenantIx) -> Option<Nanos> {
        self.ranks.get(pool)?.shares.ahead(tenant)
    }

    fn take_news(&mut self, pool: PoolIx, each: &mut dyn FnMut(News)) {
        if let Some(ranks) = self.ranks.get_mut(pool) {
            ranks.shares.take_news(each);
        }
    }
}

impl<T: std::fmt::Debug + Send, R: Rule> Candidates<T, R> {
    /// Takes a request into its queue. Returns `false` if the request is refused.
    fn admit(
        &mut self,
        now: Nanos,
        queue: QueueIx,
        mut request: Request<T>,
        actions: &mut Actions<T>,
    ) -> bool {
        let delay = self.delay;
        let Some(of) = self.queues.known_mut(queue) else {
            let reason = DropReason::Gone;
            actions.push(Action::Drop { request, reason });
            return false;
        };
        if let Some(reason) = of.refusal(now, delay, &request) {
            actions.push(Action::Drop { request, reason });
            return false;
        }
        request.deadline = delay.inward(request.deadline);
        let room = of.seats.iter().map(|seat| {
            let own = delay.before_start(request.rows) + seat.spec.latency.of(request.rows);
            let room = request.deadline.saturating_sub(now).saturating_sub(own);
            (seat.pool, seat.spec.tenant, room)
        });
        for (pool, tenant, room) in room {
            self.ranks[pool].shares.note(now, tenant, room);
        }
        let (at, rate_changed) = of.requests.push(now, request);
        of.rate_changed |= rate_changed;
        if at + 1 < of.requests.len() {
            for seat in &mut of.seats {
                R::inserted(&mut seat.memory, at);
            }
        }
        for seat in &mut of.seats {
            R::arrived(&mut seat.memory);
        }
        self.waiting += 1;
        self.count_work(queue);
        true
    }
}
