//! 95 % intervals of counts.

/// Two-sided 95 % quantile of the normal distribution.
pub const Z: f64 = 1.959_963_984_540_054;

/// A point estimate and its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// Lower end.
    pub lower: f64,
    /// Upper end.
    pub upper: f64,
}

/// Wilson's score interval for `successes` out of `trials`. Successes may be fractional (shares of
/// a record's labels), because records, not labels, count as independent trials.
pub fn wilson(successes: f64, trials: u64) -> Interval {
    if trials == 0 {
        return Interval {
            value: 0.0,
            lower: 0.0,
            upper: 1.0,
        };
    }
    let n = trials as f64;
    let p = successes / n;
    let z2 = Z * Z;
    let denominator = 1.0 + z2 / n;
    let centre = (p + z2 / (2.0 * n)) / denominator;
    let half = Z / denominator * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).max(0.0).sqrt();
    Interval {
        value: p,
        lower: if p <= 0.0 {
            0.0
        } else {
            (centre - half).clamp(0.0, p)
        },
        upper: if p >= 1.0 {
            1.0
        } else {
            (centre + half).clamp(p, 1.0)
        },
    }
}
