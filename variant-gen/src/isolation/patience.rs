//! How long another process may go on without a word.
//!
//! A limit is one of time that the process has computed. Where the machine has no time for it, it computes nothing
//! and is waited for, and that has an end, too. No process is ended before the limit has passed on the clock: threads
//! that compute side by side use up several times as much.

use std::time::{Duration, Instant};

/// So many times its limit a process may take that does not compute.
const STARVED: u32 = 10;

/// Counts from a moment on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    limit: Duration,
    since: Instant,
    /// What the process had computed then.
    computed: Option<Duration>,
}

impl Patience {
    /// From now on.
    pub(super) fn begin(limit: Duration, now: Instant, computed: Option<Duration>) -> Self {
        Self {
            limit,
            since: now,
            computed,
        }
    }

    /// Whether it is at an end, where the process has computed for so long in all.
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
            // Of two threads at once: the clock has to pass the limit as well.
            (9, Some(23), false),
            (11, Some(16), true),
            (60, Some(14), false),
            (60, Some(16), true),
            (101, Some(6), true),
            // Where nobody says what it has computed, the clock alone counts.
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
