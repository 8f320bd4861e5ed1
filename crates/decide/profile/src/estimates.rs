//! The estimates that schedulers work with, for every variant on every kind of device.
//!
//! A scheduler reads a table of run times. This module keeps the tables accurate. Each measured run is handed in. When
//! an estimate has changed enough to matter, a new table is returned, to be given to
//! [`sextant_schedule::Scheduler::on_loaded`].
//!
//! An estimate can prevent the runs that would correct it: a variant that seems too slow for every target never runs
//! again. Estimates that nothing confirms for a while therefore return to the profile. Those that are so far from the
//! profile that they prevent runs return soon at first, and later each time they come back. A device that was slow for
//! a moment is thus tried again at once, and one that stays slow is tried rarely.

use std::{collections::BTreeMap, fmt, str::FromStr};

use sextant_schedule::{LatencyTable, Nanos};

use super::{Rolling10, RollingKey, Tracker, TrackerOptions};
use sextant_types::index::{KindIx, QueueIx};

/// How run times are estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Estimation {
    /// As measured once, without change.
    Profile,
    /// [`Rolling10`]: each batch size of each variant and device separately.
    Clockwork,
    /// [`Tracker`]: follows drift that all sizes share, and excludes outliers.
    #[default]
    Sextant,
}

/// A name that is not an estimation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownEstimation(String);

/// A measured run of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Rows of the batch, at least 1.
    pub rows: u32,
    /// How long it ran, ns.
    pub nanos: Nanos,
    /// The device's clock at the time, MHz, if it is known.
    pub mhz: Option<u32>,
}

/// How long an estimate is kept without a run that confirms it, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// The first time, if the estimate is `FAR_OFF`.
    pub least: Nanos,
    /// The final time, and the time for an estimate that is nearer to the profile.
    pub most: Nanos,
}

/// An estimate of at least this multiple of the profile prevents runs.
const FAR_OFF: Nanos = 2;

/// The number of times that the least patience may double.
const MOST_DOUBLINGS: u32 = 16;

/// The estimates of all variants on all kinds of devices; see the module.
#[derive(Debug, Default)]
pub struct Estimates {
    how: Estimation,
    /// By kind and queue.
    seats: BTreeMap<(KindIx, QueueIx), Seat>,
    rolling: Rolling10<QueueIx>,
}

#[derive(Debug)]
struct Seat {
    profile: LatencyTable,
    tracker: Option<Tracker>,
    /// The table that was last given out. `ran` is when the last run was.
    current: LatencyTable,
    observed: Nanos,
    /// Whether runs come with clocks.
    clocked: bool,
    /// How often it was returned to the profile since a run was near that.
    taken_back: u32,
}

// === impl Estimation ===

impl Estimation {
    /// Every estimation, in order of declaration.
    pub const ALL: [Self; 3] = [Self::Profile, Self::Clockwork, Self::Sextant];

    /// `profile`, `clockwork`, `sextant`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Profile => "profile",
            Self::Clockwork => "clockwork",
            Self::Sextant => "sextant",
        }
    }
}

impl fmt::Display for Estimation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Estimation {
    type Err = UnknownEstimation;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|known| known.name() == name);
        known.ok_or_else(|| UnknownEstimation(name.to_owned()))
    }
}

impl fmt::Display for UnknownEstimation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Estimation::ALL.map(|known| format!("`{known}`")).join(", ");
        write!(f, "unknown estimation `{}`; there are {names}", self.0)
    }
}

impl std::error::Error for UnknownEstimation {}

// === impl Estimates ===

impl Estimates {
    /// Starts without knowledge.
    pub fn new(how: Estimation) -> Self {
        Self {
            how,
            ..Self::default()
        }
    }

    /// `queue` runs on `kind` as `profile` says. A known pair keeps what was learnt about it, unless its profile has
    /// changed.
    pub fn seed(&mut self, now: Nanos, kind: KindIx, queue: QueueIx, profile: &LatencyTable) {
        let known = self.seats.get(&(kind, queue));
        if known.is_some_and(|seat| seat.profile == *profile) {
            return;
        }
        if self.how == Estimation::Clockwork {
            fill(&mut self.rolling, kind, queue, profile, 1);
        }
        let seat = Seat {
            tracker: (self.how == Estimation::Sextant)
                .then(|| Tracker::new(profile.clone(), TrackerOptions::default())),
            profile: profile.clone(),
            current: profile.clone(),
            observed: now,
            clocked: false,
            taken_back: 0,
        };
        self.seats.insert((kind, queue), seat);
    }

    /// `queue` no longer runs on `kind`.
    pub fn forget(&mut self, kind: KindIx, queue: QueueIx) {
        if let Some(seat) = self.seats.remove(&(kind, queue))
            && self.how == Estimation::Clockwork
        {
            for rows in 1..=seat.profile.measured_rows() {
                self.rolling.forget(key(kind, queue, rows));
            }
        }
    }

