//! What is ready on a device decides to which pool it belongs.

use std::collections::BTreeSet;

use super::{Controller, DropReason, Nanos, PoolIx};
use sextant_placement::Presence;
use sextant_schedule::Action;

impl<T> Controller<T> {
    /// Lets the scheduler use a model on a device that has it, with all that waits for it: together,
    /// so that the first batch is not the first request alone.
    pub(super) fn activate(&mut self, now: Nanos, device: u32, model: u32) {
        if self.placement.presence(device, model) != Presence::Loaded {
            return;
        }
        let Some(from) = self.pool_of(device) else {
            return;
        };
        if self.model(model).is_none() || self.pools.has(from, model) {
            return;
        }
        self.change_content(now, device, model);
        self.admit_cold(now, model);
    }

    /// Lets the scheduler use a model on a device no more.
    pub(super) fn deactivate(&mut self, now: Nanos, device: u32, model: u32) {
        let Some(from) = self.pool_of(device) else {
            return;
        };
        if self.pools.has(from, model) {
            self.change_content(now, device, model);
        }
    }

    /// A model comes to a device or goes from it. A device that is alone in its pool takes the pool
    /// along, unless there is another pool with the new content.
    fn change_content(&mut self, now: Nanos, device: u32, model: u32) {
        let Some(of) = self.device(device).copied() else {
            return;
        };
        let (from, kind) = (of.pool, of.spec.kind);
        let content = self.pools.content(from).with(model);
        if let Some(to) = self.pools.find(kind, content) {
            return self.transfer(now, device, to);
        }
        if self.pools.devices(from) == 1 {
            let had = self.pools.has(from, model);
            self.pools.change(from, model);
            return match had {
                true => self.unseat(now, from, model),
                false => self.seat(now, from, model),
            };
        }
        let mut models = self.pools.models(from);
        if !models.remove(&model) {
            models.insert(model);
        }
        let to = self.open(now, kind, content, models);
        self.transfer(now, device, to);
    }

    /// A new pool, with a seat for each of its models.
    pub(super) fn open(
        &mut self,
        now: Nanos,
        kind: u32,
        content: super::pools::Content,
        models: BTreeSet<u32>,
    ) -> PoolIx {
        let pool = self.pools.open(kind, content, models.clone());
        for model in models {
            self.seat(now, pool, model);
        }
        pool
    }

    /// A device changes its pool.
    pub(super) fn transfer(&mut self, now: Nanos, device: u32, to: PoolIx) {
        let Some(Some(of)) = self.devices.get_mut(device as usize) else {
            return;
        };
        let from = std::mem::replace(&mut of.pool, to);
        if from == to {
            return;
        }
        self.pools.join(to);
        self.changed_pools.add(from);
        self.changed_pools.add(to);
        self.scheduler
            .on_worker_moved(now, device, to, &mut self.actions);
        self.leave(now, from);
    }

    /// A device has left a pool, which ends with its last one.
    pub(super) fn leave(&mut self, now: Nanos, pool: PoolIx) {
        self.changed_pools.add(pool);
        if self.pools.leave(pool) > 0 {
            return;
        }
        for model in self.pools.close(pool) {
            self.unseat(now, pool, model);
        }
    }

    /// The scheduler may use a model on a pool.
    fn seat(&mut self, now: Nanos, pool: PoolIx, model: u32) {
        let Some(Some(of)) = self.models.get_mut(model as usize) else {
            return;
        };
        if !of.pools.contains(&pool) {
            of.pools.push(pool);
        }
        self.changed_models.add(model);
        self.changed_pools.add(pool);
        for queue in self.queues_of(model) {
            self.seat_queue(now, pool, queue);
        }
    }

    fn unseat(&mut self, now: Nanos, pool: PoolIx, model: u32) {
        if let Some(Some(of)) = self.models.get_mut(model as usize) {
            of.pools.retain(|known| *known != pool);
        }
        self.changed_models.add(model);
        for queue in self.queues_of(model) {
            self.scheduler
                .on_unloaded(now, pool, queue, &mut self.actions);
        }
    }

    /// Tells the scheduler what a queue is like on a pool that has its model.
    pub(super) fn seat_queue(&mut self, now: Nanos, pool: PoolIx, queue: u32) {
        if let Some(spec) = self.queue_on(pool, queue) {
            self.changed_models.add(self.model_of(queue));
            self.scheduler
                .on_loaded(now, pool, queue, spec, &mut self.actions);
        }
    }

    /// Gives what waited for a LOAD to the scheduler, but what is too late by now.
    fn admit_cold(&mut self, now: Nanos, model: u32) {
        let Some(pool) = self.pools_of(model).first().copied() else {
            return;
        };
        let mut requests = Vec::with_capacity(self.cold.len_of(model));
        while let Some(request) = self.cold.pop(model) {
            let spec = self.queue_on(pool, request.payload.queue);
            let run = spec.map_or(0, |spec| spec.latency.of(request.rows));
            let run = self.delay.before_start(request.rows) + run + self.delay.response;
            if now.saturating_add(run) > request.deadline {
                let reason = DropReason::Expired;
                self.actions.push(Action::Drop { request, reason });
            } else {
                requests.push(request);
            }
        }
        self.cold.expect(model, None);
        self.hand_in(now, requests);
    }
}
