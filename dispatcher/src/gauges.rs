//! The parts of the scheduler's state that selection reads without taking the lock.

use std::sync::{
    Arc,
    atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering},
};

use arc_swap::ArcSwap;
use sextant_controller::Slowdown;
use sextant_schedule::{Backlog, NEVER, Nanos, News, PoolIx, PoolLoad, ahead};
use sextant_types::index::{KindIx, TenantIx, VariantIx};

use crate::grown::{AppendTable, Members};

/// Copies of estimates, written under the scheduler's lock.
#[derive(Default)]
pub(crate) struct Gauges {
    pools: AppendTable<PoolIx, Pool>,
    variants: AppendTable<VariantIx, Variant>,
}

/// The estimates of a pool.
pub(crate) struct Pool {
    busy_until: AtomicU64,
    queued: AtomicU64,
    slots: AtomicU32,
    /// The backlog of each tenant that has a queue in the pool.
    tenants: AppendTable<TenantIx, TenantBacklog>,
    /// The tenants that have queries waiting.
    waiting: Members<TenantIx>,
    /// The virtual time of each priority.
    times: Box<[AtomicU64; PRIORITIES]>,
}

/// The number of possible priorities.
const PRIORITIES: usize = 256;

/// The backlog of a tenant. A weight of 0 says that it has no queue in the pool.
#[derive(Default)]
struct TenantBacklog {
    priority: AtomicU8,
    weight: AtomicU32,
    work: AtomicU64,
    batch: AtomicU64,
    finish: AtomicU64,
}

#[derive(Default)]
struct Variant {
    /// The pools in which it is loaded.
    places: ArcSwap<Vec<Place>>,
    /// The tenant that it belongs to.
    tenant: AtomicU32,
    /// The run time of all its batches together, ns.
    ran: AtomicU64,
    /// Where it runs slower than its profile says, if its queries come in several sizes.
    excesses: ArcSwap<Vec<Slowdown>>,
    /// Slots that a batch occupies if they were chosen; 0 for as many as the variant has threads.
    slots: AtomicU16,
}

/// A variant on a pool.
struct Place {
    pool: PoolIx,
    kind: KindIx,
    /// The time by which a lone query exceeds its profile, ns.
    excess: AtomicU64,
}

impl Gauges {
    /// A pool. Only one thread may write to it at a time.
    pub(crate) fn pool(&self, pool: PoolIx) -> &Pool {
        self.pools.at(pool)
    }

    /// Sets the tenant of a variant, the pool, kind and excess wherever it is loaded, and the excesses of single sizes
    /// of its queries. Called by one thread at a time.
    pub(crate) fn set_variant(
        &self,
        variant: VariantIx,
        tenant: Option<TenantIx>,
        runs_on: impl Iterator<Item = (PoolIx, KindIx, Nanos)> + Clone,
        excesses: impl Iterator<Item = Slowdown>,
    ) {
        let of = self.variants.at(variant);
        if let Some(tenant) = tenant {
            of.tenant.store(tenant.get(), Ordering::Relaxed);
        }
        let excesses: Vec<Slowdown> = excesses.collect();
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
    }

    /// A batch of a variant occupies this many slots from now on. Called by one thread at a time.
    pub(crate) fn set_slots(&self, variant: VariantIx, slots: u16) {
        let of = self.variants.at(variant);
        of.slots.store(slots, Ordering::Relaxed);
    }

    /// Slots that a batch of a variant occupies, if they were chosen.
    pub(crate) fn slots(&self, variant: VariantIx) -> Option<u16> {
        let of = self.variants.get(variant)?;
        let slots = of.slots.load(Ordering::Relaxed);
        (slots > 0).then_some(slots)
    }

    /// A batch of a variant has run for this long.
    pub(crate) fn add_run(&self, variant: VariantIx, run: Nanos) {
        // A variant that runs is loaded, and its load was published here.
        if let Some(of) = self.variants.get(variant) {
            of.ran.fetch_add(run, Ordering::Relaxed);
        }
    }

    /// The run time of all batches of a variant together, ns.
    pub(crate) fn ran(&self, variant: VariantIx) -> Nanos {
        let of = self.variants.get(variant);
        of.map_or(0, |of| of.ran.load(Ordering::Relaxed))
    }

