//! Keeps variants loaded whether or not there are queries for them, and unloads variants that are not used.

use super::{
    Actions, DesiredPlacement, Nanos, Presence, device::Footprint, machine::Machine, rule::Rule,
    variant::Variant,
};
use sextant_schedule::NEVER;
use sextant_types::index::{DeviceIx, VariantIx};

/// After this many variants found no room on a device, the rest of the list is not tried.
const MOST_WITHOUT_ROOM: usize = 16;

/// Number of idle checks in each period after which unused variants may be unloaded.
const LOOKS: Nanos = 8;

impl<R: Rule> Machine<R> {
    /// Replaces the list of variants that are to be kept.
    pub(super) fn keep_desired(
        &mut self,
        now: Nanos,
        list: &[(VariantIx, DesiredPlacement)],
        actions: &mut Actions,
    ) {
        self.pins = list.iter().any(|(_, desired)| desired.pinned);
        let mut changed = Vec::new();
        for variant in self.variants.numbers() {
            let at = list.binary_search_by_key(&variant, |(variant, _)| *variant);
            let desired = at.ok().map(|at| list[at].1);
            let Some(of) = self.variant_mut(variant) else {
                continue;
            };
            let before = std::mem::replace(&mut of.desired, desired);
            if before == desired {
                continue;
            }
            if let Some(before) = before {
                self.to_keep.remove(&(before.order, variant));
            }
            self.count_kept(variant);
            changed.push(variant);
        }
        for variant in changed {
            self.value(now, variant);
        }
        self.offer_kept(now, actions);
    }

    /// Lets devices without other work load the variants that are to be kept.
    pub(super) fn offer_kept(&mut self, now: Nanos, actions: &mut Actions) {
        if self.to_keep.is_empty() {
            return;
        }
        self.park_ready(now);
        let idle: Vec<DeviceIx> = self.parked.iter().copied().collect();
        for device in idle {
            self.attempt(now, device, actions);
        }
    }

    /// The first variant that a device lacks and should have, and for which it has free pages.
    pub(super) fn next_kept(&mut self, now: Nanos, device: DeviceIx) -> Option<VariantIx> {
        let on = self.device(device)?;
        if !on.loads.is_empty() {
            return None;
        }
        let mut without_room = 0;
        for (_, variant) in &self.to_keep {
            let Some(of) = self.variant(*variant) else {
                continue;
            };
            if !of.kinds.is_able(on.kind)
                || of.replicas.on(device).is_some()
                || of.is_refused(now, device)
            {
                continue;
            }
            let footprint = Footprint::of(&of.spec);
            let pinned = of.desired.is_some_and(|desired| desired.pinned);
            if on.is_free_for(footprint) || (pinned && on.has_room(footprint)) {
                return Some(*variant);
            }
            without_room += 1;
            if without_room >= MOST_WITHOUT_ROOM {
                return None;
            }
        }
        None
    }

    /// Whether some device that can run a variant has room for it beside the variants pinned there. All others can be
    /// unloaded.
    pub(super) fn has_room_beside_pinned(&self, of: &Variant) -> bool {
        let footprint = Footprint::of(&of.spec);
        let pinned = |variant: &VariantIx| {
            let of = self.variant(*variant);
            of.is_some_and(|of| of.desired.is_some_and(|desired| desired.pinned))
        };
        let devices = self.devices.iter().flatten();
        let mut able = devices.filter(|device| of.kinds.is_able(device.kind));
        able.any(|device| device.has_room_beside(footprint, pinned))
    }

    /// Sets the time after which unused variants may be unloaded. It is checked from time to time.
    pub(super) fn set_idle_unload(&mut self, now: Nanos, idle: Nanos) {
        if std::mem::replace(&mut self.idle_unload, idle) != idle {
            self.sweep_at = match idle {
                NEVER => NEVER,
                _ => now.saturating_add((idle / LOOKS).max(1)),
            };
        }
    }

    /// Unloads variants that are not to be kept and were not used for that time.
    pub(super) fn sweep(&mut self, now: Nanos, actions: &mut Actions) {
        if self.sweep_at > now {
            return;
        }
        self.sweep_at = now.saturating_add((self.idle_unload / LOOKS).max(1));
        let mut idle = Vec::new();
        for (variant, of) in self.variants.numbered() {
            let Some(of) = of else { continue };
            let kept = of.desired.map_or(0, |desired| desired.devices as usize);
            let spare = of.replicas.staying().saturating_sub(kept);
            let unused = of.replicas.iter().filter(|replica| {
                of.is_evictable(replica) && replica.used.saturating_add(self.idle_unload) <= now
            });
            idle.extend(unused.take(spare).map(|replica| (replica.device, variant)));
        }
        for (device, variant) in idle {
            self.unload(now, device, variant, actions);
        }
    }

    /// Retires a variant: requests for it no longer come.
    pub(super) fn retire(&mut self, now: Nanos, variant: VariantIx, actions: &mut Actions) {
        let Some(of) = self.variant_mut(variant) else {
            return;
        };
        of.retired = true;
        if let Some(desired) = of.desired.take() {
            self.to_keep.remove(&(desired.order, variant));
        }
        self.rank(now, variant);
        self.clear_retired(now, variant, actions);
    }

    /// Forgets a retired variant that is on no device and for which no request waits. Returns whether nothing is known
    /// of it.
    pub(super) fn forget_retired(&mut self, variant: VariantIx) -> bool {
        let Some(of) = self.variant(variant) else {
            return true;
        };
        if !of.retired || of.waiting > 0 || !of.replicas.is_empty() {
            return false;
        }
        self.demand.set(variant, 0);
        self.desired.remove(variant);
        self.expiries.remove(variant);
        self.retries.remove(variant);
        self.rule.forget(variant);
        self.variants[variant] = None;
        true
    }

    /// Unloads the replicas of a retired variant that run nothing, once no request waits for it.
    pub(super) fn clear_retired(&mut self, now: Nanos, variant: VariantIx, actions: &mut Actions) {
        let of = self
            .variant(variant)
            .filter(|of| of.retired && of.waiting == 0);
        let Some(of) = of else { return };
        let still = |presence: Presence| presence == Presence::Loaded;
        let idle = of
            .replicas
            .iter()
            .filter(|of| still(of.presence) && of.running == 0);
        let devices: Vec<DeviceIx> = idle.map(|of| of.device).collect();
        for device in devices {
            self.unload(now, device, variant, actions);
        }
    }
}
