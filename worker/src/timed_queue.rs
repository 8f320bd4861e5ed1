//! A queue of items in order of `earliest`, and the wait for the first of them.

use std::{
    collections::{BTreeMap, btree_map},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The thread polls the clock for this long before a start, because the operating system may wake a
/// thread that much too late.
const SPIN: Duration = Duration::from_micros(50);

/// Items in order of the start of their windows; items with the same start are in order of arrival.
pub(crate) struct TimedQueue<T> {
    items: BTreeMap<Key, T>,
    arrivals: u64,
}

/// An item's place: its start, then its arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) earliest: Instant,
    arrival: u64,
}

impl<T> Default for TimedQueue<T> {
    fn default() -> Self {
        Self {
            items: BTreeMap::new(),
            arrivals: 0,
        }
    }
}

impl<T> TimedQueue<T> {
    pub(crate) fn push(&mut self, earliest: Instant, item: T) {
        let arrival = self.arrivals;
        self.arrivals += 1;
        self.items.insert(Key { earliest, arrival }, item);
    }

    /// The item whose window starts first.
    pub(crate) fn first(&mut self) -> Option<btree_map::OccupiedEntry<'_, Key, T>> {
        self.items.first_entry()
    }

    pub(crate) fn get_mut(&mut self, key: &Key) -> Option<&mut T> {
        self.items.get_mut(key)
    }

    pub(crate) fn remove(&mut self, key: &Key) -> Option<T> {
        self.items.remove(key)
    }

    /// All items, in order.
    pub(crate) fn iter_mut(&mut self) -> btree_map::IterMut<'_, Key, T> {
        self.items.iter_mut()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Takes all items.
    pub(crate) fn take(&mut self) -> BTreeMap<Key, T> {
        std::mem::take(&mut self.items)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a change.
pub(crate) fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// If `until` is more than [`SPIN`] away, waits until [`SPIN`] before it or for a change. Otherwise
/// polls the clock until `until`, without the lock. The caller must look at the queue again: an
/// item that starts sooner may have come.
pub(crate) fn wait_until<'a, T>(
    mutex: &'a Mutex<T>,
    changed: &Condvar,
    guard: MutexGuard<'a, T>,
    until: Instant,
) -> MutexGuard<'a, T> {
    let left = until.saturating_duration_since(Instant::now());
    if left > SPIN {
        let waited = changed.wait_timeout(guard, left - SPIN);
        return waited.unwrap_or_else(PoisonError::into_inner).0;
    }
    drop(guard);
    while Instant::now() < until {
        std::hint::spin_loop();
    }
    lock(mutex)
}
