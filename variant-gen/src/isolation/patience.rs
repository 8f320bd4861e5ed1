//! How long another process may run without a sign of life.
//!
//! A limit applies to the time that the process has computed. If the machine has no time for the process, it computes
//! nothing and this one waits, but not for ever. No process is killed before the limit has passed on the clock as well:
//! threads that compute side by side use several times as much processor time.

use std::time::{Duration, Instant};

/// A process that does not compute may take this many times its limit.
const STARVED: u32 = 10;

/// Counts from a moment on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    limit: Duration,
    since: Instant,
    /// The time that the process had computed at that moment.
    computed: Option<Duration>,
}

impl Patience {
    /// Begins to count.
    pub(super) fn begin(limit: Duration, now: Instant, computed: Option<Duration>) -> Self {
        Self {
            limit,
            since: now,
            computed,
        }
    }

    /// Whether the limit is over, if the process has now computed for `computed` in all.
    pub(super) fn is_over(&self, now: Instant, computed: Option<Duration>) -> bool {
        let passed = now.saturating_duration_since(self.since);
        if passed <= self.limit {
            return false;
        }
        let worked = computed
            .zip(self.computed)
            .map(|(now, then)| now.saturating_sub(then));
        let has_worked = worked.is_none_or(|worked| worked > self.limit);
        has_worked || passed > self.limit.saturating_mul(STARVED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_a_processor_is_waited_for() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let patience = Patience::begin(10 * second, start, Some(5 * second));
        for (passed, computed, is_over) in [
            (9, Some(14), false),
            // Two threads at once: the clock has to pass the limit as well.
            (9, Some(23), false),
            (11, Some(16), true),
            (60, Some(14), false),
            (60, Some(16), true),
            (101, Some(6), true),
            // If the computed time is not known, the clock alone counts.
            (9, None, false),
            (11, None, true),
        ] {
            let computed: Option<u32> = computed;
            let computed = computed.map(|it| it * second);
            let now = start + passed * second;
            assert_eq!(patience.is_over(now, computed), is_over, "{passed} s");
        }
    }
}
