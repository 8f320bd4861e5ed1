//! Knowledge of run times: fits and tables of measured profiles, and estimates that follow a
//! running device.
//!
//! - [`fit`] finds the line `alpha * rows + beta` (Symphony, section 2) through measured points,
//!   and [`table_of`] makes the complete table that schedulers read.
//! - [`Surface`] has the run times of queries that come in several sizes.
//! - [`Rolling10`] is Clockwork's estimate (section 4.2): the 99th percentile of the last ten runs
//!   of a batch size.
//! - [`Tracker`] is our estimate: one slow-down that all batch sizes of a variant share, a slow
//!   correction per size, and a quarantine for outliers.
//! - [`ProcessHistory`] learns the cost of what surrounds the engines on a machine.
//! - [`Estimates`] keeps the tables of all variants on all pools, by either method.
//!
//! Ten runs of one size are few if many sizes run rarely. One slow run is then the estimate for the
//! next ten, which may be hours, and when a device slows down every size must learn it again.
//! Whatever slows a device (its clock, a neighbour, heat) slows all sizes by about the same factor.
//! The tracker therefore learns the factor from every run, and sets aside what a single run says
//! alone until others confirm it.
//!
//! **Invariant:** no clock, no async, no lock, no I/O, no logging. Time is an argument, order never
//! depends on a hash, and the same inputs give the same answer.

mod estimates;
mod fit;
mod rolling;
mod surface;
mod surroundings;
mod table;
mod tracker;

pub use estimates::{Estimates, Estimation, Patience, Run, UnknownEstimation};
pub use fit::{Errors, Fit, Line, Method, fit};
pub use rolling::{Rolling10, RollingKey};
pub use surface::{BUCKET, Surface};
pub use surroundings::{ProcessHistory, ProcessSample};
pub use table::table_of;
pub use tracker::{Tracker, TrackerOptions};

use sextant_schedule::{InvalidLatency, Nanos};

/// One measured run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measurement {
    /// Rows of the batch, at least 1.
    pub rows: u32,
    /// How long it ran, ns, at least 1.
    pub nanos: Nanos,
}

/// Why measurements do not make a profile.
#[derive(Debug, Clone, PartialEq)]
pub enum InvalidProfile {
    /// No measurement at all.
    Empty,
    /// All measurements are of one size, which does not determine a slope.
    OneSize {
        /// The size.
        rows: u32,
    },
    /// An invalid number of rows.
    Rows(String),
    /// An invalid run time.
    Time(String),
    /// Every point is valid, but the table is not.
    Latency(InvalidLatency),
}

/// Sorted by rows; each size with its measurements in order.
type BySize = Vec<(u32, Vec<f64>)>;

// === impl Measurement ===

impl Measurement {
    /// From the text of a file: rows, and milliseconds with decimals.
    ///
    /// # Errors
    /// Names the value when rows are not a whole number from 1 on, or the time is not a positive
    /// finite number of at most a day.
    pub fn parse(rows: &str, ms: &str) -> Result<Self, InvalidProfile> {
        const DAY_MS: f64 = 86_400_000.0;
        let (rows, ms) = (rows.trim(), ms.trim());
        let count = rows.parse::<u32>().ok().filter(|count| *count > 0);
        let time = ms.parse::<f64>().ok();
        let time = time.filter(|time| (1e-6..=DAY_MS).contains(time));
        Ok(Self {
            rows: count.ok_or_else(|| InvalidProfile::Rows(rows.to_owned()))?,
            nanos: (time.ok_or_else(|| InvalidProfile::Time(ms.to_owned()))? * 1e6).round()
                as Nanos,
        })
    }
}

/// Groups by size.
///
/// # Errors
/// When there is none, or one has no rows or took no time.
fn by_size(points: &[Measurement]) -> Result<BySize, InvalidProfile> {
    let mut points: Vec<_> = points.to_vec();
    points.sort_by_key(|point| point.rows);
    let mut sizes = BySize::new();
    for point in points {
        if point.rows == 0 {
            return Err(InvalidProfile::Rows("0".to_owned()));
        }
        if point.nanos == 0 {
            return Err(InvalidProfile::Time("0".to_owned()));
        }
        match sizes.last_mut() {
            Some((rows, times)) if *rows == point.rows => times.push(point.nanos as f64),
            _ => sizes.push((point.rows, vec![point.nanos as f64])),
        }
    }
    if sizes.is_empty() {
        return Err(InvalidProfile::Empty);
    }
    Ok(sizes)
}

/// The quantile `share` of sorted values, linear between neighbours; `None` if there are no values.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let position = share.clamp(0.0, 1.0) * last as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    Some(sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64))
}

/// The median; 0 if there are no values.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    quantile(&values, 0.5).unwrap_or(0.0)
}

// === impl InvalidProfile ===

impl std::fmt::Display for InvalidProfile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty => write!(f, "a profile without a single measurement"),
            Self::OneSize { rows } => write!(
                f,
                "all measurements are of `{rows}` rows; measure at least one more size"
            ),
            Self::Rows(value) => {
                write!(
                    f,
                    "`{value}` is not a number of rows; give a whole number from 1 on"
                )
            }
            Self::Time(value) => {
                write!(
                    f,
                    "`{value}` is not a run time; give a positive number of milliseconds"
                )
            }
            Self::Latency(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for InvalidProfile {}

impl From<InvalidLatency> for InvalidProfile {
    fn from(error: InvalidLatency) -> Self {
        Self::Latency(error)
    }
}
