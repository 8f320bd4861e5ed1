//! What the controller learns from runs and LOADs.

use super::{Actions, BatchId, Controller, NEVER, Nanos, PoolIx};
use sextant_profile::{Patience, RollingKey, Run};
use sextant_types::index::{DeviceIx, KindIx, QueueIx, VariantIx};

/// Estimates that no run has confirmed for this long return to the profile.
const PATIENCE: Patience = Patience {
    least: 500_000_000,
    most: 5_000_000_000,
};

/// Time between two looks at unconfirmed estimates, ns.
const LOOK: Nanos = 500_000_000;

/// The outcome of a LOAD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadResult {
    /// It took this long, ns.
    After(Nanos),
    /// The variant was found loaded, no matter who loaded it.
    Found,
    /// It was not started, because its window had closed.
    TooLate,
    /// It failed.
    Failed,
}

impl<T> Controller<T> {
    /// The run time by the profile for a batch under way, if it has this many rows, ns.
    pub fn profiled(&self, batch: BatchId, rows: u32) -> Option<Nanos> {
        let of = self.batches.get(batch.at as usize)?;
        if of.number != batch.number || batch.number == 0 {
            return None;
        }
        let (kind, queue) = (self.device(of.device)?.spec.kind, of.queue);
        Some(self.estimates.profile(kind, queue)?.of(rows))
    }

    /// Where a variant may run: the pool, the kind of device, and the time by which a lone request there exceeds its
    /// profile, ns. For a variant whose queries come in several sizes the excess is in [`Self::excesses`].
    pub fn runs_on(
        &self,
        variant: VariantIx,
    ) -> impl Iterator<Item = (PoolIx, KindIx, Nanos)> + Clone {
        let pools = self.pools_of(variant).iter();
        pools.filter_map(move |pool| {
            let kind = self.pools.kind(*pool)?;
            let of = self.variant(variant)?;
            let plain = of.queues.first().filter(|_| of.spec.surface.is_none());
            let excess = plain.map_or(0, |queue| self.excess(kind, *queue));
            Some((*pool, kind, excess))
        })
    }

    pub(super) fn excess(&self, kind: KindIx, queue: QueueIx) -> Nanos {
        let known = self.estimates.table(kind, queue);
        let profile = self.estimates.profile(kind, queue);
        let both = known.zip(profile);
        both.map_or(0, |(known, profile)| {
            known.of(1).saturating_sub(profile.of(1))
        })
    }

    /// Learns from a run.
    pub(super) fn learn_run(
        &mut self,
        now: Nanos,
        (device, queue): (DeviceIx, QueueIx),
        run: Run,
        actions: &mut Actions<T>,
    ) {
        let Some(kind) = self.device(device).map(|of| of.spec.kind) else {
            return;
        };
        if self.estimates.observe(now, kind, queue, run).is_none() {
            return;
        }
        self.refresh_at = self.refresh_at.min(now.saturating_add(PATIENCE.least));
        self.tell_latency(now, kind, queue);
        self.carry_out(now, actions);
    }

    /// Learns from a LOAD, unless it is a first load, which later ones do not resemble.
    pub(super) fn learn_load(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        variant: VariantIx,
        nanos: Nanos,
    ) {
        let Some(kind) = self.device(device).map(|of| of.spec.kind) else {
            return;
        };
        if self.variant(variant).is_none() || self.placement.is_first_load(device, variant) {
            return;
        }
        let Some(loads) = &mut self.loads else { return };
        let key = RollingKey {
            of: variant,
            rows: 0,
            kind,
        };
        loads.observe(key, nanos);
        if let Some(load) = loads.estimate(key) {
            self.placement.on_load_estimate(now, kind, variant, load);
        }
    }

    /// Learns from an UNLOAD. What is learnt of one variant counts for all: most of the time is spent on messages and
    /// records, and little on what the variant is.
    pub(super) fn learn_unload(&mut self, now: Nanos, device: DeviceIx, nanos: Nanos) {
        let Some(kind) = self.device(device).map(|of| of.spec.kind) else {
            return;
        };
        let Some(unloads) = &mut self.unloads else {
            return;
        };
        let key = RollingKey {
            of: kind,
            rows: 0,
            kind,
        };
        unloads.observe(key, nanos);
        if let Some(unload) = unloads.estimate(key) {
            self.placement.on_unload_estimate(now, kind, unload);
        }
    }

    /// Returns estimates that nothing has confirmed for a while to the profiles.
    pub(super) fn refresh(&mut self, now: Nanos, actions: &mut Actions<T>) {
        if self.refresh_at > now {
            return;
        }
        for (kind, queue, _) in self.estimates.refresh(now, PATIENCE) {
            self.tell_latency(now, kind, queue);
        }
        self.refresh_at = match self.estimates.have_moved() {
            true => now.saturating_add(LOOK),
            false => NEVER,
        };
        self.carry_out(now, actions);
    }

    /// Tells the scheduler that run times on a kind have changed.
    fn tell_latency(&mut self, now: Nanos, kind: KindIx, queue: QueueIx) {
        for pool in self.pools_of(self.variant_of(queue)).to_vec() {
            if self.pools.kind(pool) == Some(kind) {
                self.seat_queue(now, pool, queue);
            }
        }
    }
}
