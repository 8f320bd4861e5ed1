//! Answers with the same numbers for every record, and their score.
//!
//! A record has as many places as labels, and an answer has a number for each place. For errors, the best number at a
//! place has a closed form: the median of the labels for absolute errors, their mean for squared errors, and for
//! relative errors the median in which each label has the weight of its error. For directions it is the mean of the
//! labels' directions. For boxes there is no closed form: the guess is the median of each edge.

use sextant_types::Metric;

use super::Guess;
use crate::{
    score::mean_overlap,
    validation::{Expectation, Labels},
};

/// The score of the best answer with equal numbers; `None` for other metrics, and if records differ in their number of
/// labels.
pub(super) fn best(metric: Metric, labels: &[&Labels]) -> Option<Guess> {
    let records = Records::of(labels)?;
    let (value, by) = match metric {
        Metric::MeanAbsoluteError => {
            let answer = records.each_place(median);
            let error = records.mean(|label| mean_of(&answer, label, |a, b| (a - b).abs()));
            (error, "the labels' median")
        }
        Metric::RootMeanSquareError => {
            let answer = records.each_place(mean);
            let error = records.mean(|label| mean_of(&answer, label, |a, b| (a - b).powi(2)));
            (error.sqrt(), "the labels' mean")
        }
        Metric::MeanAbsolutePercentageError => {
            let answer = records.each_place(relative_median);
            let of = |a: f64, b: f64| (a - b).abs() / b.abs();
            let error = records.mean(|label| mean_of(&answer, label, of));
            (error, "the number with the least error")
        }
        Metric::Cosine => (records.common_direction(), "the labels' mean direction"),
        Metric::BoxOverlap => {
            let answer = records.each_place(median);
            (records.mean_overlap(&answer)?, "the labels' median box")
        }
        Metric::F1MultiLabel => (records.commonest_labels(), "the commonest labels"),
        _ => return None,
    };
    value.is_finite().then(|| Guess {
        value,
        by: by.to_owned(),
    })
}

/// The labels of records with the same number of labels each.
struct Records<'a> {
    groups: Vec<&'a [f64]>,
    places: usize,
}

impl<'a> Records<'a> {
    fn of(labels: &[&'a Labels]) -> Option<Self> {
        let places = labels.first()?.per_record;
        let numbers = |labels: &&'a Labels| match &labels.values {
            Expectation::Real(values) if labels.per_record == places => Some(&values[..]),
            _ => None,
        };
        let groups: Option<Vec<&[f64]>> = labels.iter().map(numbers).collect();
        let groups =
            groups.filter(|groups| places > 0 && groups.iter().any(|it| !it.is_empty()))?;
        Some(Self { groups, places })
    }

    fn iter(&self) -> impl Iterator<Item = &'a [f64]> {
        let groups = self.groups.iter();
        groups.flat_map(|group| group.chunks_exact(self.places))
    }

    /// An answer whose number at each place is made of the labels at that place.
    fn each_place(&self, answer: impl Fn(&mut [f64]) -> f64) -> Vec<f64> {
        let places = 0..self.places;
        let labels = |place| self.iter().map(move |record| record[place]);
        places
            .map(|place| answer(&mut labels(place).collect::<Vec<_>>()))
            .collect()
    }

    fn mean(&self, score: impl Fn(&[f64]) -> f64) -> f64 {
        mean(&mut self.iter().map(score).collect::<Vec<_>>())
    }

    /// The mean cosine between each label and the mean direction: the length of the mean of all directions.
    fn common_direction(&self) -> f64 {
        let mut sum = vec![0.0; self.places];
        for record in self.iter() {
            let length = length(record);
            let parts = sum.iter_mut().zip(record);
            parts.for_each(|(sum, value)| *sum += value / length);
        }
        length(&sum) / self.iter().count() as f64
    }

    /// F1 of the answer that has the same labels for every record: the most common labels, in the number that gives the
    /// best F1.
    fn commonest_labels(&self) -> f64 {
        let records = self.iter().count() as f64;
        let mut counts = self.each_place(|labels| labels.iter().sum());
        counts.sort_unstable_by(|a, b| b.total_cmp(a));
        let all: f64 = counts.iter().sum();
        let mut found = 0.0;
        let scores = counts.iter().zip(1_u32..).map(|(count, chosen)| {
            found += count;
            2.0 * found / (f64::from(chosen) * records + all)
        });
        scores.fold(0.0, f64::max)
    }

    /// Scored as models are: records without a box are skipped.
    fn mean_overlap(&self, answer: &[f64]) -> Option<f64> {
        let records = self.iter();
        let mut overlaps: Vec<f64> = records
            .filter_map(|record| mean_overlap(answer, record))
            .collect();
        (!overlaps.is_empty()).then(|| mean(&mut overlaps))
    }
}

