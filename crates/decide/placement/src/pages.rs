//! The replicas on a device: loading them, and unloading others to make room.

use super::{
    Action, Actions, Nanos, Presence,
    device::{Footprint, Load},
    machine::Machine,
    replicas::Replica,
    rule::Rule,
    variant::Variant,
};
use sextant_schedule::NEVER;
use sextant_types::index::{DeviceIx, VariantIx};

impl<R: Rule> Machine<R> {
    /// Issues a LOAD for waiting requests. It is not begun if it would help none of them.
    pub(super) fn load_for_requests(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        variant: VariantIx,
        actions: &mut Actions,
    ) {
        let deadlines = self.variant(variant).and_then(Variant::deadlines);
        let last = deadlines.map_or(NEVER, |(_, last)| last);
        self.load(now, (device, variant), last, actions);
    }

    /// Issues a LOAD that is useful at any time, even if no request waits: of a variant that is desired, expected or
    /// moved.
    pub(super) fn load_at_any_time(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        variant: VariantIx,
        actions: &mut Actions,
    ) {
        self.load(now, (device, variant), NEVER, actions);
    }

    /// Issues a LOAD that helps requests up to this deadline, after the UNLOADs that it needs.
    fn load(
        &mut self,
        now: Nanos,
        (device, variant): (DeviceIx, VariantIx),
        deadline: Nanos,
        actions: &mut Actions,
    ) {
        let (Some(of), Some(on)) = (self.variant(variant), self.device(device)) else {
            return;
        };
        let (footprint, expected) = (Footprint::of(&of.spec), of.load_on(device, on.kind));
        let before_end = of.spec.run.saturating_add(expected);
        self.make_room(now, device, footprint, actions);
        let Some(on) = self.devices.known_mut(device) else {
            return;
        };
        // The worker carries out the UNLOADs before it in any case.
        let start = on.loads_end(now);
        on.admit(variant, footprint);
        on.load_sent(Load {
            variant,
            start,
            expected,
        });
        let ready_at = on.ready_at(self.look_ahead);
        self.parked.remove(&device);
        self.busy.set(device, ready_at);
        if let Some(of) = self.variant_mut(variant) {
            of.replicas.insert(Replica {
                device,
                presence: Presence::Loading,
                running: 0,
                used: now,
            });
        }
        self.demand.place(variant, device);
        self.count_kept(variant);
        self.rank(now, variant);
        actions.push(Action::Load {
            device,
            variant,
            earliest: start,
            latest: match deadline {
                NEVER => NEVER,
                _ => deadline.saturating_sub(before_end).max(start),
            },
            expected,
        });
    }

    /// Unloads the variants that are worth least until a variant fits.
    fn make_room(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        footprint: Footprint,
        actions: &mut Actions,
    ) {
        while let Some(on) = self.device_mut(device)
            && !on.is_free_for(footprint)
            && let Some((worth, victim)) = on.cheapest()
        {
            if !self.is_worth_more(now, device, victim, worth) {
                self.unload(now, device, victim, actions);
            }
        }
    }

    /// Whether a victim is worth more now than when it was last valued. It is then ranked by its new worth.
    fn is_worth_more(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        variant: VariantIx,
        worth: u64,
    ) -> bool {
        let is_desired = self.variant(variant).is_some_and(|of| of.desired.is_some());
        if self.has_few(variant) && !is_desired {
            return false;
        }
        self.value_on(now, variant, device);
        let again = self.device(device).and_then(|on| on.worth_of(variant));
        again.is_none_or(|again| again > worth)
    }

    /// Issues an UNLOAD; the pages are free at once.
    pub(super) fn unload(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        variant: VariantIx,
        actions: &mut Actions,
    ) {
        let Some(of) = self.variant_mut(variant) else {
            return;
        };
        of.replicas.set_presence(device, Presence::Leaving);
        self.demand.displace(variant, device);
        if let Some(on) = self.devices.known_mut(device) {
            on.release(variant);
            on.unload_sent(variant, self.kinds.unload(on.kind));
        }
        self.lost_one(now, variant);
        actions.push(Action::Unload { device, variant });
    }

    /// Removes a replica that is no longer there.
    pub(super) fn remove(&mut self, now: Nanos, device: DeviceIx, variant: VariantIx) {
        let Some(of) = self.variant_mut(variant) else {
            return;
        };
        if !of.replicas.remove(device) {
            return;
        }
        self.demand.displace(variant, device);
        if let Some(on) = self.device_mut(device) {
            on.forget(variant);
            on.loaded(now, variant);
            on.unloaded(now, variant);
        }
        self.lost_one(now, variant);
    }

    /// A variant has one replica less. The last one that is left may have to stay.
    fn lost_one(&mut self, now: Nanos, variant: VariantIx) {
        if self.has_few(variant) {
            self.value(now, variant);
        }
        self.count_kept(variant);
        self.rank(now, variant);
    }
}
