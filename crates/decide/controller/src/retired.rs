//! Forgets variants that were retired long ago. A service that runs for months has many versions of its models come and
//! go, and profiles and histories of all of them would fill its memory.

use super::{Controller, Nanos};
use sextant_types::index::VariantIx;

/// The number of retired variants of which everything is kept: a version that was replaced may come back.
const KEPT: usize = 256;

impl<T> Controller<T> {
    /// The number of entries by variant, queue and size in all tables together. It has a bound while variants come and
    /// go.
    pub fn entries(&self) -> usize {
        let variants = self.variants.iter().flatten().count();
        let queues = self.queues.len() - self.vacant_queues.len();
        let loads = self.loads.as_ref().map_or(0, |loads| loads.entries());
        let learnt = self.estimates.entries() + loads;
        variants + queues + self.shaped.len() + learnt + self.placement.entries()
    }

    /// Forgets those of the variants that were retired first of which nothing is left on the devices and in the queues.
    /// The last [`KEPT`] are not forgotten. Returns those that are.
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
