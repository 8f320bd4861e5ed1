//! Forgets variants that were retired long ago. Otherwise the profiles and histories of all versions would fill the
//! memory of a service that runs for months.

use super::{Controller, Nanos};
use sextant_types::index::VariantIx;

/// The number of retired variants of which everything is kept: a version that was replaced may come back.
const KEPT: usize = 256;

impl<T> Controller<T> {
    /// The number of entries by variant, queue and size in all tables together. The number stays bounded while variants
    /// are published and retired.
    pub fn entries(&self) -> usize {
        let variants = self.variants.iter().flatten().count();
        let queues = self.queues.len() - self.vacant_queues.len();
        let loads = self.loads.as_ref().map_or(0, |loads| loads.entries());
        let learnt = self.estimates.entries() + loads;
        variants + queues + self.shaped.len() + learnt + self.placement.entries()
    }

    /// Forgets the variants that were retired before the last [`KEPT`], unless a device or a queue still uses them.
    /// Returns the forgotten ones.
    pub(super) fn forget_first_retired(&mut self, now: Nanos) -> Vec<VariantIx> {
        let more = self.retired.len().saturating_sub(KEPT);
        let first: Vec<VariantIx> = self.retired.iter().copied().take(more).collect();
        let forgotten = first.into_iter().filter(|of| self.forget(now, *of));
        let forgotten: Vec<VariantIx> = forgotten.collect();
        self.retired.retain(|of| !forgotten.contains(of));
        forgotten
    }

    /// Forgets a retired variant, unless something of it is left. Returns whether it is forgotten.
    fn forget(&mut self, now: Nanos, variant: VariantIx) -> bool {
        let queues = self.queues_of(variant);
        let mut batches = self.batches.iter().filter(|batch| batch.number != 0);
        let runs = batches.any(|batch| queues.contains(&batch.queue));
        if runs || self.is_loaded(variant) || !self.placement.forget(variant) {
            return false;
        }
        for queue in queues {
            self.close_queue(now, queue);
        }
        if let Some(loads) = &mut self.loads {
            loads.forget_all(variant);
        }
        self.variants[variant] = None;
        true
    }
}
