//! Sums of scores by the hour, and the accuracy that follows from them.

use serde::{Deserialize, Serialize};
use sextant_types::{
    Metric,
    interval::{Interval, Z, wilson},
};

/// The kind of feedback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The right answer.
    Label,
    /// The quality of the answer.
    Reward,
    /// Which of two answers was better.
    Preference,
}

/// Sums of the scores of rows, which suffice for their mean and its interval.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sums {
    /// Rows with a score.
    pub rows: u64,
    /// The sum of the scores.
    pub sum: f64,
    /// The sum of their squares.
    pub squares: f64,
}

/// The scores of an hour.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hour {
    /// Hours since the Unix epoch.
    pub hour: u64,
    /// The sums for the answers of that hour.
    pub sums: Sums,
}

// === impl Kind ===

impl Kind {
    /// `label`, `reward` or `preference`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Label => "label",
            Self::Reward => "reward",
            Self::Preference => "preference",
        }
    }

    /// The inverse of [`Self::name`].
    pub fn parse(name: &str) -> Option<Self> {
        let all = [Self::Label, Self::Reward, Self::Preference];
        all.into_iter().find(|kind| kind.name() == name)
    }
}

// === impl Sums ===

impl Sums {
    /// Adds a score.
    pub fn add(&mut self, score: f64) {
        self.merge(Self {
            rows: 1,
            sum: score,
            squares: score * score,
        });
    }

    /// Adds other sums.
    pub fn merge(&mut self, other: Self) {
        self.rows += other.rows;
        self.sum += other.sum;
        self.squares += other.squares;
    }

    /// The mean of the scores with the interval from the central limit theorem.
    fn mean(self) -> Interval {
        let n = self.rows.max(1) as f64;
        let value = self.sum / n;
        let variance = (self.squares / n - value * value).max(0.0) * n / (n - 1.0).max(1.0);
        // With one row, the variation between rows is not known.
        let half = match self.rows {
            0 | 1 => f64::INFINITY,
            _ => Z * (variance / n).sqrt(),
        };
        Interval {
            value,
            lower: value - half,
            upper: value + half,
        }
    }
}

/// The online accuracy in the metric's own unit, with its 95 % interval. If rows are right or wrong it is Wilson's
/// interval, as at registration. If errors are averaged it is that of the mean; registration uses a bootstrap. `None`
/// if no row was scored.
pub fn online(metric: Metric, sums: Sums) -> Option<Interval> {
    if sums.rows == 0 {
        return None;
    }
    if metric.is_share_of_records() || metric == Metric::F1Micro {
        return Some(wilson(sums.sum, sums.rows));
    }
    let mean = sums.mean();
    let bounded = Interval {
        lower: mean.lower.max(0.0),
        ..mean
    };
    Some(match metric {
        // The square root preserves order, so it maps the ends of the interval to the ends of the root's interval.
        Metric::RootMeanSquareError => Interval {
            value: bounded.value.sqrt(),
            lower: bounded.lower.sqrt(),
            upper: bounded.upper.sqrt(),
        },
        _ => bounded,
    })
}

/// The mean reward, or how often the answers were preferred, with its 95 % interval. If all values are 0 or 1, which
/// shows in equal sums of values and squares, it is Wilson's interval. `None` if there is none.
pub fn rewarded(sums: Sums) -> Option<Interval> {
    match sums.rows {
        0 => None,
        rows if sums.sum == sums.squares && sums.sum <= rows as f64 => Some(wilson(sums.sum, rows)),
        _ => Some(sums.mean()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(scores: &[f64]) -> Sums {
        let mut sums = Sums::default();
        scores.iter().for_each(|score| sums.add(*score));
        sums
    }

    #[test]
    fn shares_have_the_interval_of_the_registration() {
        let scores: Vec<f64> = (0..100).map(|at| f64::from(u8::from(at < 90))).collect();
        assert_eq!(online(Metric::Top1, of(&scores)), Some(wilson(90.0, 100)));
        assert_eq!(rewarded(of(&scores)), Some(wilson(90.0, 100)));
        assert_eq!(online(Metric::Top1, Sums::default()), None);
    }

    #[test]
    fn means_have_their_standard_error() {
        let interval = online(Metric::MeanAbsoluteError, of(&[1.0, 2.0, 3.0, 4.0])).unwrap();
        let error = (5.0_f64 / 3.0 / 4.0).sqrt();
        assert!((interval.value - 2.5).abs() < 1e-12);
        assert!((interval.upper - 2.5 - Z * error).abs() < 1e-12);
        let root = online(Metric::RootMeanSquareError, of(&[4.0, 4.0])).unwrap();
        assert_eq!((root.value, root.lower, root.upper), (2.0, 2.0, 2.0));
        let one = online(Metric::MeanAbsoluteError, of(&[2.0])).unwrap();
        assert_eq!((one.value, one.lower, one.upper), (2.0, 0.0, f64::INFINITY));
    }
}
