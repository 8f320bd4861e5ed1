//! Placement on demand: the variant that has waited longest is loaded next, the least recently used one is unloaded,
//! and no variant is loaded twice. It is a baseline that behaves like a cache in front of a slow store.

use super::{
    Nanos,
    rule::{Rule, View},
    variant::Variant,
};
use sextant_types::index::VariantIx;

/// The rule of `lru`.
#[derive(Debug)]
pub(super) struct LeastRecent;

impl Rule for LeastRecent {
    fn margin(&self) -> Nanos {
        0
    }

    fn want(&self, view: &View<'_>) -> Option<u64> {
        let alone = view.of.replicas.is_empty();
        alone.then(|| view.key.unwrap_or(view.now))
    }

    fn worth(&self, _: Nanos, _: VariantIx, _: &Variant, used: Nanos) -> u64 {
        used
    }
}
