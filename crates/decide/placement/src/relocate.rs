//! Moves a variant to another device because something else slows it down. It is first loaded on the other device, then
//! unloaded from the old one once it does not run there.

use super::{Actions, Nanos, Presence, device::Footprint, machine::Machine, rule::Rule};
use sextant_types::index::{DeviceIx, VariantIx};

/// A variant that left a device is not loaded there again for this time, ns: what slowed it down may still be there.
/// The time doubles if others have the variant and it leaves repeatedly ([`super::variant::Variant::withdraw`]).
pub(super) const AWAY: Nanos = 60_000_000_000;

/// A variant on its way from one device to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Relocation {
    pub from: DeviceIx,
    pub to: DeviceIx,
    /// Whether it was there already. It then has one replica less, and may come back to where it was.
    pub withdraws: bool,
}

impl<R: Rule> Machine<R> {
    /// Begins to move a variant to the first of `to` that can take it into free pages. Nothing happens if there is
    /// none, or if the variant already moves away from there. Returns whether it begins.
    pub(super) fn relocate(
        &mut self,
        now: Nanos,
        (variant, from): (VariantIx, DeviceIx),
        to: &[DeviceIx],
        actions: &mut Actions,
    ) -> bool {
        let Some(of) = self.variant(variant).filter(|of| !of.retired) else {
            return false;
        };
        let is_here = of
            .replicas
            .on(from)
            .is_some_and(|replica| replica.presence == Presence::Loaded);
        let moves = of.relocations.iter().any(|other| other.from == from);
        if !is_here || moves {
            return false;
        }
        let Some(to) = to
            .iter()
            .copied()
            .find(|to| self.is_free(now, *to, variant))
        else {
            return false;
        };
        if let Some(of) = self.variant_mut(variant) {
            of.relocations.push(Relocation {
                from,
                to,
                withdraws: false,
            });
        }
        self.load_at_any_time(now, to, variant, actions);
        true
    }

    /// Begins to take a variant from a device while one of `stay` has it. Nothing is loaded. Returns whether it begins.
    pub(super) fn withdraw(
        &mut self,
        now: Nanos,
        (variant, from): (VariantIx, DeviceIx),
        stay: &[DeviceIx],
        actions: &mut Actions,
    ) -> bool {
        let Some(of) = self.variant_mut(variant).filter(|of| !of.retired) else {
            return false;
        };
        let is_loaded = |device: DeviceIx| {
            let replica = of.replicas.on(device);
            replica.is_some_and(|replica| replica.presence == Presence::Loaded)
        };
        let moves = of.relocations.iter().any(|other| other.from == from);
        let mut others = stay.iter().copied().filter(|to| *to != from);
        let to = others.find(|to| is_loaded(*to));
        let Some(to) = to.filter(|_| is_loaded(from) && !moves) else {
            return false;
        };
        of.relocations.push(Relocation {
            from,
            to,
            withdraws: true,
        });
        self.finish_relocations(now, variant, actions);
        true
    }

    /// Whether a device could begin to load a variant now without unloading anything.
    fn is_free(&self, now: Nanos, device: DeviceIx, variant: VariantIx) -> bool {
        let (Some(on), Some(of)) = (self.device(device), self.variant(variant)) else {
            return false;
        };
        on.loads.is_empty()
            && of.kinds.is_able(on.kind)
            && of.replicas.on(device).is_none()
            && !of.is_refused(now, device)
            && on.is_free_for(Footprint::of(&of.spec))
    }

    /// Unloads a variant from devices that it has left and on which it does not run, and forgets moves that failed.
    pub(super) fn finish_relocations(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        actions: &mut Actions,
    ) {
        let Some(of) = self.variant_mut(variant) else {
            return;
        };
        let presence = |device: DeviceIx| of.replicas.on(device).map(|replica| replica.presence);
        let mut done = Vec::new();
        let still = of.relocations.iter().filter(|it| {
            let arrives = presence(it.to);
            let leaves = of.replicas.on(it.from);
            match (arrives, leaves) {
                (Some(Presence::Loading), Some(_)) => true,
                (Some(Presence::Loaded), Some(leaves)) if leaves.running > 0 => true,
                (Some(Presence::Loaded), Some(leaves)) => {
                    if leaves.presence == Presence::Loaded {
                        done.push(**it);
                    }
                    false
                }
                _ => false,
            }
        });
        of.relocations = still.copied().collect();
        for it in done {
            if let Some(of) = self.variant_mut(variant) {
                match it.withdraws {
                    true => of.withdraw(now, it.from),
                    false => of.avoid(it.from, now.saturating_add(AWAY)),
                }
            }
            self.expect_retry(now, variant);
            self.unload(now, it.from, variant, actions);
        }
    }
}
