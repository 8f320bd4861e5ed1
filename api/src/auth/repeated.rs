//! Limits the entries of the audit record that a key with the scope `query` can make.
//!
//! Such a key may load and unload by name as often as it likes, without an effect, and each time makes an entry that is
//! kept. So each caller may make some entries of an action at once, and then one entry from time to time. The next
//! entry has the number of those that were left out.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Entries that a caller may make at once.
const AT_ONCE: u32 = 100;

/// Time after which a caller may make one more entry.
const ONE_EVERY: Duration = Duration::from_secs(10);

/// The entries that each caller may still make, by caller and action.
#[derive(Default)]
pub(super) struct AuditThrottle(Mutex<HashMap<(String, &'static str), CallerAllowance>>);

struct CallerAllowance {
    entries: u32,
    since: Instant,
    /// Number of actions that were not recorded since the last entry.
    counted: u64,
}

impl AuditThrottle {
    /// The number of actions that were left out before this one; `None` if this one is left out too.
    pub(super) fn next(&self, caller: &str, action: &'static str, now: Instant) -> Option<u64> {
        let mut all = self.0.lock();
        let left = all
            .entry((caller.to_owned(), action))
            .or_insert(CallerAllowance {
                entries: AT_ONCE,
                since: now,
                counted: 0,
            });
        let grown = now.saturating_duration_since(left.since).as_secs() / ONE_EVERY.as_secs();
        let grown = u32::try_from(grown).unwrap_or(AT_ONCE).min(AT_ONCE);
        if grown > 0 {
            left.entries = (left.entries + grown).min(AT_ONCE);
            left.since = now;
        }
        if left.entries == 0 {
            left.counted += 1;
            return None;
        }
        left.entries -= 1;
        Some(std::mem::take(&mut left.counted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_changes_are_counted_and_not_all_recorded() {
        let repeated = AuditThrottle::default();
        let begin = Instant::now();
        let made = |now: Instant| -> Vec<u64> {
            let asked = (0..3000).map(|_| repeated.next("k", "model.unload", now));
            asked.flatten().collect()
        };
        assert_eq!(made(begin).len(), AT_ONCE as usize);
        assert_eq!(repeated.next("other", "model.unload", begin), Some(0));
        assert_eq!(repeated.next("k", "model.load", begin), Some(0));
        let later = begin + 2 * ONE_EVERY;
        assert_eq!(made(later), [3000 - u64::from(AT_ONCE), 0]);
    }
}
