//! Placement as in Clockwork (OSDI 2020, section 5.3).
//!
//! The variant with the most unfulfilled demand is loaded first; a variant without any is not loaded. A hot variant
//! therefore gets another replica when the devices that have it are overloaded, and a cold one when its requests add up
//! to more than what others lack. The least recently used variant is unloaded.
//!
//! The paper does not define `capacity_g`. Here it is the work that a device can do within the target of a usual
//! request, [`super::Options::capacity`]. A request with less time asks for proportionally more of a device, so that
//! demand over capacity is the utilisation that the waiting requests require, whatever their targets. The demand of a
//! request is the run time of a batch of one, as the paper estimates it. It is given up once a LOAD that starts at that
//! moment could not help the request.
//!
//! Where the published code differs from the paper, this module follows the paper: nothing is loaded at a priority of
//! zero or less, and every request's demand ends at its own time.

use super::{
    Nanos,
    rule::{Rule, View},
    variant::Variant,
};
use sextant_types::index::VariantIx;

/// The rule of `clockwork`.
#[derive(Debug)]
pub(super) struct Clockwork;

impl Rule for Clockwork {
    fn margin(&self) -> Nanos {
        0
    }

    fn want(&self, view: &View<'_>) -> Option<u64> {
        Some(most_first(view.priority))
    }

    fn worth(&self, _: Nanos, _: VariantIx, _: &Variant, used: Nanos) -> u64 {
        used
    }
}

/// A key that puts the largest positive number first.
pub(super) fn most_first(value: f64) -> u64 {
    !value.max(0.0).to_bits()
}
