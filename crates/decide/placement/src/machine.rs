//! The machinery that the placement policies share.
//!
//! Variants with unfulfilled demand are in one order, *desired*, by the rule's key. A device that may take a LOAD takes
//! the best of those that it does not have and has room for. If there is none, it is *parked* until something changes:
//! a variant becomes desired, or missing pages become available. A request therefore touches only its own variant, and
//! devices are looked at only if that variant is desired.
//!
//! A variant's key is updated only by its own events, as in the paper. Changes through the events of other variants are
//! found when the variant comes first. An event of a variant with many replicas touches only the replica concerned. The
//! worth of the others is found when one of them is to be unloaded.
//!
//! Beside the variants for which requests wait there are variants that are *to be kept*, as the autoscaler desires. A
//! device without other LOADs takes the first of these that it lacks, into free pages. Nothing is unloaded for such a
//! variant unless it is pinned.

use std::collections::BTreeSet;

use super::{
    Actions, Demand, Nanos, Options, VariantSpec,
    device::Device,
    kinds::Kinds,
    rule::{Rule, View},
    variant::{DemandModel, Variant},
};
use sextant_schedule::{IndexedHeap, NEVER};
use sextant_types::index::{DeviceIx, IndexVec, VariantIx};

/// A placement that follows a [`Rule`].
#[derive(Debug)]
pub(super) struct Machine<R> {
    pub(super) rule: R,
    pub(super) look_ahead: Nanos,
    pub(super) capacity: Nanos,
    pub(super) devices: IndexVec<DeviceIx, Option<Device>>,
    pub(super) kinds: Kinds,
    pub(super) variants: IndexVec<VariantIx, Option<Box<Variant>>>,
    pub(super) demand: Demand,
    pub(super) desired: IndexedHeap<VariantIx>,
    /// Whether any variant may not be unloaded, whatever else is requested.
    pub(super) pins: bool,
    /// By variant: a time no later than the end of its first hope.
    pub(super) expiries: IndexedHeap<VariantIx>,
    /// By device with a LOAD under way: when it may take another LOAD.
    pub(super) busy: IndexedHeap<DeviceIx>,
    /// By device on which room was missing and which was asked lately: when it is asked again.
    pub(super) again: IndexedHeap<DeviceIx>,
    /// By variant: when the first of the devices that it avoids may be asked again.
    pub(super) retries: IndexedHeap<VariantIx>,
    /// Devices that may take a LOAD and found none to take.
    pub(super) parked: BTreeSet<DeviceIx>,
    /// Variants of which more replicas are to be kept than there are, in their order.
    pub(super) to_keep: BTreeSet<(u32, VariantIx)>,
    /// A variant that is not to be kept and was not used for this long is unloaded, ns.
    pub(super) idle_unload: Nanos,
    /// When unused variants are next looked for.
    pub(super) sweep_at: Nanos,
}

/// The most replicas of a variant that are all valued again with each of its events.
const FEW: usize = 4;

impl<R: Rule> Machine<R> {
    pub fn new(options: &Options, rule: R) -> Self {
        Self {
            rule,
            look_ahead: options.look_ahead,
            capacity: options.capacity.max(1),
            devices: IndexVec::default(),
            kinds: Kinds::default(),
            variants: IndexVec::default(),
            demand: Demand::new(options.capacity.max(1)),
            desired: IndexedHeap::default(),
            pins: false,
            expiries: IndexedHeap::default(),
            busy: IndexedHeap::default(),
            again: IndexedHeap::default(),
            retries: IndexedHeap::default(),
            parked: BTreeSet::new(),
            to_keep: BTreeSet::new(),
            idle_unload: NEVER,
            sweep_at: NEVER,
        }
    }

    pub(super) fn device(&self, device: DeviceIx) -> Option<&Device> {
        self.devices.known(device)
    }

    pub(super) fn device_mut(&mut self, device: DeviceIx) -> Option<&mut Device> {
        self.devices.known_mut(device)
    }

    pub(super) fn variant(&self, variant: VariantIx) -> Option<&Variant> {
        self.variants.known(variant).map(Box::as_ref)
    }

    pub(super) fn variant_mut(&mut self, variant: VariantIx) -> Option<&mut Variant> {
        self.variants.known_mut(variant).map(Box::as_mut)
    }

    pub(super) fn counted(&self, spec: &VariantSpec) -> DemandModel {
        DemandModel {
            run: spec.run,
            capacity: self.capacity,
            margin: self.rule.margin(),
            least_window: 2 * self.look_ahead.max(1),
        }
    }

    /// Updates the demand of a variant and its rank among the desired ones, after a LOAD can no longer help some
    /// request or something else about the variant has changed.
    pub(super) fn rank(&mut self, now: Nanos, variant: VariantIx) {
        let (margin, devices) = (self.rule.margin(), self.kinds.devices());
        let Some(of) = self.variant_mut(variant) else {
            return;
        };
        of.expire(now, margin);
        let work = of.hoped_work();
        let is_loadable = of.replicas.len() < devices && !of.retired;
        if self.demand.of(variant) != work {
            self.demand.set(variant, work);
        }
        let key = is_loadable.then(|| self.want(now, variant)).flatten();
        match key {
            Some(key) => self.desired.set(variant, key),
            None => drop(self.desired.remove(variant)),
        }
    }

