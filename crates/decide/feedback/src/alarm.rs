//! Alarms about models that are worse than they were measured, or that become worse.
//!
//! Velox (CIDR 2015, section 4.3; Crankshaw's thesis, 2.6) retrains when a model's loss exceeds a limit, or grows
//! faster than a limit. Both conditions are reported here with their statistics: an alarm says that chance alone does
//! not explain the observation.

use sextant_types::Accuracy;

use crate::{Hour, Sums, online};

/// The fewest scored rows for an alarm.
const FEWEST_ROWS: u64 = 100;

/// Hours of the window.
const WINDOW_HOURS: u64 = 24;

/// The fewest hours with scores for a slope.
const FEWEST_HOURS: usize = 4;

/// The number of standard errors that a 95 % interval reaches if the spread is estimated from the points themselves
/// (Student's t), by the number of points beyond [`FEWEST_HOURS`], up to [`WINDOW_HOURS`].
const STUDENT: [f64; 21] = [
    4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
    2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074,
];

/// The largest drop within a window that is accepted, as a share of the registered value.
pub const MOST_DROP: f64 = 0.05;

/// The kind of alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlarmKind {
    /// The model is worse than it was measured at registration.
    Level,
    /// The model is becoming worse.
    Slope,
}

/// An alarm: the model should be trained again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Alarm {
    /// The kind of alarm.
    pub kind: AlarmKind,
    /// The observation, in the metric's own unit: the better end of the online interval, or the change in a window.
    pub seen: f64,
    /// The limit, in the same unit: the worse end of the registered interval, or the accepted change.
    pub limit: f64,
    /// Scored rows of the window.
    pub rows: u64,
}

// === impl AlarmKind ===

impl AlarmKind {
    /// `level` or `slope`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Level => "level",
            Self::Slope => "slope",
        }
    }
}

/// The alarms for a model by the scores of its labels, over the last day before `now_hour`, in hours since the Unix
/// epoch. `hours` are in order.
///
/// *Level*: even the better end of the online interval is worse than the worse end of the registered one. *Slope*: the
/// line through the hours' means, weighted by rows, falls by more than [`MOST_DROP`] of the registered value in a
/// window, by the better end of its own 95 % interval.
pub fn alarms(registered: &Accuracy, hours: &[Hour], now_hour: u64) -> Vec<Alarm> {
    let from = now_hour.saturating_sub(WINDOW_HOURS - 1);
    let recent: Vec<Hour> = hours
        .iter()
        .filter(|hour| (from..=now_hour).contains(&hour.hour) && hour.sums.rows > 0)
        .copied()
        .collect();
    let mut all = Sums::default();
    recent.iter().for_each(|hour| all.merge(hour.sums));
    if all.rows < FEWEST_ROWS {
        return Vec::new();
    }
    let found = [level(registered, all), slope(registered, &recent, all.rows)];
    found.into_iter().flatten().collect()
}

fn level(registered: &Accuracy, all: Sums) -> Option<Alarm> {
    let metric = registered.metric;
    let interval = online(metric, all)?;
    let (seen, limit) = match metric.higher_is_better() {
        true => (interval.upper, registered.lower),
        false => (interval.lower, registered.upper),
    };
    let is_worse = metric.quality(seen) < metric.quality(limit);
    is_worse.then_some(Alarm {
        kind: AlarmKind::Level,
        seen,
        limit,
        rows: all.rows,
    })
}

fn slope(registered: &Accuracy, hours: &[Hour], rows: u64) -> Option<Alarm> {
    let metric = registered.metric;
    if hours.len() < FEWEST_HOURS {
        return None;
    }
    let points: Option<Vec<Point>> = hours.iter().map(|hour| Point::of(metric, hour)).collect();
    let (slope, error) = line(&points?)?;
    let in_window = WINDOW_HOURS as f64;
    // The end of the interval that is in the model's favour.
    let reach = STUDENT[(hours.len() - FEWEST_HOURS).min(STUDENT.len() - 1)];
    let seen = (slope + reach * error) * in_window;
    let limit = -MOST_DROP * registered.value.abs();
    (seen < limit).then_some(Alarm {
        kind: AlarmKind::Slope,
        seen: metric.quality(seen),
        limit: metric.quality(limit),
        rows,
    })
}

/// The quality in an hour; larger is better.
struct Point {
    at: f64,
    quality: f64,
    weight: f64,
}

