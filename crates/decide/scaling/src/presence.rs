//! Since when machines have been without their workers.
//!
//! A worker that has never announced itself did not start. A worker that was announced a moment ago and is not
//! announced now may be cut off from the store, or the store may have come back empty; its machine is healthy. A
//! machine is therefore given the time of a start again, counted from when its worker was last announced and from when
//! the observer began to look.

use std::collections::BTreeMap;

/// How many times as long as a start takes a worker may take before it announces itself.
const START_FACTOR: u64 = 3;

/// Additional time that each worker is given, ms.
const MORE_MS: u64 = 60_000;

/// When workers were last announced, by their machines.
#[derive(Debug, Clone)]
pub struct Presence<K> {
    begun_ms: u64,
    announced_ms: BTreeMap<K, u64>,
}

/// The longest time that a machine may be without its worker, if a start takes `start_ms`, ms.
pub fn longest_absence(start_ms: u64) -> u64 {
    start_ms
        .saturating_mul(START_FACTOR)
        .saturating_add(MORE_MS)
}

// === impl Presence ===

impl<K> Default for Presence<K> {
    fn default() -> Self {
        Self {
            begun_ms: 0,
            announced_ms: BTreeMap::new(),
        }
    }
}

impl<K: Ord> Presence<K> {
    /// The observer begins to look. What happened before is not known.
    pub fn begin(&mut self, now_ms: u64) {
        self.begun_ms = now_ms;
    }

    /// The workers of these machines are announced now.
    pub fn announced(&mut self, machines: impl IntoIterator<Item = K>, now_ms: u64) {
        let machines = machines.into_iter();
        self.announced_ms.extend(machines.map(|it| (it, now_ms)));
    }

    /// Forgets all machines but these.
    pub fn keep(&mut self, is_kept: impl Fn(&K) -> bool) {
        self.announced_ms.retain(|machine, _| is_kept(machine));
    }

    /// The time for which a machine that was started at `started_ms` has been without its worker, at least, ms.
    pub fn absent(&self, machine: &K, started_ms: u64, now_ms: u64) -> u64 {
        let announced = self.announced_ms.get(machine).copied().unwrap_or(0);
        let since = started_ms.max(self.begun_ms).max(announced);
        now_ms.saturating_sub(since)
    }
}
