//! Devices that come, go and change.

use std::collections::BTreeSet;

use super::{Actions, BatchId, Controller, Device, DeviceSpec, Nanos, pools::Content};
use sextant_placement as placement;
use sextant_schedule as schedule;
use sextant_types::index::{DeviceIx, KindIx};

impl<T> Controller<T> {
    /// A device is up, with nothing loaded and nothing running. If it was up before, returns the
    /// batches that were under way on it.
    pub fn on_device_up(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        spec: DeviceSpec,
        actions: &mut Actions<T>,
    ) -> Vec<BatchId> {
        let lost = self.on_device_down(now, device, actions);
        let empty = Content::default();
        let known = self.pools.find(spec.kind, empty);
        let pool = known.unwrap_or_else(|| self.open(now, spec.kind, empty, BTreeSet::new()));
        self.pools.join(pool);
        self.changed_pools.add(pool);
        *self.devices.grown(device) = Some(Device { spec, pool });
        let slots = spec.slots;
        let seated = schedule::DeviceSpec { pool, slots };
        self.scheduler
            .on_device_up(now, device, seated, &mut self.actions);
        let placed = placement::DeviceSpec {
            kind: spec.kind,
            pages: spec.pages,
        };
        self.placement
            .on_device_up(now, device, placed, &mut self.moves);
        self.carry_out(now, actions);
        lost
    }

    /// A device is gone. Returns the batches that were under way on it. The caller has their
    /// requests and may hand them in again. Requests that waited for the variants on the device
    /// keep waiting, unless no other device could load their variant.
    pub fn on_device_down(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        actions: &mut Actions<T>,
    ) -> Vec<BatchId> {
        let gone = self.devices.get_mut(device);
        let Some(of) = gone.and_then(Option::take) else {
            return Vec::new();
        };
        let lost = self
            .scheduler
            .on_device_down(now, device, &mut self.actions);
        for batch in &lost {
            let known = std::mem::take(&mut self.batches[batch.at as usize]);
            if known.number != 0 {
                self.count_running(known.queue, false);
            }
        }
        self.placement.on_device_down(now, device, &mut self.moves);
        self.leave(now, of.pool);
        for variant in self.cold.variants() {
            self.expect_expiry(variant);
        }
        self.carry_out(now, actions);
        for variant in self.cold.variants() {
            self.give_up_if_hopeless(now, variant, actions);
        }
        lost
    }

    /// A device that is up is of another kind from now on.
    pub fn on_device_kind(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        kind: KindIx,
        actions: &mut Actions<T>,
    ) {
        let Some(of) = self.devices.known_mut(device) else {
            return;
        };
        if std::mem::replace(&mut of.spec.kind, kind) == kind {
            return;
        }
        let from = of.pool;
        let content = self.pools.content(from);
        let known = self.pools.find(kind, content);
        let to = known.unwrap_or_else(|| {
            let variants = self.pools.variants(from);
            self.open(now, kind, content, variants)
        });
        self.placement.on_device_kind(now, device, kind);
        self.transfer(now, device, to);
        self.carry_out(now, actions);
    }
}
