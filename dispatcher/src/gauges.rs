//! What selection reads of the scheduler's state without taking its lock.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use arc_swap::ArcSwap;
use sextant_policies::schedule::{NEVER, Nanos, PoolLoad};

/// Copies of estimates, written under the scheduler's lock.
pub(crate) struct Gauges {
    pools: Vec<Pool>,
    /// By queue: how much longer than by its profile a lone query takes where it takes least, ns.
    /// Replaced by a longer list when a queue comes that does not fit.
    excess: ArcSwap<Vec<AtomicU64>>,
}

#[derive(Default)]
struct Pool {
    busy_until: AtomicU64,
    queued: AtomicU64,
}

impl Gauges {
    pub(crate) fn new(pools: usize) -> Self {
        Self {
            pools: (0..pools).map(|_| Pool::default()).collect(),
            excess: ArcSwap::default(),
        }
    }

    /// Pools there are.
    pub(crate) fn pools(&self) -> u32 {
        self.pools.len() as u32
    }

    pub(crate) fn set_load(&self, pool: u32, load: PoolLoad) {
        if let Some(pool) = self.pools.get(pool as usize) {
            pool.busy_until.store(load.busy_until, Ordering::Relaxed);
            pool.queued.store(load.queued, Ordering::Relaxed);
        }
    }

    /// Estimated time until a new batch could start on a pool, ns.
    pub(crate) fn wait(&self, pool: usize, now: Nanos) -> Nanos {
        let Some(pool) = self.pools.get(pool) else {
            return NEVER;
        };
        let busy = pool.busy_until.load(Ordering::Relaxed).saturating_sub(now);
        busy.saturating_add(pool.queued.load(Ordering::Relaxed))
    }

    /// Called by one thread at a time.
    pub(crate) fn set_excess(&self, queue: u32, nanos: Nanos) {
        let at = queue as usize;
        let mut list = self.excess.load_full();
        if list.len() <= at {
            let known = list.iter().map(|excess| excess.load(Ordering::Relaxed));
            let zeros = std::iter::repeat_n(0, at + 1 - list.len());
            list = Arc::new(known.chain(zeros).map(AtomicU64::new).collect());
            self.excess.store(Arc::clone(&list));
        }
        list[at].store(nanos, Ordering::Relaxed);
    }

    /// How much longer than by its profile a lone query of `queue` takes, ns.
    pub(crate) fn excess(&self, queue: u32) -> Nanos {
        let list = self.excess.load();
        let excess = list.get(queue as usize);
        excess.map_or(0, |excess| excess.load(Ordering::Relaxed))
    }
}
