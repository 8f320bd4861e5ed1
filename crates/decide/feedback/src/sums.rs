//! Sums of scores by the hour, and the accuracy that they come to.

use serde::{Deserialize, Serialize};
use sextant_types::{
    Metric,
    interval::{Interval, Z, wilson},
};

/// What was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// What would have been right.
    Label,
    /// How good it was.
    Reward,
    /// Which of two answers was better.
    Preference,
}

/// Scores of rows, all together: enough for their mean and its interval.
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
    /// Of the answers of that hour.
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
    /// Counts a score.
    pub fn add(&mut self, score: f64) {
        self.merge(Self {
            rows: 1,
            sum: score,
            squares: score * score,
        });
    }

    /// Counts others.
    pub fn merge(&mut self, other: Self) {
        self.rows += other.rows;
        self.sum += other.sum;
        self.squares += other.squares;
    }

    /// Their mean with the interval that the central limit theorem gives it.
    fn mean(self) -> Interval {
        let n = self.rows.max(1) as f64;
        let value = self.sum / n;
        let variance = (self.squares / n - value * value).max(0.0) * n / (n - 1.0).max(1.0);
        // Of one row nothing is known of how much rows differ.
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

/// The online accuracy in the metric's own unit, with its 95 % interval: Wilson's where rows are right or wrong, as at
/// registration; that of the mean where errors are averaged, of which registration draws a bootstrap. `None` where no
/// row was scored.
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
        // The root keeps the order: that of an end of the interval is the end of the root's.
        Metric::RootMeanSquareError => Interval {
            value: bounded.value.sqrt(),
            lower: bounded.lower.sqrt(),
            upper: bounded.upper.sqrt(),
        },
        _ => bounded,
    })
}

/// The mean reward, or how often the answers were preferred, with its 95 % interval. Where all are 0 or 1, which shows in
/// squares that sum up to the same, it is Wilson's. `None` where there is none.
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
