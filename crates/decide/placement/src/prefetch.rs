//! Loads variants ahead of expected requests, where that disturbs nothing.

use super::{
    Actions, Nanos,
    device::Footprint,
    machine::Machine,
    rule::{Foresight, Rule},
};
use sextant_types::index::{DeviceIx, VariantIx};

/// A variant for which there was no room is tried again after this time, ns.
const AGAIN: Nanos = 100_000_000;

impl<R: Rule> Machine<R> {
    /// Loads the variants that must be ready soon, on a device that loads nothing and has nothing else to load, into
    /// free pages or in exchange for variants that are worth less.
    pub(super) fn prefetch(&mut self, now: Nanos, actions: &mut Actions) {
        while let Some(foreseen) = self.rule.take_foreseen(now) {
            let (variant, until) = match foreseen {
                Foresight::Burst { variant, until } => (variant, until),
                Foresight::Ebb { variant } => (variant, now),
            };
            // Its worth has changed.
            self.value(now, variant);
            let Some(of) = self.variant(variant) else {
                continue;
            };
            if until <= now || !of.replicas.is_empty() || of.retired {
                continue;
            }
            let worth = self.rule.worth(now, variant, of, now);
            let footprint = Footprint::of(&of.spec);
            match self.place_for(now, variant, footprint, worth) {
                Some(device) => self.load_at_any_time(now, device, variant, actions),
                None => self.rule.postpone(variant, now + AGAIN),
            }
        }
    }

    /// Loads a variant for which no request waits, if it is loaded nowhere and there is room for it.
    pub(super) fn bring(&mut self, now: Nanos, variant: VariantIx, actions: &mut Actions) {
        let Some(of) = self.variant(variant) else {
            return;
        };
        if !of.replicas.is_empty() || of.retired {
            return;
        }
        let worth = self.rule.worth(now, variant, of, now);
        let footprint = Footprint::of(&of.spec);
        if let Some(device) = self.place_for(now, variant, footprint, worth) {
            self.load_at_any_time(now, device, variant, actions);
        }
    }

    /// A device without LOADs that has the pages free, else one where the variants that must be unloaded are worth less
    /// than `worth`.
    fn place_for(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        footprint: Footprint,
        worth: u64,
    ) -> Option<DeviceIx> {
        self.park_ready(now);
        let idle: Vec<DeviceIx> = self.parked.iter().copied().collect();
        let mut best = None;
        for device in idle {
            let of = self.variant(variant)?;
            let kind = self.device(device).map(|on| on.kind);
            let able = kind.is_some_and(|kind| of.kinds.is_able(kind));
            let refused = !able || of.is_refused(now, device);
            let Some(on) = self.device_mut(device) else {
                continue;
            };
            if refused || !on.loads.is_empty() || !on.has_room(footprint) {
                continue;
            }
            if on.is_free_for(footprint) {
                best = best.max(Some((u64::MAX, on.free(), device)));
            } else if let Some(lost) = on.dearest_victim(footprint).filter(|lost| *lost < worth) {
                best = best.max(Some((u64::MAX - 1 - lost, on.free(), device)));
            }
        }
        best.map(|(_, _, device)| device)
    }
}
