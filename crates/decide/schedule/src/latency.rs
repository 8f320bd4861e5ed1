//! How long a batch runs, by rows: the profile in the form that schedulers read.

use std::sync::Arc;

use super::Nanos;

/// Run time by rows: `nanos[i]` for `i + 1` rows, never decreasing, with a straight line beyond.
///
/// Both directions cost O(1) on a table that is nearly a line, and O(log rows) otherwise. This matters because a
/// scheduler asks with every request how many rows still fit. Clones share the table, so that many queues of one
/// profile read the same few cache lines.
#[derive(Debug, Clone, PartialEq)]
pub struct LatencyTable {
    nanos: Arc<[Nanos]>,
    /// Run time of one row, which is asked for with every request.
    first: Nanos,
    /// Added per row beyond the table, at least 1.
    slope: Nanos,
    /// `1 / slope`.
    per_slope: f64,
}

/// Why a profile cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvalidLatency {
    /// It has no row.
    Empty,
    /// A larger batch takes less time than a smaller one.
    Decreasing {
        /// Rows of the batch that is too fast.
        rows: u32,
        /// Its run time, ns.
        nanos: Nanos,
        /// Run time of a batch of one row less, ns.
        before: Nanos,
    },
    /// A run time of zero, or a coefficient that is negative or not a number.
    NotPositive {
        /// Rows of the batch.
        rows: u32,
    },
}

impl LatencyTable {
    /// Fixed cost of an invocation, ns (Symphony's beta): the table's line at zero rows.
    pub fn fixed_part(&self) -> f64 {
        let last = self.measured_rows().max(2);
        let (one, many) = (self.of(1) as f64, self.of(last) as f64);
        let per_row = (many - one) / f64::from(last - 1);
        (one - per_row).max(0.0)
    }

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
        Ok(Self {
            nanos: nanos.into(),
            first,
            slope,
            per_slope: 1.0 / slope as f64,
        })
    }

    /// A table of 1 to `rows` rows from `of`, in which fewer rows never take longer. A batch that seems faster than a
    /// smaller one gets the smaller one's time, and nothing takes less than a nanosecond.
    pub fn rising(rows: u32, mut of: impl FnMut(u32) -> Nanos) -> Self {
        let mut longest = 1;
        let nanos = (1..=rows.max(1)).map(|rows| {
            longest = of(rows).max(longest);
            longest
        });
        Self::new(nanos.collect()).expect("positive and never decreasing by the lines above")
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

    /// Expected run time of `rows` rows, ns. Zero rows take as long as one.
    #[inline]
    pub fn of(&self, rows: u32) -> Nanos {
        if rows <= 1 {
            return self.first;
        }
        let at = rows as usize - 1;
        match self.nanos.get(at) {
            Some(nanos) => *nanos,
            None => self.beyond(at),
        }
    }

    /// The most rows that run within `budget` ns, at most `cap`; 0 if not even one does.
    #[inline]
    pub fn rows_within(&self, budget: Nanos, cap: u32) -> u32 {
        if cap == 0 || self.of(cap) <= budget {
            return cap;
        }
        let first = self.first;
        if budget < first {
            return 0;
        }
        // On a line the guess is right, or off by one because of rounding.
        let guess = ((budget - first) as f64 * self.per_slope) as u32 + 1;
        let guess = guess.clamp(1, cap - 1);
        match (self.of(guess) <= budget, self.of(guess + 1) <= budget) {
            (true, false) => guess,
            (true, true) => self.search(budget, guess + 1, cap),
            (false, _) => self.search(budget, 1, guess),
        }
    }

    /// Rows in the measured part.
    pub fn measured_rows(&self) -> u32 {
        self.nanos.len() as u32
    }

    /// Searches between `fits` rows, which run within `budget`, and `late` rows, which do not.
    fn search(&self, budget: Nanos, mut fits: u32, mut late: u32) -> u32 {
        while late - fits > 1 {
            let middle = fits + (late - fits) / 2;
            if self.of(middle) <= budget {
                fits = middle;
            } else {
                late = middle;
            }
        }
        fits
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
