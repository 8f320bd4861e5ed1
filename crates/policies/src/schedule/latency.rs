//! How long a batch runs, by rows: the profile as schedulers read it.

use super::Nanos;

/// Run time by rows: `nanos[i]` for `i + 1` rows, never decreasing, with a straight line beyond.
///
/// Both directions cost O(1) or O(log rows): a scheduler asks with every request how many rows
/// still fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatencyTable {
    nanos: Vec<Nanos>,
    /// Added per row beyond the table.
    slope: Nanos,
}

/// Why a profile cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvalidLatency {
    /// No row at all.
    Empty,
    /// A larger batch is said to take less time.
    Decreasing {
        /// Rows of the batch that is too fast.
        rows: u32,
        /// Its run time, ns.
        nanos: Nanos,
        /// Run time of one row less, ns.
        before: Nanos,
    },
    /// A run time of zero, or a coefficient that is negative or not a number.
    NotPositive {
        /// Rows of the batch.
        rows: u32,
    },
}

impl LatencyTable {
    /// A measured table: `nanos[i]` for a batch of `i + 1` rows.
    ///
    /// # Errors
    /// When it is empty, holds a zero, or decreases.
    pub fn new(nanos: Vec<Nanos>) -> Result<Self, InvalidLatency> {
        let (Some(&first), Some(&last)) = (nanos.first(), nanos.last()) else {
            return Err(InvalidLatency::Empty);
        };
        if first == 0 {
            return Err(InvalidLatency::NotPositive { rows: 1 });
        }
        if let Some(at) = nanos.windows(2).position(|pair| pair[1] < pair[0]) {
            let (before, nanos, rows) = (nanos[at], nanos[at + 1], at as u32 + 2);
            return Err(InvalidLatency::Decreasing {
                rows,
                nanos,
                before,
            });
        }
        let steps = nanos.len() as u64 - 1;
        let slope = if steps == 0 {
            last
        } else {
            (last - first).div_ceil(steps).max(1)
        };
        Ok(Self { nanos, slope })
    }

    /// The line `alpha * rows + beta` (Symphony, section 2), in ms, as a table up to `max_rows`.
    ///
    /// # Errors
    /// When a coefficient is negative, not finite, or both are zero.
    pub fn linear(alpha_ms: f64, beta_ms: f64, max_rows: u32) -> Result<Self, InvalidLatency> {
        let valid = alpha_ms.is_finite() && beta_ms.is_finite() && alpha_ms >= 0.0;
        if !valid || beta_ms < 0.0 || alpha_ms + beta_ms <= 0.0 {
            return Err(InvalidLatency::NotPositive { rows: 1 });
        }
        let at = |rows: u32| ((alpha_ms * f64::from(rows) + beta_ms) * 1e6).round() as Nanos;
        Self::new((1..=max_rows.max(1)).map(at).collect())
    }

    /// Expected run time of `rows` rows, ns; of one row for zero.
    #[inline]
    pub fn of(&self, rows: u32) -> Nanos {
        let at = rows.max(1) as usize - 1;
        match self.nanos.get(at) {
            Some(nanos) => *nanos,
            None => self.beyond(at),
        }
    }

    /// Most rows that run within `budget` ns, at most `cap`; 0 when not even one does.
    #[inline]
    pub fn rows_within(&self, budget: Nanos, cap: u32) -> u32 {
        if cap == 0 || self.of(cap) <= budget {
            return cap;
        }
        let end = self.nanos.len().min(cap as usize);
        if end < cap as usize && self.of(end as u32) <= budget {
            let more = (budget - self.nanos[end - 1]) / self.slope;
            return (end as u64 + more).min(u64::from(cap)) as u32;
        }
        self.nanos[..end].partition_point(|nanos| *nanos <= budget) as u32
    }

    /// Rows in the measured part.
    pub fn measured_rows(&self) -> u32 {
        self.nanos.len() as u32
    }

    #[cold]
    fn beyond(&self, at: usize) -> Nanos {
        let last = self.nanos[self.nanos.len() - 1];
        let more = (at + 1 - self.nanos.len()) as u64;
        last.saturating_add(self.slope.saturating_mul(more))
    }
}

impl std::fmt::Display for InvalidLatency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty => write!(f, "a profile without a single batch size"),
            Self::Decreasing {
                rows,
                nanos,
                before,
            } => write!(
                f,
                "`{rows}` rows take `{nanos}` ns, less than `{before}` ns for one row less"
            ),
            Self::NotPositive { rows } => {
                write!(f, "the run time of `{rows}` rows is not a positive number")
            }
        }
    }
}

impl std::error::Error for InvalidLatency {}
