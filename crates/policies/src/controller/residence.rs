//! What is ready on a device decides to which pool it belongs.

use std::collections::BTreeSet;

use super::{Controller, DropReason, Nanos};
use crate::{
    placement::Presence,
    schedule::{Action, QueueSpec},
};

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
    ) -> u32 {
        let pool = self.pools.open(kind, content, models.clone());
        for model in models {
            self.seat(now, pool, model);
        }
        pool
    }

    /// A device changes its pool.
    pub(super) fn transfer(&mut self, now: Nanos, device: u32, to: u32) {
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
    pub(super) fn leave(&mut self, now: Nanos, pool: u32) {
        self.changed_pools.add(pool);
        if self.pools.leave(pool) > 0 {
            return;
        }
        for model in self.pools.close(pool) {
            self.unseat(now, pool, model);
        }
    }

    /// The scheduler may use a model on a pool.
    fn seat(&mut self, now: Nanos, pool: u32, model: u32) {
        let Some(queue) = self.queue_on(pool, model) else {
            return;
        };
        if let Some(Some(of)) = self.models.get_mut(model as usize)
            && !of.pools.contains(&pool)
        {
            of.pools.push(pool);
        }
        self.changed_models.add(model);
        self.changed_pools.add(pool);
        self.scheduler
            .on_loaded(now, pool, model, queue, &mut self.actions);
    }

    fn unseat(&mut self, now: Nanos, pool: u32, model: u32) {
        if let Some(Some(of)) = self.models.get_mut(model as usize) {
            of.pools.retain(|known| *known != pool);
        }
        self.changed_models.add(model);
        self.scheduler
            .on_unloaded(now, pool, model, &mut self.actions);
    }

    /// Tells the scheduler anew what a model's queue is like on a pool that has it.
    pub(super) fn seat_anew(&mut self, now: Nanos, pool: u32, model: u32) {
        if let Some(queue) = self.queue_on(pool, model) {
            self.changed_models.add(model);
            self.scheduler
                .on_loaded(now, pool, model, queue, &mut self.actions);
        }
    }

    /// A model's queue on a pool, with the run times that are known best.
    fn queue_on(&self, pool: u32, model: u32) -> Option<QueueSpec> {
        let (of, kind) = (self.model(model)?, self.pools.kind(pool)?);
        let known = self.estimates.table(kind, model);
        Some(QueueSpec {
            latency: known.unwrap_or_else(|| of.profile(kind)).clone(),
            price: of.on(kind).map_or(of.spec.queue.price, |on| on.price),
            ..of.spec.queue.clone()
        })
    }

    /// Gives what waited for a LOAD to the scheduler, but what is too late by now.
    fn admit_cold(&mut self, now: Nanos, model: u32) {
        if self.cold.len_of(model) == 0 {
            return;
        }
        let Some(of) = self.model(model) else { return };
        let latency = of.pools.first().map(|pool| {
            let kind = self.pools.kind(*pool).unwrap_or(0);
            let known = self.estimates.table(kind, model);
            known.unwrap_or_else(|| of.profile(kind)).clone()
        });
        let Some(latency) = latency else { return };
        let mut requests = Vec::with_capacity(self.cold.len_of(model));
        while let Some(request) = self.cold.pop(model) {
            let run = self.delay.before_start(request.rows)
                + latency.of(request.rows)
                + self.delay.response;
            if now.saturating_add(run) > request.deadline {
                let reason = DropReason::Expired;
                self.actions.push(Action::Drop { request, reason });
            } else {
                requests.push(request);
            }
        }
        self.cold.expect(model, None);
        self.scheduler
            .on_requests(now, model, requests, &mut self.actions);
    }
}