    /// The rank among the desired ones of a variant that some device does not have.
    fn want(&self, now: Nanos, variant: VariantIx) -> Option<u64> {
        if self.demand.is_met(variant) {
            return None;
        }
        let priority = self.demand.priority(variant);
        let view = (priority > 0.0).then(|| self.view(now, variant, priority));
        self.rule.want(&view.flatten()?)
    }

    /// Sets the time at which a variant's first hope ends.
    pub(super) fn expect_expiry(&mut self, variant: VariantIx) {
        let margin = self.rule.margin();
        match self.variant(variant).and_then(|of| of.next_expiry(margin)) {
            Some(at) => self.expiries.set(variant, at),
            None => drop(self.expiries.remove(variant)),
        }
    }

    /// Sets the time at which a variant is offered again to the devices that it avoids.
    pub(super) fn expect_retry(&mut self, now: Nanos, variant: VariantIx) {
        match self.variant(variant).and_then(|of| of.next_try(now)) {
            Some(at) => self.retries.set(variant, at),
            None => drop(self.retries.remove(variant)),
        }
    }

    /// Determines again which replicas of a variant may be unloaded, and their worth.
    pub(super) fn value(&mut self, now: Nanos, variant: VariantIx) {
        let Some(of) = self.variants.known(variant) else {
            return;
        };
        for replica in of.replicas.iter() {
            let Some(device) = self.devices.known_mut(replica.device) else {
                continue;
            };
            if of.is_evictable(replica) {
                let worth = self.rule.worth(now, variant, of, replica.used);
                device.offer(variant, worth);
            } else {
                device.protect(variant);
            }
        }
    }

    /// Whether all replicas of a variant are valued again with each of its events.
    pub(super) fn has_few(&self, variant: VariantIx) -> bool {
        self.variant(variant)
            .is_some_and(|of| of.replicas.len() <= FEW)
    }

    /// Determines again whether one replica of a variant may be unloaded, and its worth.
    pub(super) fn value_on(&mut self, now: Nanos, variant: VariantIx, device: DeviceIx) {
        let of = self.variants.known(variant);
        let Some((of, replica)) = of.and_then(|of| Some((of, of.replicas.on(device)?))) else {
            return;
        };
        let Some(on) = self.devices.known_mut(device) else {
            return;
        };
        if of.is_evictable(replica) {
            let worth = self.rule.worth(now, variant, of, replica.used);
            on.offer(variant, worth);
        } else {
            on.protect(variant);
        }
    }

    /// Like [`Self::revalue`], after an event of one replica.
    pub(super) fn revalue_on(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        device: DeviceIx,
        actions: &mut Actions,
    ) {
        if self.has_few(variant) {
            return self.revalue(now, variant, actions);
        }
        self.value_on(now, variant, device);
        self.attempt_if_short(now, device, actions);
    }

    /// Computes the worth of a variant's replicas again. A device that lacked room may have it now.
    pub(super) fn revalue(&mut self, now: Nanos, variant: VariantIx, actions: &mut Actions) {
        self.value(now, variant);
        let mut at = 0;
        while let Some(replica) = self.variant(variant).and_then(|of| of.replicas.at(at)) {
            self.attempt_if_short(now, replica.device, actions);
            at += 1;
        }
    }

    /// Asks a device on which room was missing again, but not with every batch that ends there.
    pub(super) fn attempt_if_short(&mut self, now: Nanos, device: DeviceIx, actions: &mut Actions) {
        let Some(of) = self.device(device).filter(|of| of.short) else {
            return;
        };
        let at = of.attempted.saturating_add(self.pause());
        if !self.parked.contains(&device) {
            return;
        }
        if at <= now {
            self.attempt(now, device, actions);
        } else if self.again.key(device).is_none() {
            self.again.set(device, at);
        }
    }

    /// Determines again whether a variant has fewer replicas than are to be kept.
    pub(super) fn count_kept(&mut self, variant: VariantIx) {
        let devices = self.kinds.devices();
        let Some(of) = self.variants.known(variant) else {
            return;
        };
        let Some(desired) = of.desired else { return };
        if of.lacks_desired(devices) && !of.retired {
            self.to_keep.insert((desired.order, variant));
        } else {
            self.to_keep.remove(&(desired.order, variant));
        }
    }

    pub(super) fn view(&self, now: Nanos, variant: VariantIx, priority: f64) -> Option<View<'_>> {
        Some(View {
            now,
            of: self.variant(variant)?,
            priority,
            key: self.desired.key(variant),
            spare: self.demand.is_spare(),
        })
    }
}
