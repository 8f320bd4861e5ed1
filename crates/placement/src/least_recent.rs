//! Placement on demand: the model that has waited longest is loaded next, what was used longest ago
//! goes, and nothing is loaded twice. What a cache in front of a slow store does, as a baseline.

use super::{
    Nanos,
    model::Model,
    rule::{Rule, View},
};

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

    fn worth(&self, _: Nanos, _: u32, _: &Model, used: Nanos) -> u64 {
        used
    }
}
