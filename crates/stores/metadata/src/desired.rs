//! What should be loaded, and on how many workers of which types.

use serde::{Deserialize, Serialize};
use sextant_types::{DeviceTypeName, VariantId, WorkerId};

use crate::{Cutback, Decision, MOST_DECISIONS, Pool};

/// What the leading autoscaler wants to be loaded. It says nothing about what is loaded for other
/// reasons: that may stay as long as its memory is not needed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DesiredState {
    /// The fencing token under which this content was first written.
    pub token: u64,
    /// Sorted by variant, each once.
    pub variants: Vec<DesiredVariant>,
    /// What is loaded, not desired and has answered nothing for so long may be unloaded, ms.
    pub idle_unload_ms: u64,
    /// How many workers there should be of each type, sorted by type, each once.
    #[serde(default)]
    pub pools: Vec<Pool>,
    /// Workers that are to leave once what is desired is loaded elsewhere, sorted.
    #[serde(default)]
    pub emptying: Vec<WorkerId>,
    /// The last changes of all this and why, oldest first; at most [`MOST_DECISIONS`].
    #[serde(default)]
    pub decisions: Vec<Decision>,
    /// Applications of which less is planned for than is asked, sorted.
    #[serde(default)]
    pub held_back: Vec<Cutback>,
    /// The largest batches that plans have, sorted by variant and type, each pair once; no bound for others.
    #[serde(default)]
    pub batches: Vec<PlannedBatch>,
}

/// How large a batch of several queries may be, of a variant on a type of devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedBatch {
    /// Which variant.
    pub variant: VariantId,
    /// On which devices.
    pub device_type: DeviceTypeName,
    /// Most rows, at least 1. A query that has more by itself runs alone.
    pub max_rows: u32,
}

/// A variant that is desired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesiredVariant {
    /// Which one.
    pub variant: VariantId,
    /// On how many workers.
    pub workers: Count,
    /// It is not unloaded in favour of another.
    pub pinned: bool,
    /// Workers that what is asked for needs of it; 0 where it is kept warm before anyone asks.
    #[serde(default)]
    pub needed: u32,
}

/// On how many workers a variant is desired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Count {
    /// On every worker that can run it.
    Everywhere,
    /// On so many of those that can run it, or on all of them where there are fewer.
    Workers(u32),
}

impl DesiredState {
    /// Sorts `variants`; of those named twice the first counts.
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

    /// The same with the largest batches that plans have. Sorts them; of pairs named twice the largest counts.
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

    /// The same with workers that are to be emptied. Sorts them.
    pub fn with_emptying(self, mut emptying: Vec<WorkerId>) -> Self {
        emptying.sort();
        emptying.dedup();
        Self { emptying, ..self }
    }

    /// The same with how many workers there should be, and the last decisions. Sorts `pools`; of those
    /// named twice the first counts. Of more decisions than are kept the last count.
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

    /// Whether both want the same, whoever wrote it.
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.idle_unload_ms == other.idle_unload_ms
            && self.variants == other.variants
            && self.pools == other.pools
            && self.emptying == other.emptying
            && self.decisions == other.decisions
            && self.held_back == other.held_back
            && self.batches == other.batches
    }

    /// How many workers of a type there should be; `None` where nobody has said it.
    pub fn pool(&self, device_type: &DeviceTypeName) -> Option<&Pool> {
        let mut pools = self.pools.iter();
        pools.find(|pool| pool.device_type == *device_type)
    }

    /// What is desired of a variant; `None` when it is not desired.
    pub fn of(&self, variant: &VariantId) -> Option<&DesiredVariant> {
        let at = self
            .variants
            .binary_search_by(|desired| desired.variant.cmp(variant));
        self.variants.get(at.ok()?)
    }

    /// Most rows of a batch of several queries, of a variant on a type of devices; `None` where no plan says it.
    pub fn planned_rows(&self, variant: &VariantId, device_type: &DeviceTypeName) -> Option<u32> {
        let at = self
            .batches
            .binary_search_by(|it| (&it.variant, &it.device_type).cmp(&(variant, device_type)));
        Some(self.batches.get(at.ok()?)?.max_rows.max(1))
    }
}
