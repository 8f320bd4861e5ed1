//! The decisions of a placement policy. The machinery around them is shared.

use super::{Nanos, variant::Variant};
use sextant_types::index::VariantIx;

/// A variant that is a candidate for loading, as a rule sees it.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub now: Nanos,
    pub of: &'a Variant,
    /// Unfulfilled demand, ns.
    pub priority: f64,
    /// Its present key among the desired variants.
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

/// An expectation of a rule about a variant whose time has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Foresight {
    /// The variant must be ready soon, although no request waits for it. If no request has come by `until`, the load
    /// was in vain.
    Burst { variant: VariantIx, until: Nanos },
    /// The variant is worth less from now on.
    Ebb { variant: VariantIx },
}

/// A placement policy's decisions.
pub(super) trait Rule: std::fmt::Debug + Send {
    /// The time that must remain for a request after a LOAD, ns.
    fn margin(&self) -> Nanos;

    /// A request came.
    fn requested(&mut self, _now: Nanos, _variant: VariantIx, _of: &Variant) {}

    /// The rank of the variant among the desired ones, least first; `None` if it is not desired.
    fn want(&self, view: &View<'_>) -> Option<u64>;

    /// How many of the first desired variants are compared by [`Self::gain`] on a device. With 1 the first is taken.
    fn breadth(&self) -> usize {
        1
    }

    /// The gain from loading a desired variant there. The variant is not loaded if there is no gain.
    fn gain(&self, _view: &View<'_>, _there: &LoadSite) -> f64 {
        1.0
    }

    /// The worth of a replica. The replica with the least worth is unloaded first.
    fn worth(&self, now: Nanos, variant: VariantIx, of: &Variant, used: Nanos) -> u64;

    /// Whether, of several devices, the one whose victims are worth least is preferred.
    fn compares_victims(&self) -> bool {
        false
    }

    /// When the next expectation is due.
    fn next_foreseen(&self) -> Option<Nanos> {
        None
    }

    /// Takes an expectation that is due.
    fn take_foreseen(&mut self, _now: Nanos) -> Option<Foresight> {
        None
    }

    /// The number of histories of requests that are kept.
    fn entries(&self) -> usize {
        0
    }

    /// Forgets the history of a variant's requests.
    fn forget(&mut self, _variant: VariantIx) {}

    /// There was no room for a variant now. Its burst is due again at `at`.
    fn postpone(&mut self, _variant: VariantIx, _at: Nanos) {}
}