fn mean(values: &mut [f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn median(values: &mut [f64]) -> f64 {
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

/// The number c with the least sum of |c - y| / |y|: half of the weights 1 / |y| are on either side of it.
fn relative_median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let half = values.iter().map(|it| 1.0 / it.abs()).sum::<f64>() / 2.0;
    let mut passed = 0.0;
    let found = values.iter().find(|it| {
        passed += 1.0 / it.abs();
        passed >= half
    });
    found.or(values.last()).copied().unwrap_or(f64::NAN)
}

fn mean_of(answer: &[f64], label: &[f64], error: impl Fn(f64, f64) -> f64) -> f64 {
    let errors = answer.iter().zip(label).map(|(a, b)| error(*a, *b));
    errors.sum::<f64>() / label.len() as f64
}

fn length(values: &[f64]) -> f64 {
    values.iter().map(|it| it * it).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(per_record: usize, values: &[f64]) -> Labels {
        Labels {
            per_record,
            values: Expectation::Real(values.to_vec()),
        }
    }

    fn of(metric: Metric, per_record: usize, values: &[f64]) -> Option<Guess> {
        best(metric, &[&labels(per_record, values)])
    }

    fn is_near(guess: Option<Guess>, value: f64, by: &str) {
        let guess = guess.expect("a guess");
        assert!((guess.value - value).abs() < 1e-12, "{guess:?}");
        assert!(guess.by.contains(by), "{guess:?}");
    }

    /// Checks that no number of a fine grid beats the one that is called the best.
    fn nothing_beats(metric: Metric, values: &[f64], score: impl Fn(f64) -> f64) {
        let best = of(metric, 1, values).expect("a guess").value;
        let grid = (-2000..2000).map(|at| f64::from(at) / 100.0);
        let least = grid.map(score).fold(f64::INFINITY, f64::min);
        assert!(best <= least + 1e-9, "{metric:?}: {best} {least}");
    }

    #[test]
    fn absolute_errors_are_least_at_the_median() {
        let values = [1.0, 2.0, 4.0, 9.0, -3.0];
        is_near(of(Metric::MeanAbsoluteError, 1, &values), 3.0, "median");
        nothing_beats(Metric::MeanAbsoluteError, &values, |c| {
            values.iter().map(|y| (c - y).abs()).sum::<f64>() / 5.0
        });
        // Each place has a median of its own.
        let two = of(
            Metric::MeanAbsoluteError,
            2,
            &[0.0, 10.0, 0.0, 12.0, 0.0, 14.0],
        );
        is_near(two, 2.0 / 3.0, "median");
    }

    #[test]
    fn squared_errors_are_least_at_the_mean() {
        let values = [1.0, 2.0, 4.0, 9.0, -3.0];
        let spread = values.iter().map(|y| (y - 2.6f64).powi(2)).sum::<f64>() / 5.0;
        is_near(
            of(Metric::RootMeanSquareError, 1, &values),
            spread.sqrt(),
            "mean",
        );
    }

    #[test]
    fn relative_errors_are_least_near_the_small_labels() {
        let values = [1.0, 2.0, 8.0, 10.0, -4.0];
        nothing_beats(Metric::MeanAbsolutePercentageError, &values, |c| {
            values.iter().map(|y| (c - y).abs() / y.abs()).sum::<f64>() / 5.0
        });
        // A label that is 0 has no relative error.
        assert_eq!(
            of(Metric::MeanAbsolutePercentageError, 1, &[0.0, 1.0]),
            None
        );
    }

    #[test]
    fn directions_are_compared_with_their_mean() {
        is_near(
            of(Metric::Cosine, 2, &[3.0, 0.0, 0.5, 0.0]),
            1.0,
            "direction",
        );
        let right_angle = of(Metric::Cosine, 2, &[7.0, 0.0, 0.0, 1.0]);
        is_near(right_angle, 0.5f64.sqrt(), "direction");
        assert_eq!(of(Metric::Cosine, 2, &[0.0, 0.0, 1.0, 0.0]), None);
    }

    #[test]
    fn boxes_are_compared_with_the_median_box() {
        let still = [10.0, 10.0, 20.0, 20.0];
        let values = [still, still, [10.0, 10.0, 20.0, 15.0]].concat();
        is_near(of(Metric::BoxOverlap, 4, &values), 2.5 / 3.0, "median box");
        // A label without an area is no box.
        let values = [still, [0.0; 4], still].concat();
        is_near(of(Metric::BoxOverlap, 4, &values), 1.0, "median box");
        assert_eq!(of(Metric::BoxOverlap, 4, &[0.0; 8]), None);
    }

    #[test]
    fn groups_of_one_length_are_one_set() {
        let (a, b) = (labels(1, &[1.0, 2.0]), labels(1, &[3.0]));
        let guess = best(Metric::MeanAbsoluteError, &[&a, &b]);
        is_near(guess, 2.0 / 3.0, "median");
        let longer = labels(2, &[3.0, 4.0]);
        assert_eq!(best(Metric::MeanAbsoluteError, &[&a, &longer]), None);
    }

    #[test]
    fn labels_of_which_a_record_may_have_several_are_the_commonest() {
        // Three records with three labels, which two, one and no records have.
        let values = [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0];
        is_near(
            of(Metric::F1MultiLabel, 3, &values),
            4.0 / 6.0,
            "commonest labels",
        );
    }

    #[test]
    fn found_boxes_and_metrics_of_the_owners_have_no_guess() {
        for metric in [Metric::MeanAveragePrecision, Metric::Custom] {
            assert_eq!(of(metric, 5, &[0.0, 0.0, 1.0, 1.0, 0.0]), None);
        }
    }
}
