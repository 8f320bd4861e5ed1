//! What selection reads of the scheduler's state without taking its lock.

use std::sync::{
    Arc,
    atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering},
};

use arc_swap::ArcSwap;
use sextant_controller::Excess;
use sextant_schedule::{Backlog, NEVER, Nanos, PoolIx, PoolLoad, ahead};
use sextant_types::index::{IndexVec, KindIx, Number, TenantIx, VariantIx};

/// Copies of estimates, written under the scheduler's lock.
#[derive(Default)]
pub(crate) struct Gauges {
    pools: Grown<PoolIx, Pool>,
    variants: Grown<VariantIx, Variant>,
}

#[derive(Default)]
struct Pool {
    busy_until: AtomicU64,
    queued: AtomicU64,
    slots: AtomicU32,
    /// What waits by tenant; empty where one has the pool for itself.
    backlogs: ArcSwap<Vec<Waiting>>,
}

/// What waits of a tenant.
struct Waiting {
    of: Backlog,
    work: AtomicU64,
    lag: AtomicU64,
}

#[derive(Default)]
struct Variant {
    /// Where it is loaded.
    places: ArcSwap<Vec<Place>>,
    /// Whose it is.
    tenant: AtomicU32,
    /// How long its batches have run, all together, ns.
    ran: AtomicU64,
    /// Where it runs slower than by its profile, if its queries come in several sizes.
    excesses: ArcSwap<Vec<Excess>>,
    /// Slots that a batch occupies where that was chosen; 0 for as many as it has threads.
    slots: AtomicU16,
}

/// A variant on a pool.
struct Place {
    pool: PoolIx,
    kind: KindIx,
    /// How much longer than by its profile a lone query takes, ns.
    excess: AtomicU64,
}

/// A list that is replaced by a longer one when something comes that does not fit.
struct Grown<I, T>(ArcSwap<IndexVec<I, Arc<T>>>);

impl Gauges {
    /// Called by one thread at a time.
    pub(crate) fn set_load(&self, pool: PoolIx, load: PoolLoad, backlogs: &[Backlog]) {
        self.pools.with(pool, |pool| {
            pool.busy_until.store(load.busy_until, Ordering::Relaxed);
            pool.queued.store(load.queued, Ordering::Relaxed);
            pool.slots.store(load.slots, Ordering::Relaxed);
            pool.set_backlogs(if backlogs.len() > 1 { backlogs } else { &[] });
        });
    }

    /// Whose it is, pool, kind and excess wherever a variant is loaded, and what is known of single sizes of its
    /// queries. Called by one thread at a time.
    pub(crate) fn set_variant(
        &self,
        variant: VariantIx,
        tenant: Option<TenantIx>,
        runs_on: impl Iterator<Item = (PoolIx, KindIx, Nanos)> + Clone,
        excesses: impl Iterator<Item = Excess>,
    ) {
        self.variants.with(variant, |of| {
            if let Some(tenant) = tenant {
                of.tenant.store(tenant.get(), Ordering::Relaxed);
            }
            let excesses: Vec<Excess> = excesses.collect();
            if **of.excesses.load() != excesses {
                of.excesses.store(Arc::new(excesses));
            }
            let places = of.places.load();
            let known = places.iter().map(|place| (place.pool, place.kind));
            if known.eq(runs_on.clone().map(|(pool, kind, _)| (pool, kind))) {
                let fresh = places.iter().zip(runs_on);
                return fresh.for_each(|(place, (_, _, excess))| {
                    place.excess.store(excess, Ordering::Relaxed);
                });
            }
            of.places.store(Arc::new(runs_on.map(Place::new).collect()));
        });
    }

    /// A batch of a variant occupies so many slots from now on. Called by one thread at a time.
    pub(crate) fn set_slots(&self, variant: VariantIx, slots: u16) {
        self.variants.with(variant, |of| {
            of.slots.store(slots, Ordering::Relaxed);
        });
    }

    /// Slots that a batch of a variant occupies, where that was chosen.
    pub(crate) fn slots(&self, variant: VariantIx) -> Option<u16> {
        let variants = self.variants.0.load();
        let slots = variants.get(variant)?.slots.load(Ordering::Relaxed);
        (slots > 0).then_some(slots)
    }

    /// A batch of a variant has run for so long.
    pub(crate) fn add_run(&self, variant: VariantIx, run: Nanos) {
        // What runs is loaded, and its load was published here.
        if let Some(of) = self.variants.0.load().get(variant) {
            of.ran.fetch_add(run, Ordering::Relaxed);
        }
    }

