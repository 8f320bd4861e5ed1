//! Our estimate: a quantile of the run time that follows the device and excludes outliers.
//!
//! A run of `rows` rows is compared with the profile in logarithms, so that every term below is a
//! factor: `ln(measured / profile) = common + size + residual`. *common* is one slow-down for all
//! sizes of the variant, *size* corrects a profile that is wrong for one size, and the quantile of
//! the last residuals is the margin. A run far outside the residuals is quarantined: it is counted,
//! and used for nothing until enough of the following runs agree with it. If runs of several sizes
//! agree, or no other size contradicts, the device has changed and *common* jumps. If only one size
//! is off while others are unchanged, that size's correction jumps. A single outlier therefore
//! changes no estimate at all, and a real shift is followed after [`CONFIRM`] runs of any sizes.
//!
//! A run costs a constant number of steps, because there are at most [`RESIDUALS`] residuals.

use sextant_schedule::{LatencyTable, Nanos};

use super::quantile;

/// Residuals that are remembered.
const RESIDUALS: usize = 64;
/// Runs that may confirm a shift.
const RECENT: usize = 6;
/// The number of them that must confirm it.
const CONFIRM: usize = 4;
/// The share of a residual by which the common factor follows.
const COMMON_GAIN: f64 = 1.0 / 8.0;
/// The share of a residual by which its size's correction follows. It is lower, because most drift
/// is common.
const SIZE_GAIN: f64 = 1.0 / 32.0;
/// The typical residual before any is known, and of a device without noise.
const SPREAD_AT_FIRST: f64 = 0.02;
const SPREAD_LEAST: f64 = 0.002;
/// The largest factor that is followed, as a logarithm: e^10 is 22,000.
const FACTOR_MOST: f64 = 10.0;

/// How a [`Tracker`] estimates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrackerOptions {
    /// The share of runs that should end within the estimate, 0.5 to 1.
    pub quantile: f64,
    /// The multiple of the typical residual from which a run is suspicious.
    pub outlier_spreads: f64,
    /// A run closer to the estimate than this share is never suspicious.
    pub outlier_share: f64,
    /// The change of an estimate, as a share, from which [`Tracker::table`] gives a new table.
    pub table_share: f64,
}

/// Follows one variant on one device, or on several devices that are alike.
#[derive(Debug, Clone)]
pub struct Tracker {
    options: TrackerOptions,
    base: LatencyTable,
    /// Logarithm of the slow-down that all sizes share.
    common: f64,
    /// By rows - 1.
    sizes: Vec<Size>,
    residuals: Residuals,
    recent: [Option<RecentRun>; RECENT],
    next_recent: usize,
    quarantined: u64,
    /// `common` plus margin in the last table.
    published: f64,
    sizes_changed: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Size {
    /// Logarithm of the correction.
    factor: f64,
    /// The logarithm in the last table.
    published: f64,
    /// Consecutive suspicious runs, all slow or all fast.
    streak: u8,
    /// The suspicious run that is nearest to the estimate.
    nearest: f64,
}

/// A run and how it compared with the profile.
#[derive(Debug, Clone, Copy)]
struct RecentRun {
    rows: u32,
    residual: f64,
    suspicious: bool,
}

/// The last residuals, in order of arrival and of size.
#[derive(Debug, Clone, Default)]
struct Residuals {
    ring: Vec<f64>,
    next: usize,
    sorted: Vec<f64>,
    /// The average of their distance from zero.
    spread: f64,
}

// === impl TrackerOptions ===

impl Default for TrackerOptions {
    fn default() -> Self {
        Self {
            quantile: 0.99,
            outlier_spreads: 6.0,
            outlier_share: 0.1,
            table_share: 0.02,
        }
    }
}

// === impl Tracker ===

impl Tracker {
    /// Starts with a profile.
    pub fn new(profile: LatencyTable, options: TrackerOptions) -> Self {
        let sizes = vec![Size::default(); profile.measured_rows() as usize];
        let residuals = Residuals {
            spread: SPREAD_AT_FIRST,
            ..Residuals::default()
        };
        Self {
            options,
            base: profile,
            common: 0.0,
            sizes,
            residuals,
            recent: [None; RECENT],
            next_recent: 0,
            quarantined: 0,
            published: 0.0,
            sizes_changed: false,
        }
    }

    /// Takes in a run of `rows` rows that took `nanos` ns.
    pub fn observe(&mut self, rows: u32, nanos: Nanos) {
        let rows = rows.max(1);
        let profile = self.base.of(rows) as f64;
        let factor = (nanos.max(1) as f64 / profile).ln();
        let factor = factor.clamp(-FACTOR_MOST, FACTOR_MOST);
        let residual = factor - self.common - self.size(rows).factor;
        let suspicious = residual.abs() > self.tolerance();
        self.recent[self.next_recent] = Some(RecentRun {
            rows,
            residual,
            suspicious,
        });
        self.next_recent = (self.next_recent + 1) % RECENT;
        if suspicious {
            self.quarantine(rows, residual);
        } else {
            self.accept(rows, residual);
        }
    }

    /// The quantile of the run time of `rows` rows, ns, at least 1.
    pub fn estimate(&self, rows: u32) -> Nanos {
        let rows = rows.max(1);
        let logarithm = self.common + self.size(rows).factor + self.margin();
        // The cast saturates.
        let nanos = (self.base.of(rows) as f64 * logarithm.exp()).round() as Nanos;
        nanos.max(1)
    }