    /// A batch of `queue` ran on `kind`. Returns the new table if it has changed enough to matter.
    pub fn observe(
        &mut self,
        now: Nanos,
        kind: KindIx,
        queue: QueueIx,
        run: Run,
    ) -> Option<LatencyTable> {
        let seat = self.seats.get_mut(&(kind, queue))?;
        seat.observed = now;
        if run.nanos < FAR_OFF.saturating_mul(seat.profile.of(run.rows)) {
            seat.taken_back = 0;
        }
        let table = match self.how {
            Estimation::Profile => None,
            Estimation::Sextant => {
                let tracker = seat.tracker.as_mut()?;
                tracker.observe(run.rows, run.nanos);
                tracker.table()
            }
            Estimation::Clockwork => {
                let mhz = run.mhz.unwrap_or(1);
                if run.mhz.is_some() && !seat.clocked {
                    // The profile is assumed to belong to the clock of the first run.
                    fill(&mut self.rolling, kind, queue, &seat.profile, mhz);
                    seat.clocked = true;
                }
                self.rolling
                    .observe_at_clock(key(kind, queue, run.rows), run.nanos, mhz);
                let table = rolled(&self.rolling, kind, queue, &seat.profile, run.mhz);
                (table != seat.current).then_some(table)
            }
        };
        if let Some(table) = &table {
            seat.current = table.clone();
        }
        table
    }

    /// Returns to their profiles those pairs that have not run for as long as their patience. Returns the pairs whose
    /// tables change by this, in order.
    pub fn refresh(
        &mut self,
        now: Nanos,
        patience: Patience,
    ) -> Vec<(KindIx, QueueIx, LatencyTable)> {
        let stale = |seat: &Seat| {
            now.saturating_sub(seat.observed) >= seat.patience(patience)
                && seat.current != seat.profile
        };
        let pairs: Vec<(KindIx, QueueIx)> = self
            .seats
            .iter()
            .filter(|(_, seat)| stale(seat))
            .map(|(pair, _)| *pair)
            .collect();
        pairs
            .into_iter()
            .filter_map(|(kind, queue)| {
                let seat = self.seats.get(&(kind, queue))?;
                let (profile, taken_back) = (seat.profile.clone(), seat.taken_back);
                self.forget(kind, queue);
                self.seed(now, kind, queue, &profile);
                self.seats.get_mut(&(kind, queue))?.taken_back = taken_back.saturating_add(1);
                Some((kind, queue, profile))
            })
            .collect()
    }

    /// The number of pairs, and of sizes of batches, of which something is known.
    pub fn entries(&self) -> usize {
        self.seats.len() + self.rolling.entries()
    }

    /// Whether any table differs from its profile.
    pub fn have_moved(&self) -> bool {
        let mut seats = self.seats.values();
        seats.any(|seat| seat.current != seat.profile)
    }

    /// The table of a pair that was last given out.
    pub fn table(&self, kind: KindIx, queue: QueueIx) -> Option<&LatencyTable> {
        Some(&self.seats.get(&(kind, queue))?.current)
    }

    /// The profile of a pair.
    pub fn profile(&self, kind: KindIx, queue: QueueIx) -> Option<&LatencyTable> {
        Some(&self.seats.get(&(kind, queue))?.profile)
    }
}

// === impl Seat ===

impl Seat {
    /// How long the estimate is kept without a run.
    fn patience(&self, of: Patience) -> Nanos {
        if self.current.of(1) < FAR_OFF.saturating_mul(self.profile.of(1)) {
            return of.most;
        }
        let doublings = self.taken_back.min(MOST_DOUBLINGS);
        of.least.saturating_mul(1 << doublings).min(of.most)
    }
}

fn key(kind: KindIx, queue: QueueIx, rows: u32) -> RollingKey<QueueIx> {
    RollingKey {
        of: queue,
        rows,
        kind,
    }
}

/// Seeds the rolling estimates of all sizes with a profile.
fn fill(
    rolling: &mut Rolling10<QueueIx>,
    kind: KindIx,
    queue: QueueIx,
    profile: &LatencyTable,
    mhz: u32,
) {
    for rows in 1..=profile.measured_rows() {
        let key = key(kind, queue, rows);
        rolling.forget(key);
        rolling.observe_at_clock(key, profile.of(rows), mhz);
    }
}

