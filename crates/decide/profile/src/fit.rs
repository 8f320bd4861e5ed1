//! Fits a line to measured run times.
//!
//! Least squares weighs every point by its relative error: jitter grows with the run time, and a
//! schedule that is 5 % wrong on one row is as wrong as on a hundred. The robust method is Theil
//! and Sen's median of slopes, over the median of each size. It has no constant that would have to
//! fit the noise (Huber's loss needs a scale). A size may have been disturbed in up to half of its
//! runs, and a quarter of the sizes may lie off the line altogether, as happens with kernels that
//! are chosen by size.

use sextant_schedule::{InvalidLatency, LatencyTable, Nanos};

use super::{BySize, InvalidProfile, Measurement, by_size, median};

/// Run time by rows as a line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// Added per row, ns, at least 0.
    pub alpha: f64,
    /// Fixed cost of an invocation, ns, at least 0.
    pub beta: f64,
}

/// How a line is fitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    /// Least squares of relative errors: the best method for clean points.
    LeastSquares,
    /// Median of slopes between the sizes' medians, which outliers hardly move.
    #[default]
    TheilSen,
}

/// Errors of predictions, as shares of the measured time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Errors {
    /// Mean of the absolute errors.
    pub mean: f64,
    /// The largest.
    pub worst: f64,
    /// The number of predictions that were compared.
    pub points: usize,
}

/// A fitted line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// Fitted to all points.
    pub line: Line,
    /// Errors on points of sizes that were left out of the fit, each size once in five folds;
    /// `None` with fewer than three sizes.
    pub held_out: Option<Errors>,
}

/// Fits a line with non-negative coefficients.
///
/// # Errors
/// When there are no two sizes, or a measurement is without rows or time.
pub fn fit(points: &[Measurement], method: Method) -> Result<Fit, InvalidProfile> {
    let sizes = by_size(points)?;
    if let [(rows, _)] = sizes[..] {
        return Err(InvalidProfile::OneSize { rows });
    }
    Ok(Fit {
        line: line(&sizes, method),
        held_out: (sizes.len() >= 3).then(|| held_out(&sizes, method)),
    })
}

// === impl Line ===

impl Line {
    /// Run time of `rows` rows, ns.
    pub fn nanos(&self, rows: u32) -> f64 {
        self.alpha * f64::from(rows) + self.beta
    }

    /// The line as a table up to `max_rows`.
    ///
    /// # Errors
    /// When both coefficients are zero or one is not a number.
    pub fn table(&self, max_rows: u32) -> Result<LatencyTable, InvalidLatency> {
        LatencyTable::linear(self.alpha / 1e6, self.beta / 1e6, max_rows)
    }

    /// The most rows that run within `budget` ns on the line; 0 if none do.
    pub fn rows_within(&self, budget: Nanos) -> u32 {
        let rest = budget as f64 - self.beta;
        if rest < self.alpha || rest <= 0.0 {
            return 0;
        }
        // The cast saturates, also for the infinity of a flat line.
        (rest / self.alpha) as u32
    }
}

fn line(sizes: &BySize, method: Method) -> Line {
    match method {
        Method::LeastSquares => least_squares(sizes),
        Method::TheilSen => theil_sen(sizes),
    }
}

/// Minimises the sum of ((alpha x + beta - y) / y)^2, with coefficients of at least 0.
fn least_squares(sizes: &BySize) -> Line {
    let points = || {
        let pairs = |(rows, times): &'_ (u32, Vec<f64>)| {
            let rows = f64::from(*rows);
            times
                .iter()
                .map(move |time| (rows / time, 1.0 / time))
                .collect::<Vec<_>>()
        };
        sizes.iter().flat_map(pairs)
    };
    // With u = x / y and v = 1 / y the model is alpha u + beta v = 1.
    let sum = |of: fn(f64, f64) -> f64| points().map(|(u, v)| of(u, v)).sum::<f64>();
    let (uu, uv, vv) = (sum(|u, _| u * u), sum(|u, v| u * v), sum(|_, v| v * v));
    let (u, v) = (sum(|u, _| u), sum(|_, v| v));
    let determinant = uu * vv - uv * uv;
    let (alpha, beta) = (
        (u * vv - v * uv) / determinant,
        (v * uu - u * uv) / determinant,
    );
    if !(alpha.is_finite() && beta.is_finite()) || alpha < 0.0 {
        return Line {
            alpha: 0.0,
            beta: v / vv,
        };
    }
    if beta < 0.0 {
        return Line {
            alpha: u / uu,
            beta: 0.0,
        };
    }
    Line { alpha, beta }
}

fn theil_sen(sizes: &BySize) -> Line {
    let middles: Vec<(f64, f64)> = sizes
        .iter()
        .map(|(rows, times)| (f64::from(*rows), median(times.clone())))
        .collect();
    let slopes = middles.iter().enumerate().flat_map(|(at, (x, y))| {
        middles[at + 1..]
            .iter()
            .map(move |(other, time)| (time - y) / (other - x))
    });
    let alpha = median(slopes.collect()).max(0.0);
    let beta = median(middles.iter().map(|(x, y)| y - alpha * x).collect());
    if beta < 0.0 {
        let alpha = median(middles.iter().map(|(x, y)| y / x).collect());
        return Line { alpha, beta: 0.0 };
    }
    Line { alpha, beta }
}

/// Leaves out every fifth size in turn. Whole sizes are left out, because a point of a known size
/// says little about the line between sizes.
fn held_out(sizes: &BySize, method: Method) -> Errors {
    let folds = sizes.len().min(5);
    let mut errors = Errors::default();
    for fold in 0..folds {
        let (out, rest): (Vec<_>, Vec<_>) = sizes
            .iter()
            .cloned()
            .enumerate()
            .partition(|(at, _)| at % folds == fold);
        let rest = rest.into_iter().map(|(_, size)| size).collect();
        let line = line(&rest, method);
        for (_, (rows, times)) in out {
            for time in times {
                let error = (line.nanos(rows) - time).abs() / time;
                errors.mean += error;
                errors.worst = errors.worst.max(error);
                errors.points += 1;
            }
        }
    }
    errors.mean /= errors.points.max(1) as f64;
    errors
}