    /// The pools in which a variant has seats.
    pub(crate) fn pools_of(&self, variant: VariantIx) -> Vec<PoolIx> {
        let places = self.variants.get(variant).map(|of| of.places.load_full());
        let places = places.iter().flat_map(|places| places.iter());
        places.map(|place| place.pool).collect()
    }

    /// The estimated time until a new batch of a variant could start on a device of a kind, in the pool where that is
    /// soonest, plus the time by which the run of a query of this size there exceeds its profile, ns. [`NEVER`] if the
    /// variant is not loaded there.
    pub(crate) fn wait(
        &self,
        variant: VariantIx,
        (kind, size): (KindIx, u64),
        now: Nanos,
    ) -> Nanos {
        let Some(of) = self.variants.get(variant) else {
            return NEVER;
        };
        let tenant = TenantIx::new(of.tenant.load(Ordering::Relaxed));
        let places = of.places.load();
        let of_kind = places.iter().filter(|place| place.kind == kind);
        let waits = of_kind.filter_map(|place| {
            let wait = self.pools.get(place.pool)?.wait(now, tenant);
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
    /// Called by one thread at a time.
    pub(crate) fn set_load(&self, load: PoolLoad) {
        self.busy_until.store(load.busy_until, Ordering::Relaxed);
        self.queued.store(load.queued, Ordering::Relaxed);
        self.slots.store(load.slots, Ordering::Relaxed);
    }

    /// Called by one thread at a time.
    pub(crate) fn tell(&self, news: News) {
        match news {
            News::Tenant { backlog, finish } => {
                self.tenants.at(backlog.tenant).set(&backlog, finish);
                self.waiting.set(backlog.tenant, backlog.work > 0);
            }
            News::Gone(tenant) => {
                let of = self.tenants.at(tenant);
                of.weight.store(0, Ordering::Relaxed);
                self.waiting.set(tenant, false);
            }
            News::Time { priority, time } => {
                self.times[usize::from(priority)].store(time, Ordering::Relaxed);
            }
        }
    }

    /// The estimated time until a query of a tenant could start, ns.
    fn wait(&self, now: Nanos, tenant: TenantIx) -> Nanos {
        let busy = self.busy_until.load(Ordering::Relaxed).saturating_sub(now);
        let queued = self.queued.load(Ordering::Relaxed);
        if queued == 0 {
            return busy;
        }
        let slots = Nanos::from(self.slots.load(Ordering::Relaxed).max(1));
        let others = self.waiting.iter().filter(|other| *other != tenant);
        let all = std::iter::once(tenant).chain(others);
        let fair = ahead(tenant, all.filter_map(|of| self.backlog(of)));
        busy.saturating_add(fair.map_or(queued, |work| queued.min(work / slots)))
    }

    /// The backlog of a tenant; `None` if it has no queue in the pool.
    fn backlog(&self, tenant: TenantIx) -> Option<Backlog> {
        let of = self.tenants.get(tenant)?;
        let weight = of.weight.load(Ordering::Relaxed);
        let priority = of.priority.load(Ordering::Relaxed);
        let time = self.times[usize::from(priority)].load(Ordering::Relaxed);
        (weight != 0).then(|| Backlog {
            tenant,
            priority,
            weight: f32::from_bits(weight),
            work: of.work.load(Ordering::Relaxed),
            batch: of.batch.load(Ordering::Relaxed),
            lag: of.finish.load(Ordering::Relaxed).saturating_sub(time),
        })
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            busy_until: AtomicU64::default(),
            queued: AtomicU64::default(),
            slots: AtomicU32::default(),
            tenants: AppendTable::default(),
            waiting: Members::default(),
            times: Box::new([const { AtomicU64::new(0) }; PRIORITIES]),
        }
    }
}

impl TenantBacklog {
    fn set(&self, backlog: &Backlog, finish: Nanos) {
        self.priority.store(backlog.priority, Ordering::Relaxed);
        self.weight
            .store(backlog.weight.to_bits(), Ordering::Relaxed);
        self.work.store(backlog.work, Ordering::Relaxed);
        self.batch.store(backlog.batch, Ordering::Relaxed);
        self.finish.store(finish, Ordering::Relaxed);
    }
}
