//! Clockwork's estimate: a high percentile of the last few runs.

use std::collections::BTreeMap;

use sextant_schedule::Nanos;

use super::quantile;
use sextant_types::index::{KindIx, Number};

/// The runs that are kept together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RollingKey<I> {
    /// What runs: a variant, or one of its queues.
    pub of: I,
    /// Rows of the batch.
    pub rows: u32,
    /// The kind of device.
    pub kind: KindIx,
}

/// The last ten durations by batch size and kind of device. The estimate is their 99th percentile, linear between
/// neighbours (Clockwork, section 4.2).
///
/// The profile's value is the first of the ten, so it counts less with each run. If a clock is given, the stored value
/// is the duration times the clock: cycles, which do not depend on the clock.
#[derive(Debug, Clone)]
pub struct Rolling10<I> {
    windows: BTreeMap<RollingKey<I>, Window>,
}

/// Runs that are remembered.
const RUNS: usize = 10;

#[derive(Debug, Clone, Copy, Default)]
struct Window {
    values: [f64; RUNS],
    /// The number of values.
    count: usize,
    /// The position of the next value.
    next: usize,
}

// === impl Rolling10 ===

impl<I> Default for Rolling10<I> {
    fn default() -> Self {
        Self {
            windows: BTreeMap::new(),
        }
    }
}

impl<I: Number> Rolling10<I> {
    /// Takes in a run of `nanos` ns.
    pub fn observe(&mut self, key: RollingKey<I>, nanos: Nanos) {
        self.observe_at_clock(key, nanos, 1);
    }

    /// Takes in a run of `nanos` ns while the device ran at `mhz`. A key must be used either always with clocks or
    /// never.
    pub fn observe_at_clock(&mut self, key: RollingKey<I>, nanos: Nanos, mhz: u32) {
        let cycles = nanos.max(1) as f64 * f64::from(mhz.max(1));
        self.windows.entry(key).or_default().push(cycles);
    }

    /// Forgets `key`.
    pub fn forget(&mut self, key: RollingKey<I>) {
        self.windows.remove(&key);
    }

    /// Forgets everything of `of`, on all kinds of devices.
    pub fn forget_all(&mut self, of: I) {
        let key = |rows, kind| RollingKey {
            of,
            rows,
            kind: KindIx::new(kind),
        };
        let known = self.windows.range(key(0, 0)..=key(u32::MAX, u32::MAX));
        let known: Vec<RollingKey<I>> = known.map(|(key, _)| *key).collect();
        for key in known {
            self.windows.remove(&key);
        }
    }

    /// The number of keys of which something is known.
    pub fn entries(&self) -> usize {
        self.windows.len()
    }

    /// Expected run time, ns; `None` for a key without a run or a seed.
    pub fn estimate(&self, key: RollingKey<I>) -> Option<Nanos> {
        self.estimate_at_clock(key, 1)
    }

    /// Expected run time at a clock of `mhz`, ns.
    pub fn estimate_at_clock(&self, key: RollingKey<I>, mhz: u32) -> Option<Nanos> {
        let cycles = self.windows.get(&key)?.percentile()?;
        Some(((cycles / f64::from(mhz.max(1))).round() as Nanos).max(1))
    }
}

// === impl Window ===

impl Window {
    fn push(&mut self, value: f64) {
        self.values[self.next] = value;
        self.next = (self.next + 1) % RUNS;
        self.count = (self.count + 1).min(RUNS);
    }

    fn percentile(&self) -> Option<f64> {
        let mut sorted = self.values;
        let sorted = &mut sorted[..self.count];
        sorted.sort_by(f64::total_cmp);
        quantile(sorted, 0.99)
    }
}
