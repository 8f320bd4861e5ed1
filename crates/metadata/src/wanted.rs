//! What should be loaded.

use serde::{Deserialize, Serialize};
use sextant_types::VariantId;

/// What the leading autoscaler wants to be loaded. It says nothing about what is loaded for other
/// reasons: that may stay as long as its memory is not needed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Wanted {
    /// The fencing token under which this content was first written.
    pub token: u64,
    /// Sorted by variant, each once.
    pub variants: Vec<WantedVariant>,
    /// What is loaded, not wanted and has answered nothing for so long may be unloaded, ms.
    pub idle_unload_ms: u64,
}

/// A variant that is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedVariant {
    /// Which one.
    pub variant: VariantId,
    /// On how many workers.
    pub workers: Count,
    /// It is not unloaded in favour of another.
    pub pinned: bool,
}

/// On how many workers a variant is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Count {
    /// On every worker that can run it.
    Everywhere,
    /// On so many of those that can run it, or on all of them where there are fewer.
    Workers(u32),
}

impl Wanted {
    /// Sorts `variants`; of those named twice the first counts.
    pub fn new(token: u64, mut variants: Vec<WantedVariant>, idle_unload_ms: u64) -> Self {
        variants.sort_by(|a, b| a.variant.cmp(&b.variant));
        variants.dedup_by(|later, first| later.variant == first.variant);
        Self {
            token,
            variants,
            idle_unload_ms,
        }
    }

    /// Whether both want the same, whoever wrote it.
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.idle_unload_ms == other.idle_unload_ms && self.variants == other.variants
    }

    /// What is wanted of a variant; `None` when it is not wanted.
    pub fn of(&self, variant: &VariantId) -> Option<&WantedVariant> {
        let at = self
            .variants
            .binary_search_by(|wanted| wanted.variant.cmp(variant));
        self.variants.get(at.ok()?)
    }
}
