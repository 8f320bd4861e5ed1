//! What a placement policy decides; the machinery around it is common.

use super::{Nanos, variant::Variant};
use sextant_types::index::VariantIx;

/// A variant that would rather be loaded, as a rule sees it.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub now: Nanos,
    pub of: &'a Variant,
    /// Unfulfilled demand, ns.
    pub priority: f64,
    /// Its key among the desired variants until now.
    pub key: Option<u64>,
    /// Whether a device has capacity to spare.
    pub spare: bool,
}

/// A device that could load a variant.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadSite {
    /// When the variant would be ready.
    pub ready: Nanos,
    /// Time of the LOAD, ns.
    pub load: Nanos,
    /// Demand allocated to the device over its capacity.
    pub crowding: f64,
}

/// What a rule has foreseen of a variant, now that its time has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Foresight {
    /// It has to be ready soon, though nobody waits for it; from `until` on that will have been in
    /// vain.
    Burst { variant: VariantIx, until: Nanos },
    /// It is worth less from now on.
    Ebb { variant: VariantIx },
}

/// A placement policy's decisions.
pub(super) trait Rule: std::fmt::Debug + Send {
    /// Time to spare that a request needs after a LOAD, ns.
    fn margin(&self) -> Nanos;

    /// A request came.
    fn requested(&mut self, _now: Nanos, _variant: VariantIx, _of: &Variant) {}

    /// Where the variant stands among the desired, least first; `None` when it is not desired.
    fn want(&self, view: &View<'_>) -> Option<u64>;

    /// How many of the first desired variants are compared by [`Self::gain`] on a device; the first is
    /// taken with 1.
    fn breadth(&self) -> usize {
        1
    }

    /// What is gained by loading a variant of the desired there; it is not loaded for nothing.
    fn gain(&self, _view: &View<'_>, _there: &LoadSite) -> f64 {
        1.0
    }

    /// What a replica is worth; the least is unloaded first.
    fn worth(&self, now: Nanos, variant: VariantIx, of: &Variant, used: Nanos) -> u64;

    /// Whether of several devices the one is preferred on which what has to go is worth least.
    fn compares_victims(&self) -> bool {
        false
    }

    /// When something is foreseen next.
    fn next_foreseen(&self) -> Option<Nanos> {
        None
    }

    /// Takes what was foreseen for now.
    fn take_foreseen(&mut self, _now: Nanos) -> Option<Foresight> {
        None
    }

    /// There was no place for a variant now; its burst is foreseen again at `at`.
    fn postpone(&mut self, _variant: VariantIx, _at: Nanos) {}
}
