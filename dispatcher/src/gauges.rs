//! What selection reads of the scheduler's state without taking its lock.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use arc_swap::ArcSwap;
use sextant_policies::schedule::{NEVER, Nanos, PoolLoad};

/// Copies of estimates, written under the scheduler's lock.
#[derive(Default)]
pub(crate) struct Gauges {
    pools: Grown<Pool>,
    /// By queue: how much longer than by its profile a lone query takes where it takes least, ns.
    excess: Grown<AtomicU64>,
}

#[derive(Default)]
struct Pool {
    busy_until: AtomicU64,
    queued: AtomicU64,
}

/// A list that is replaced by a longer one when something comes that does not fit.
struct Grown<T>(ArcSwap<Vec<Arc<T>>>);

impl Gauges {
    /// Called by one thread at a time.
    pub(crate) fn set_load(&self, pool: u32, load: PoolLoad) {
        self.pools.with(pool as usize, |pool| {
            pool.busy_until.store(load.busy_until, Ordering::Relaxed);
            pool.queued.store(load.queued, Ordering::Relaxed);
        });
    }

    /// Estimated time until a new batch could start on a pool, ns.
    pub(crate) fn wait(&self, pool: usize, now: Nanos) -> Nanos {
        let pools = self.pools.0.load();
        let Some(pool) = pools.get(pool) else {
            return NEVER;
        };
        let busy = pool.busy_until.load(Ordering::Relaxed).saturating_sub(now);
        busy.saturating_add(pool.queued.load(Ordering::Relaxed))
    }

    /// Called by one thread at a time.
    pub(crate) fn set_excess(&self, queue: u32, nanos: Nanos) {
        self.excess.with(queue as usize, |excess| {
            excess.store(nanos, Ordering::Relaxed);
        });
    }

    /// How much longer than by its profile a lone query of `queue` takes, ns.
    pub(crate) fn excess(&self, queue: u32) -> Nanos {
        let list = self.excess.0.load();
        let excess = list.get(queue as usize);
        excess.map_or(0, |excess| excess.load(Ordering::Relaxed))
    }
}

impl<T: Default> Grown<T> {
    fn with(&self, at: usize, set: impl FnOnce(&T)) {
        let list = self.0.load();
        if let Some(item) = list.get(at) {
            return set(item);
        }
        let mut longer = Vec::clone(&list);
        longer.resize_with(at + 1, Arc::default);
        set(&longer[at]);
        self.0.store(Arc::new(longer));
    }
}

impl<T> Default for Grown<T> {
    fn default() -> Self {
        Self(ArcSwap::default())
    }
}