/// The rolling estimates of all sizes as a table that never decreases.
fn rolled(
    rolling: &Rolling10<QueueIx>,
    kind: KindIx,
    queue: QueueIx,
    profile: &LatencyTable,
    mhz: Option<u32>,
) -> LatencyTable {
    LatencyTable::rising(profile.measured_rows(), |rows| {
        let known = rolling.estimate_at_clock(key(kind, queue, rows), mhz.unwrap_or(1));
        known.unwrap_or_else(|| profile.of(rows))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    fn profile() -> LatencyTable {
        LatencyTable::new(vec![2 * MS, 3 * MS, 4 * MS]).unwrap()
    }

    fn run(rows: u32, nanos: Nanos) -> Run {
        Run {
            rows,
            nanos,
            mhz: None,
        }
    }

    #[test]
    fn a_slower_device_slows_every_size_and_silence_brings_the_profile_back() {
        let mut estimates = Estimates::new(Estimation::Sextant);
        estimates.seed(0, KindIx::new(0), QueueIx::new(7), &profile());
        for step in 1..40 {
            estimates.observe(step * MS, KindIx::new(0), QueueIx::new(7), run(1, 4 * MS));
        }
        let table = estimates.table(KindIx::new(0), QueueIx::new(7)).unwrap();
        assert!(table.of(1) >= 4 * MS && table.of(3) > 7 * MS, "{table:?}");
        let patience = Patience {
            least: 100 * MS,
            most: 100 * MS,
        };
        assert!(estimates.refresh(50 * MS, patience).is_empty());
        let back = estimates.refresh(200 * MS, patience);
        assert_eq!(back, [(KindIx::new(0), QueueIx::new(7), profile())]);
        assert!(estimates.refresh(400 * MS, patience).is_empty());
    }

    const SEAT: (KindIx, QueueIx) = (KindIx::new(0), QueueIx::new(7));

    /// Reports runs that take `nanos`, and then none. Returns how long it takes until the profile is back, ms.
    fn shut_out(estimates: &mut Estimates, now: &mut Nanos, nanos: Nanos) -> Nanos {
        let patience = Patience {
            least: 100 * MS,
            most: 1000 * MS,
        };
        for _ in 0..40 {
            *now += 1;
            estimates.observe(*now, SEAT.0, SEAT.1, run(1, nanos));
        }
        let begun = *now;
        while estimates.refresh(*now, patience).is_empty() {
            *now += 10 * MS;
        }
        (*now - begun) / MS
    }

    /// A device that is held for a moment must not be excluded for long afterwards. A device that stays slow is tried
    /// rarely.
    #[test]
    fn what_shuts_out_is_tried_soon_and_then_more_and_more_rarely() {
        let (mut estimates, mut now) = (Estimates::new(Estimation::Sextant), 0);
        estimates.seed(0, SEAT.0, SEAT.1, &profile());
        let times = (0..6).map(|_| shut_out(&mut estimates, &mut now, 80 * MS));
        assert_eq!(times.collect::<Vec<_>>(), [100, 200, 400, 800, 1000, 1000]);
        // After a run as profiled, the next hold counts as a short one again.
        estimates.observe(now, SEAT.0, SEAT.1, run(1, 2 * MS));
        assert_eq!(shut_out(&mut estimates, &mut now, 80 * MS), 100);
        // An estimate that is nearer to the profile prevents no runs.
        assert_eq!(shut_out(&mut estimates, &mut now, 3 * MS), 1000);
    }

    #[test]
    fn clockwork_knows_each_size_by_itself() {
        let mut estimates = Estimates::new(Estimation::Clockwork);
        estimates.seed(0, KindIx::new(0), QueueIx::new(0), &profile());
        for step in 1..30 {
            estimates.observe(step * MS, KindIx::new(0), QueueIx::new(0), run(3, 8 * MS));
        }
        let table = estimates.table(KindIx::new(0), QueueIx::new(0)).unwrap();
        assert_eq!((table.of(1), table.of(3)), (2 * MS, 8 * MS));
    }

    #[test]
    fn a_clock_that_drops_rescales_at_once() {
        let mut estimates = Estimates::new(Estimation::Clockwork);
        estimates.seed(
            0,
            KindIx::new(0),
            QueueIx::new(0),
            &LatencyTable::new(vec![MS, 3 * MS]).unwrap(),
        );
        let at = |nanos, mhz| Run {
            rows: 1,
            nanos,
            mhz: Some(mhz),
        };
        for step in 0..10 {
            estimates.observe(step, KindIx::new(0), QueueIx::new(0), at(2 * MS, 1000));
        }
        let slower = estimates
            .observe(11, KindIx::new(0), QueueIx::new(0), at(4 * MS, 500))
            .unwrap();
        assert_eq!((slower.of(1), slower.of(2)), (4 * MS, 6 * MS));
    }

    #[test]
    fn the_profile_is_kept_where_it_is_asked_for() {
        let mut estimates = Estimates::new(Estimation::Profile);
        estimates.seed(0, KindIx::new(0), QueueIx::new(0), &profile());
        assert_eq!(
            estimates.observe(1, KindIx::new(0), QueueIx::new(0), run(1, 90 * MS)),
            None
        );
        assert_eq!(
            estimates.observe(1, KindIx::new(1), QueueIx::new(0), run(1, 90 * MS)),
            None
        );
        assert_eq!(
            estimates.table(KindIx::new(0), QueueIx::new(0)),
            Some(&profile())
        );
    }

    #[test]
    fn an_unknown_way_lists_the_known() {
        let error = "mean".parse::<Estimation>().unwrap_err().to_string();
        assert!(
            error.contains("`profile`, `clockwork`, `sextant`"),
            "{error}"
        );
    }
}
