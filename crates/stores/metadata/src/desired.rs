//! The desired state: what should be loaded, and on how many workers of which types.

use serde::{Deserialize, Serialize};
use sextant_types::{DeviceTypeName, VariantId, WorkerId};

use crate::{Cutback, Decision, MOST_DECISIONS, Pool};

/// What the leading autoscaler wants to be loaded. Other loaded variants may stay as long as their memory is not
/// needed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DesiredState {
    /// The fencing token under which this content was first written.
    pub token: u64,
    /// The desired variants, sorted by variant, each once.
    pub variants: Vec<DesiredVariant>,
    /// Time without a query after which a loaded variant that is not desired may be unloaded, ms.
    pub idle_unload_ms: u64,
    /// The desired number of workers of each type, sorted by type, each once.
    #[serde(default)]
    pub pools: Vec<Pool>,
    /// Workers that are to leave once the desired variants are loaded elsewhere, sorted.
    #[serde(default)]
    pub emptying: Vec<WorkerId>,
    /// The last changes of the desired state with their reasons, oldest first; at most [`MOST_DECISIONS`].
    #[serde(default)]
    pub decisions: Vec<Decision>,
    /// Applications for which less is planned than is asked, sorted.
    #[serde(default)]
    pub held_back: Vec<Cutback>,
    /// The largest batches of plans, sorted by variant and type, each pair once. Other pairs have no such bound.
    #[serde(default)]
    pub batches: Vec<PlannedBatch>,
}

/// The largest batch of several queries, of a variant on a type of device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedBatch {
    /// The variant.
    pub variant: VariantId,
    /// The type of device.
    pub device_type: DeviceTypeName,
    /// Largest number of rows, at least 1. A query that has more rows runs alone.
    pub max_rows: u32,
}

/// A desired variant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesiredVariant {
    /// The variant.
    pub variant: VariantId,
    /// The number of workers on which it is desired.
    pub workers: Count,
    /// Whether it must not be unloaded in favour of another variant.
    pub pinned: bool,
    /// Number of workers that the demand needs of it; 0 if it is kept warm before anyone asks.
    #[serde(default)]
    pub needed: u32,
}

/// The number of workers on which a variant is desired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Count {
    /// On every worker that can run it.
    Everywhere,
    /// On this number of the workers that can run it, or on all of them if there are fewer.
    Workers(u32),
}

impl DesiredState {
    /// Sorts `variants`. Of variants named twice the first counts.
    pub fn new(token: u64, mut variants: Vec<DesiredVariant>, idle_unload_ms: u64) -> Self {
        variants.sort_by(|a, b| a.variant.cmp(&b.variant));
        variants.dedup_by(|later, first| later.variant == first.variant);
        Self {
            token,
            variants,
            idle_unload_ms,
            pools: Vec::new(),
            emptying: Vec::new(),
            decisions: Vec::new(),
            held_back: Vec::new(),
            batches: Vec::new(),
        }
    }

    /// Returns the state with the largest batches of plans. Sorts them; of pairs named twice the largest counts.
    pub fn with_batches(self, mut batches: Vec<PlannedBatch>) -> Self {
        batches.sort_by(|a, b| {
            let pairs = (&a.variant, &a.device_type).cmp(&(&b.variant, &b.device_type));
            pairs.then(b.max_rows.cmp(&a.max_rows))
        });
        batches.dedup_by(|later, first| {
            (&later.variant, &later.device_type) == (&first.variant, &first.device_type)
        });
        Self { batches, ..self }
    }

    /// Returns the state with workers that are to be emptied. Sorts them.
    pub fn with_emptying(self, mut emptying: Vec<WorkerId>) -> Self {
        emptying.sort();
        emptying.dedup();
        Self { emptying, ..self }
    }

    /// Returns the state with the desired numbers of workers and the last decisions. Sorts `pools`; of types named
    /// twice the first counts. If there are more decisions than are kept, the last ones count.
    pub fn with_scaling(self, mut pools: Vec<Pool>, mut decisions: Vec<Decision>) -> Self {
        pools.sort_by(|a, b| a.device_type.cmp(&b.device_type));
        pools.dedup_by(|later, first| later.device_type == first.device_type);
        let surplus = decisions.len().saturating_sub(MOST_DECISIONS);
        decisions.drain(..surplus);
        Self {
            pools,
            decisions,
            ..self
        }
    }

    /// Whether both desire the same. Tokens are ignored.
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.idle_unload_ms == other.idle_unload_ms
            && self.variants == other.variants
            && self.pools == other.pools
            && self.emptying == other.emptying
            && self.decisions == other.decisions
            && self.held_back == other.held_back
            && self.batches == other.batches
    }

    /// The pool of a type; `None` if no number is stated.
    pub fn pool(&self, device_type: &DeviceTypeName) -> Option<&Pool> {
        let mut pools = self.pools.iter();
        pools.find(|pool| pool.device_type == *device_type)
    }

    /// What is desired of a variant; `None` if it is not desired.
    pub fn of(&self, variant: &VariantId) -> Option<&DesiredVariant> {
        let at = self
            .variants
            .binary_search_by(|desired| desired.variant.cmp(variant));
        self.variants.get(at.ok()?)
    }

    /// Largest number of rows of a batch of several queries, of a variant on a type of device; `None` if no plan states
    /// it.
    pub fn planned_rows(&self, variant: &VariantId, device_type: &DeviceTypeName) -> Option<u32> {
        let at = self
            .batches
            .binary_search_by(|it| (&it.variant, &it.device_type).cmp(&(variant, device_type)));
        Some(self.batches.get(at.ok()?)?.max_rows.max(1))
    }
}
