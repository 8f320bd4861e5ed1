//! When a plan becomes the desired count: an increase at once, a decrease only when no more was planned for a while.
//!
//! The desired count is the greatest count that was planned within the *hold*. A count that has gone up therefore does
//! not go down before the hold is over. Within any time of that length it changes direction at most once.

use std::collections::{BTreeMap, VecDeque};

/// The greatest planned count of each key within a time.
#[derive(Debug, Clone)]
pub struct RecentMaximum<K> {
    hold_ms: u64,
    /// By key: times and counts that are greater than all later ones, oldest first.
    planned: BTreeMap<K, VecDeque<(u64, u32)>>,
}

impl<K: Ord + Copy> RecentMaximum<K> {
    /// A maximum with this hold, ms.
    pub fn new(hold_ms: u64) -> Self {
        Self {
            hold_ms,
            planned: BTreeMap::new(),
        }
    }

    /// Takes over a count that another process decided at `now_ms`, as if it had been planned.
    pub fn assume(&mut self, key: K, now_ms: u64, count: u32) {
        self.push(key, now_ms, count);
    }

    /// Returns the desired count, given the newly planned one.
    pub fn want(&mut self, key: K, now_ms: u64, planned: u32) -> u32 {
        self.push(key, now_ms, planned);
        let held = self.planned.get_mut(&key).expect("pushed just now");
        // The last one stays, because it was planned now.
        while held.len() > 1
            && let Some((at, _)) = held.front()
            && at.saturating_add(self.hold_ms) <= now_ms
        {
            held.pop_front();
        }
        held.front().map_or(planned, |(_, count)| *count)
    }

    /// Forgets the keys for which `keep` is false.
    pub fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.planned.retain(|key, _| keep(key));
    }

    fn push(&mut self, key: K, now_ms: u64, count: u32) {
        let held = self.planned.entry(key).or_default();
        while held.back().is_some_and(|(_, known)| *known <= count) {
            held.pop_back();
        }
        // A clock that goes back does not shorten the hold.
        let now_ms = held.back().map_or(now_ms, |(at, _)| now_ms.max(*at));
        held.push_back((now_ms, count));
    }
}
