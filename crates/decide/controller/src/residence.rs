//! Assigns devices to pools. The variants that are ready on a device determine its pool.

use std::collections::BTreeSet;

use super::{Controller, DropReason, Nanos, PoolIx};
use sextant_placement::Presence;
use sextant_schedule::Action;
use sextant_types::index::{DeviceIx, KindIx, QueueIx, VariantIx};

impl<T> Controller<T> {
    /// Lets the scheduler use a variant on a device that has it. All requests that wait for the variant are handed in
    /// together, so that the first batch is not the first request alone.
    pub(super) fn activate(&mut self, now: Nanos, device: DeviceIx, variant: VariantIx) {
        if self.placement.presence(device, variant) != Presence::Loaded {
            return;
        }
        let Some(from) = self.pool_of(device) else {
            return;
        };
        if self.variant(variant).is_none() || self.pools.has(from, variant) {
            return;
        }
        self.change_content(now, device, variant);
        self.admit_cold(now, variant);
    }

    /// Stops the scheduler from using a variant on a device.
    pub(super) fn deactivate(&mut self, now: Nanos, device: DeviceIx, variant: VariantIx) {
        let Some(from) = self.pool_of(device) else {
            return;
        };
        if self.pools.has(from, variant) {
            self.change_content(now, device, variant);
        }
    }

    /// A variant is added to a device or removed from it. A device that is alone in its pool keeps the pool, unless
    /// another pool has the new content.
    fn change_content(&mut self, now: Nanos, device: DeviceIx, variant: VariantIx) {
        let Some(of) = self.device(device).copied() else {
            return;
        };
        let (from, kind) = (of.pool, of.spec.kind);
        let content = self.pools.content(from).with(variant);
        if let Some(to) = self.pools.find(kind, content) {
            return self.transfer(now, device, to);
        }
        if self.pools.devices(from) == 1 {
            let had = self.pools.has(from, variant);
            self.pools.change(from, variant);
            return match had {
                true => self.unseat(now, from, variant),
                false => self.seat(now, from, variant),
            };
        }
        let mut variants = self.pools.variants(from);
        if !variants.remove(&variant) {
            variants.insert(variant);
        }
        let to = self.open(now, kind, content, variants);
        self.transfer(now, device, to);
    }

    /// A new pool, with a seat for each of its variants.
    pub(super) fn open(
        &mut self,
        now: Nanos,
        kind: KindIx,
        content: super::pools::Content,
        variants: BTreeSet<VariantIx>,
    ) -> PoolIx {
        let pool = self.pools.open(kind, content, variants.clone());
        for variant in variants {
            self.seat(now, pool, variant);
        }
        pool
    }

    /// Moves a device to another pool.
    pub(super) fn transfer(&mut self, now: Nanos, device: DeviceIx, to: PoolIx) {
        let Some(of) = self.devices.known_mut(device) else {
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
            .on_device_moved(now, device, to, &mut self.actions);
        self.leave(now, from);
    }

    /// A device has left a pool. The pool ends with its last device.
    pub(super) fn leave(&mut self, now: Nanos, pool: PoolIx) {
        self.changed_pools.add(pool);
        if self.pools.leave(pool) > 0 {
            return;
        }
        for variant in self.pools.close(pool) {
            self.unseat(now, pool, variant);
        }
    }

    /// Lets the scheduler use a variant in a pool.
    fn seat(&mut self, now: Nanos, pool: PoolIx, variant: VariantIx) {
        let Some(of) = self.variants.known_mut(variant) else {
            return;
        };
        if !of.pools.contains(&pool) {
            of.pools.push(pool);
        }
        self.changed_variants.add(variant);
        self.changed_pools.add(pool);
        for queue in self.queues_of(variant) {
            self.seat_queue(now, pool, queue);
        }
    }

    fn unseat(&mut self, now: Nanos, pool: PoolIx, variant: VariantIx) {
        if let Some(of) = self.variants.known_mut(variant) {
            of.pools.retain(|known| *known != pool);
        }
        self.changed_variants.add(variant);
        for queue in self.queues_of(variant) {
            self.scheduler
                .on_unloaded(now, pool, queue, &mut self.actions);
        }
    }

    /// Gives the scheduler the specification of a queue in a pool that has its variant.
    pub(super) fn seat_queue(&mut self, now: Nanos, pool: PoolIx, queue: QueueIx) {
        if let Some(spec) = self.queue_on(pool, queue) {
            self.changed_variants.add(self.variant_of(queue));
            self.scheduler
                .on_loaded(now, pool, queue, spec, &mut self.actions);
        }
    }

    /// Hands the requests that waited for a LOAD to the scheduler, except those that are too late by now.
    fn admit_cold(&mut self, now: Nanos, variant: VariantIx) {
        let Some(pool) = self.pools_of(variant).first().copied() else {
            return;
        };
        let mut requests = Vec::with_capacity(self.cold.len_of(variant));
        while let Some(request) = self.cold.pop(variant) {
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
        self.cold.expect(variant, None);
        self.hand_in(now, requests);
    }
}