    /// The middle of the present run times, as a multiple of the profile's.
    pub fn drift(&self) -> f64 {
        self.common.exp()
    }

    /// The number of runs that were quarantined, whether confirmed later or not.
    pub fn quarantined(&self) -> u64 {
        self.quarantined
    }

    /// A table of the estimates if one has changed by more than the options' share since the last
    /// table, or since the profile. The table never decreases: a size that seems faster than a
    /// smaller one gets the smaller one's time.
    pub fn table(&mut self) -> Option<LatencyTable> {
        let level = self.common + self.margin();
        let share = self.options.table_share.max(0.0).ln_1p();
        if !self.sizes_changed && (level - self.published).abs() <= share {
            return None;
        }
        self.published = level;
        self.sizes_changed = false;
        for size in &mut self.sizes {
            size.published = size.factor;
        }
        let table = LatencyTable::rising(self.base.measured_rows(), |rows| self.estimate(rows));
        Some(table)
    }

    fn size(&self, rows: u32) -> Size {
        let size = self.sizes.get(rows as usize - 1);
        size.copied().unwrap_or_default()
    }

    /// The distance from which a run is suspicious.
    fn tolerance(&self) -> f64 {
        let share = self.options.outlier_share.max(0.0).ln_1p();
        (self.options.outlier_spreads * self.residuals.spread).max(share)
    }

    /// The margin above the middle: the quantile of the residuals, or while there are few, an
    /// estimate from their spread.
    fn margin(&self) -> f64 {
        let known = self.residuals.quantile(self.options.quantile);
        let count = self.residuals.sorted.len();
        let guess = 3.0 * self.residuals.spread;
        match known {
            Some(known) if count >= RESIDUALS / 4 => known.max(0.0),
            Some(known) => known.max(guess),
            None => guess,
        }
    }

    fn accept(&mut self, rows: u32, residual: f64) {
        self.residuals.push(residual);
        self.common += COMMON_GAIN * residual;
        self.correct(rows, SIZE_GAIN * residual);
        if let Some(size) = self.sizes.get_mut(rows as usize - 1) {
            size.streak = 0;
        }
    }

    fn correct(&mut self, rows: u32, by: f64) {
        let share = self.options.table_share.max(0.0).ln_1p();
        if let Some(size) = self.sizes.get_mut(rows as usize - 1) {
            size.factor = (size.factor + by).clamp(-FACTOR_MOST, FACTOR_MOST);
            self.sizes_changed |= (size.factor - size.published).abs() > share;
        }
    }

    fn quarantine(&mut self, rows: u32, residual: f64) {
        self.quarantined += 1;
        let streak = self.sizes.get_mut(rows as usize - 1).map_or(0, |size| {
            let continues = size.streak > 0 && (size.nearest > 0.0) == (residual > 0.0);
            if !continues {
                size.streak = 0;
            }
            if size.streak == 0 || residual.abs() < size.nearest.abs() {
                size.nearest = residual;
            }
            size.streak = size.streak.saturating_add(1);
            size.streak
        });
        if let Some(shift) = self.common_shift(residual > 0.0) {
            self.common = (self.common + shift).clamp(-FACTOR_MOST, FACTOR_MOST);
            self.forget_suspicions();
        } else if usize::from(streak) >= CONFIRM {
            let by = self.size(rows).nearest;
            self.correct(rows, by);
            self.sizes[rows as usize - 1].streak = 0;
        }
    }

    /// The shift on which enough of the recent runs agree: their median. A single size is not
    /// trusted while another one has just run as expected.
    fn common_shift(&self, slower: bool) -> Option<f64> {
        let recent = || self.recent.iter().flatten();
        let agrees = |run: &&RecentRun| run.suspicious && (run.residual > 0.0) == slower;
        let count = recent().filter(agrees).count();
        let first = recent().find(agrees)?.rows;
        let several = recent().filter(agrees).any(|run| run.rows != first);
        let contradicted = recent().any(|run| !run.suspicious && run.rows != first);
        if count < CONFIRM || (contradicted && !several) {
            return None;
        }
        let mut shifts = [0.0; RECENT];
        for (shift, run) in shifts.iter_mut().zip(recent().filter(agrees)) {
            *shift = run.residual;
        }
        let shifts = &mut shifts[..count];
        shifts.sort_by(f64::total_cmp);
        quantile(shifts, 0.5)
    }

    fn forget_suspicions(&mut self) {
        for run in self.recent.iter_mut() {
            if let Some(run) = run.take()
                && let Some(size) = self.sizes.get_mut(run.rows as usize - 1)
            {
                size.streak = 0;
            }
        }
    }
}

// === impl Residuals ===

impl Residuals {
    fn push(&mut self, residual: f64) {
        if self.ring.len() < RESIDUALS {
            self.ring.push(residual);
        } else {
            let old = std::mem::replace(&mut self.ring[self.next], residual);
            let at = self.sorted.partition_point(|value| *value < old);
            self.sorted.remove(at);
        }
        self.next = (self.next + 1) % RESIDUALS;
        let at = self.sorted.partition_point(|value| *value < residual);
        self.sorted.insert(at, residual);
        self.spread += (residual.abs() - self.spread) / 32.0;
        self.spread = self.spread.max(SPREAD_LEAST);
    }

    fn quantile(&self, share: f64) -> Option<f64> {
        quantile(&self.sorted, share)
    }
}
