//! Whether requests for a variant come with a period, and when the next ones are due.
//!
//! Functions that run on a schedule are called in bursts, every 5, 15 or 60 minutes. A *burst* begins with a request
//! after [`QUIET`] without one. The last eight intervals between the beginnings of bursts are kept. The shortest and
//! the longest are left out if there are enough intervals. The variant has a period if the rest differ by no more than
//! a small part of their median. The part grows with the number of intervals: few that agree closely say as much as
//! many that agree roughly, and the intervals of requests that come at random do neither.
//!
//! A request costs O(1): requests within a burst change one number.

use super::Nanos;

/// A request after this long without one begins a burst, ns. Variants with a shorter period are kept loaded because of
/// their rate.
const QUIET: Nanos = 20_000_000_000;

const INTERVALS: usize = 8;

/// The fewest intervals that make a period.
const FEWEST: usize = 3;

/// Allowed spread of the intervals over their median, for each interval beyond two.
const SPREAD: f64 = 0.05;

/// When the next burst should begin, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BurstForecast {
    /// The earliest time, as far as the intervals show.
    pub from: Nanos,
    /// The latest time.
    pub until: Nanos,
}

/// The beginnings of a variant's last bursts.
#[derive(Debug, Clone, Copy, Default)]
pub struct BurstPeriod {
    last_request: Option<Nanos>,
    last_burst: Nanos,
    intervals: [Nanos; INTERVALS],
    count: usize,
    expected: Option<BurstForecast>,
}

// === impl BurstPeriod ===

impl BurstPeriod {
    /// A request came. Returns whether it began a burst.
    pub fn add(&mut self, now: Nanos) -> bool {
        let last = self.last_request.replace(now);
        let Some(last) = last else {
            self.last_burst = now;
            return true;
        };
        if now.saturating_sub(last) < QUIET {
            return false;
        }
        self.intervals[self.count % INTERVALS] = now - self.last_burst;
        self.count += 1;
        self.last_burst = now;
        self.expected = self.predict();
        true
    }

    /// When the last request came.
    pub fn last_request(&self) -> Option<Nanos> {
        self.last_request
    }

    /// When the next burst is expected; `None` while no period is known.
    pub fn expected(&self) -> Option<BurstForecast> {
        self.expected
    }

    fn predict(&self) -> Option<BurstForecast> {
        let known = self.count.min(INTERVALS);
        if known < FEWEST {
            return None;
        }
        let mut sorted = self.intervals;
        let sorted = &mut sorted[..known];
        sorted.sort_unstable();
        let outliers = usize::from(known >= 6);
        let kept = &sorted[outliers..known - outliers];
        let (least, most) = (kept[0], kept[kept.len() - 1]);
        let median = kept[kept.len() / 2];
        let allowed = SPREAD * (kept.len() - 2) as f64 * median as f64;
        if (most - least) as f64 > allowed {
            return None;
        }
        // The last burst may itself have come early or late.
        let slack = (most - least) + median / 100;
        Some(BurstForecast {
            from: self.last_burst + least.saturating_sub(slack),
            until: self.last_burst + most + slack,
        })
    }
}