impl Point {
    fn of(metric: sextant_types::Metric, hour: &Hour) -> Option<Self> {
        let value = online(metric, hour.sums)?.value;
        Some(Self {
            at: hour.hour as f64,
            quality: metric.quality(value),
            weight: hour.sums.rows as f64,
        })
    }
}

/// The slope per hour of the weighted least-squares line, and its standard error.
fn line(points: &[Point]) -> Option<(f64, f64)> {
    let sum = |of: &dyn Fn(&Point) -> f64| points.iter().map(|it| it.weight * of(it)).sum::<f64>();
    let weight = sum(&|_| 1.0);
    let (at, quality) = (sum(&|it| it.at) / weight, sum(&|it| it.quality) / weight);
    let spread = sum(&|it| (it.at - at).powi(2));
    if spread <= 0.0 {
        return None;
    }
    let slope = sum(&|it| (it.at - at) * (it.quality - quality)) / spread;
    let left = sum(&|it| (it.quality - quality - slope * (it.at - at)).powi(2));
    let error = (left / (points.len() as f64 - 2.0) / spread).sqrt();
    Some((slope, error))
}

#[cfg(test)]
mod tests {
    use sextant_types::{AccuracyKind, Metric};

    use super::*;

    fn registered() -> Accuracy {
        Accuracy {
            kind: AccuracyKind::Accuracy,
            metric: Metric::Top1,
            value: 0.90,
            lower: 0.88,
            upper: 0.92,
            records: 1000,
            evaluation_batch: 1,
        }
    }

    /// Hours of 100 rows each, `right` of which are right.
    fn hours(right: &[u32]) -> Vec<Hour> {
        let hour = |(at, right): (usize, &u32)| Hour {
            hour: 1000 + at as u64,
            sums: Sums {
                rows: 100,
                sum: f64::from(*right),
                squares: f64::from(*right),
            },
        };
        right.iter().enumerate().map(hour).collect()
    }

    fn kinds(right: &[u32]) -> Vec<&'static str> {
        let hours = hours(right);
        let now = 1000 + right.len() as u64 - 1;
        let found = alarms(&registered(), &hours, now);
        found.iter().map(|alarm| alarm.kind.name()).collect()
    }

    #[test]
    fn a_model_that_is_as_good_as_it_was_measured_raises_none() {
        assert!(kinds(&[90, 89, 91, 90, 88, 92]).is_empty());
        assert!(kinds(&[86, 87, 86, 88]).is_empty(), "chance explains that");
    }

    #[test]
    fn a_worse_level_is_told() {
        assert_eq!(kinds(&[80, 80, 80, 80, 80, 80]), ["level"]);
        assert!(kinds(&[70]).contains(&"level"));
    }

    #[test]
    fn a_steady_fall_is_told_before_the_level_is_low() {
        assert_eq!(kinds(&[97, 95, 94, 92, 90, 89, 87, 86]), ["slope"]);
    }

    #[test]
    fn a_few_hours_that_fall_by_chance_are_no_slope() {
        for right in [[93, 91, 91, 88], [92, 91, 89, 89], [93, 92, 89, 89]] {
            assert!(kinds(&right).is_empty(), "{right:?}");
        }
    }

    #[test]
    fn too_few_rows_say_nothing() {
        let mut few = hours(&[10]);
        few[0].sums.rows = 99;
        assert!(alarms(&registered(), &few, 1000).is_empty());
    }

    #[test]
    fn what_is_older_than_a_day_is_passed_over() {
        let hours = hours(&[10, 10, 10]);
        assert!(alarms(&registered(), &hours, 1000 + 26).is_empty());
    }

    #[test]
    fn errors_that_grow_are_told_as_accuracies_that_fall() {
        let registered = Accuracy {
            metric: Metric::MeanAbsoluteError,
            value: 1.0,
            lower: 0.9,
            upper: 1.1,
            ..registered()
        };
        let hour = |at: u64, mean: f64| Hour {
            hour: at,
            sums: Sums {
                rows: 100,
                sum: 100.0 * mean,
                squares: 100.0 * (mean * mean + 0.01),
            },
        };
        let found = alarms(&registered, &[hour(5, 1.5)], 5);
        assert_eq!(found.len(), 1);
        assert!(found[0].seen > 1.4 && found[0].limit == 1.1, "{found:?}");
        let growing: Vec<Hour> = (0..6).map(|at| hour(at, 0.8 + 0.02 * at as f64)).collect();
        let found = alarms(&registered, &growing, 5);
        assert_eq!(found[0].kind, AlarmKind::Slope);
        assert!(found[0].seen > 0.0, "{found:?}");
    }
}
