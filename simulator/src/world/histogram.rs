//! Counts of durations.

use sextant_schedule::Nanos;

/// Counts of durations in buckets 3 % wide.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

// === impl Histogram ===

/// Buckets in each doubling.
const STEPS: u32 = 32;

impl Histogram {
    /// Counts a duration.
    pub fn add(&mut self, nanos: Nanos) {
        let at = Self::bucket(nanos);
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
        self.total += 1;
    }

    /// The duration that `share` (0 to 1) of the counted ones do not exceed, to 3 %, ns; 0 if
    /// nothing was counted.
    pub fn quantile(&self, share: f64) -> Nanos {
        let desired = ((share * self.total as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= desired {
                return Self::upper(at);
            }
        }
        0
    }

    /// The number of durations that were counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    fn bucket(nanos: Nanos) -> usize {
        let nanos = nanos.max(u64::from(STEPS));
        let octave = nanos.ilog2() - STEPS.ilog2();
        let within = (nanos >> octave) as u32 - STEPS;
        (octave * STEPS + within) as usize
    }

    fn upper(bucket: usize) -> Nanos {
        let (octave, within) = (bucket as u32 / STEPS, bucket as u32 % STEPS);
        (u64::from(STEPS + within + 1) << octave) - 1
    }
}