    /// How long the batches of a variant have run, all together, ns.
    pub(crate) fn ran(&self, variant: VariantIx) -> Nanos {
        let variants = self.variants.0.load();
        let of = variants.get(variant);
        of.map_or(0, |of| of.ran.load(Ordering::Relaxed))
    }

    /// The pools in which a variant has seats.
    pub(crate) fn pools_of(&self, variant: VariantIx) -> Vec<PoolIx> {
        let variants = self.variants.0.load();
        let places = variants.get(variant).map(|of| of.places.load_full());
        let places = places.iter().flat_map(|places| places.iter());
        places.map(|place| place.pool).collect()
    }

    /// Estimated time until a new batch of a variant could start on a kind of device where that is
    /// first, and by how much the run of a query of this size there now takes longer than profiled,
    /// ns; [`NEVER`] where it is not loaded.
    pub(crate) fn wait(
        &self,
        variant: VariantIx,
        (kind, size): (KindIx, u64),
        now: Nanos,
    ) -> Nanos {
        let variants = self.variants.0.load();
        let Some(of) = variants.get(variant) else {
            return NEVER;
        };
        let pools = self.pools.0.load();
        let tenant = TenantIx::new(of.tenant.load(Ordering::Relaxed));
        let places = of.places.load();
        let of_kind = places.iter().filter(|place| place.kind == kind);
        let waits = of_kind.filter_map(|place| {
            let wait = pools.get(place.pool)?.wait(now, tenant);
            Some(wait.saturating_add(place.excess.load(Ordering::Relaxed)))
        });
        let wait = waits.min().unwrap_or(NEVER);
        let excesses = of.excesses.load();
        let known = excesses.iter().find(|excess| {
            let (from, to) = excess.sizes;
            excess.kind == kind && (from..=to).contains(&size)
        });
        wait.saturating_add(known.map_or(0, |known| known.excess))
    }
}

impl Place {
    fn new((pool, kind, excess): (PoolIx, KindIx, Nanos)) -> Self {
        Self {
            pool,
            kind,
            excess: AtomicU64::new(excess),
        }
    }
}

impl Pool {
    /// Until a query of a tenant could start.
    fn wait(&self, now: Nanos, tenant: TenantIx) -> Nanos {
        let busy = self.busy_until.load(Ordering::Relaxed).saturating_sub(now);
        let queued = self.queued.load(Ordering::Relaxed);
        let backlogs = self.backlogs.load();
        if queued == 0 || backlogs.is_empty() {
            return busy.saturating_add(queued);
        }
        let slots = Nanos::from(self.slots.load(Ordering::Relaxed).max(1));
        let fair = ahead(tenant, backlogs.iter().map(Waiting::now));
        busy.saturating_add(fair.map_or(queued, |work| queued.min(work / slots)))
    }

    fn set_backlogs(&self, backlogs: &[Backlog]) {
        let known = self.backlogs.load();
        if known.len() == backlogs.len() && known.iter().zip(backlogs).all(|(a, b)| a.is(b)) {
            return known
                .iter()
                .zip(backlogs)
                .for_each(|(known, now)| known.set(now));
        }
        let backlogs = backlogs.iter().map(Waiting::new);
        self.backlogs.store(Arc::new(backlogs.collect()));
    }
}

impl Waiting {
    fn new(of: &Backlog) -> Self {
        Self {
            of: *of,
            work: AtomicU64::new(of.work),
            lag: AtomicU64::new(of.lag),
        }
    }

    /// Whether it is of the same tenant, on the same terms.
    fn is(&self, other: &Backlog) -> bool {
        let Backlog { work, lag, .. } = self.of;
        self.of
            == Backlog {
                work,
                lag,
                ..*other
            }
    }

    fn set(&self, now: &Backlog) {
        self.work.store(now.work, Ordering::Relaxed);
        self.lag.store(now.lag, Ordering::Relaxed);
    }

    fn now(&self) -> Backlog {
        Backlog {
            work: self.work.load(Ordering::Relaxed),
            lag: self.lag.load(Ordering::Relaxed),
            ..self.of
        }
    }
}

impl<I: Number, T: Default> Grown<I, T> {
    fn with(&self, number: I, set: impl FnOnce(&T)) {
        let list = self.0.load();
        if let Some(item) = list.get(number) {
            return set(item);
        }
        let mut longer = IndexVec::clone(&list);
        set(longer.grown(number));
        self.0.store(Arc::new(longer));
    }
}

impl<I, T> Default for Grown<I, T> {
    fn default() -> Self {
        Self(ArcSwap::default())
    }
}
