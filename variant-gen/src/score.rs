//! Scoring outputs against labels.
//!
//! `top1` is `topk` with k = 1: a label counts as found when fewer than k classes come before it,
//! where a class comes before another with a greater value, or with an equal value and a lower
//! index (so the first of equal maxima is the arg-max, as in NumPy). A row with NaN finds nothing.
//! `exact` asks for all elements of a record to be equal. `mae` averages |output - label| over a
//! record, in double precision, then over the records. `log_loss` takes a row for probabilities where it is
//! a distribution, and for logits otherwise. docs/models.md has the formula of each.

use sextant_types::{Accuracy, Data, Metric, Tensor, convert};

use crate::{
    interval::Interval,
    validation::{Expectation, Invalid, Labels},
};

mod evidence;
mod values;

use evidence::Evidence;
pub(crate) use values::reals;
use values::{equal_plain, equal_records};

/// Collects the score of one variant, batch by batch.
#[derive(Debug)]
pub struct Scorer<'a> {
    metric: Metric,
    labels: &'a Labels,
    output: &'a str,
    records: usize,
    evidence: Evidence,
}

/// Why an output cannot be scored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScoreError {
    /// It does not fit the labels.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// It is not a number anywhere a number is needed.
    #[error(
        "output `{output}` of record `{record}`, or its label, makes no finite `{metric}`: leave the record out \
         or take another metric"
    )]
    NotFinite {
        /// The scored output.
        output: String,
        /// The metric.
        metric: String,
        /// Number of the record, from 1.
        record: usize,
    },
}

impl<'a> Scorer<'a> {
    /// A scorer for an output, which is called `output` in messages.
    pub fn new(metric: Metric, labels: &'a Labels, output: &'a str) -> Self {
        Self {
            metric,
            labels,
            output,
            records: 0,
            evidence: Evidence::of(metric, labels.per_record),
        }
    }

    /// Scores the next `records` records.
    ///
    /// # Errors
    /// When the output does not fit the labels, or an error cannot be given.
    pub fn push(&mut self, output: &Tensor, records: usize) -> Result<(), ScoreError> {
        let per_record = self.labels.per_record;
        let at = self.records * per_record..(self.records + records) * per_record;
        let labels = self.labels;
        match &labels.values {
            Expectation::Classes(classes) => {
                let wanted = classes.get(at).unwrap_or_default();
                self.push_classes(output, wanted, records)?;
            }
            Expectation::Exact(labels) => {
                let same = self.compare(output, labels, records)?;
                self.add(same);
            }
            Expectation::Real(values) => {
                let wanted = values.get(at).unwrap_or_default();
                self.push_errors(output, wanted, records)?;
            }
        }
        self.records += records;
        Ok(())
    }

    /// The accuracy over everything that was pushed, with its interval.
    pub fn finish(self, evaluation_batch: u32) -> Accuracy {
        let Interval {
            value,
            lower,
            upper,
        } = self.evidence.interval(self.metric);
        Accuracy {
            metric: self.metric,
            value,
            lower,
            upper,
            records: self.records as u64,
            evaluation_batch,
        }
    }

    /// Shares or errors of records.
    fn add(&mut self, scores: impl IntoIterator<Item = f64>) {
        if let Evidence::Scores(all) = &mut self.evidence {
            all.extend(scores);
        }
    }

    fn push_classes(
        &mut self,
        output: &Tensor,
        wanted: &[u64],
        records: usize,
    ) -> Result<(), ScoreError> {
        let classes = match output.len().checked_div(wanted.len()) {
            Some(columns) if columns * wanted.len() == output.len() => columns.max(1),
            _ => return Err(self.misshapen(output, records).into()),
        };
        let values = reals(output).ok_or_else(|| self.misshapen(output, records))?;
        let rows = values.chunks_exact(classes);
        let labelled: Vec<(&[f64], usize)> = rows
            .zip(wanted)
            .map(|(row, label)| (row, usize::try_from(*label).unwrap_or(usize::MAX)))
            .collect();
        // The area is of the second class, of which one column may speak alone.
        let known = if self.metric == Metric::Auc {
            classes.max(2)
        } else {
            classes
        };
        if let Some(at) = labelled.iter().position(|(_, label)| *label >= known) {
            return Err(self.no_such_class(at, labelled[at].1, classes).into());
        }
        let at = self.records * self.labels.per_record;
        match &mut self.evidence {
            Evidence::Classes(all) => {
                let of_row = |(row, label): &(&[f64], usize)| (best(row) as u32, *label as u32);
                all.extend(labelled.iter().map(of_row));
            }
            Evidence::Ranks(all) => {
                let of_row = |(row, label): &(&[f64], usize)| (row[row.len() - 1], *label == 1);
                all.extend(labelled.iter().map(of_row));
                if let Some(wrong) = labelled
                    .iter()
                    .position(|(row, _)| row[row.len() - 1].is_nan())
                {
                    return Err(self.not_finite(at + wrong));
                }
            }
            _ => self.push_found(&labelled)?,
        }
        Ok(())
    }

    /// Whether labels were found among the best, or how unlikely they were.
    fn push_found(&mut self, labelled: &[(&[f64], usize)]) -> Result<(), ScoreError> {
        let k = match self.metric {
            Metric::TopK(k) => k as usize,
            _ => 1,
        };
        let score = |(row, label): &(&[f64], usize)| match self.metric {
            Metric::LogLoss => -probability(row, *label).ln(),
            _ => f64::from(u8::from(is_among_best(row, *label, k))),
        };
        let scores: Vec<f64> = labelled.iter().map(score).collect();
        if let Some(wrong) = scores.iter().position(|score| !score.is_finite()) {
            let per_record = self.labels.per_record.max(1);
            return Err(self.not_finite(self.records + wrong / per_record));
        }
        let of_records = scores.chunks(self.labels.per_record.max(1));
        let means: Vec<f64> = of_records.map(mean).collect();
        self.add(means);
        Ok(())
    }

    fn push_errors(
        &mut self,
        output: &Tensor,
        wanted: &[f64],
        records: usize,
    ) -> Result<(), ScoreError> {
        let values = reals(output).filter(|values| values.len() == wanted.len());
        let values = values.ok_or_else(|| self.misshapen(output, records))?;
        let per_record = self.labels.per_record.max(1);
        let rows = values.chunks(per_record).zip(wanted.chunks(per_record));
        for (at, (have, want)) in rows.enumerate() {
            let squared = squared_error(have, want);
            let score = match self.metric {
                Metric::RootMeanSquareError => squared / have.len() as f64,
                Metric::R2 => squared,
                Metric::Cosine => cosine(have, want),
                Metric::MeanAbsolutePercentageError => relative_error(have, want),
                _ => absolute_error(have, want),
            };
            if !score.is_finite() {
                return Err(self.not_finite(self.records + at));
            }
            match &mut self.evidence {
                Evidence::Scores(all) => all.push(score),
                Evidence::Squares(all, _) => {
                    all.push([
                        score,
                        want.iter().sum(),
                        want.iter().map(|it| it * it).sum(),
                    ]);
                }
                Evidence::Classes(_) | Evidence::Ranks(_) => {}
            }
        }
        Ok(())
    }

    fn not_finite(&self, record: usize) -> ScoreError {
        ScoreError::NotFinite {
            output: self.output.to_owned(),
            metric: self.metric.name(),
            record: record + 1,
        }
    }

    fn compare(
        &self,
        output: &Tensor,
        labels: &Tensor,
        records: usize,
    ) -> Result<Vec<f64>, ScoreError> {
        let wanted = labels
            .slice_rows(self.records, records)
            .map_err(|_| self.misshapen(output, records))?;
        if output.data_type() != wanted.data_type() || output.len() != wanted.len() {
            return Err(self.misshapen(output, records).into());
        }
        let per_record = self.labels.per_record.max(1);
        let same = match (output.data(), wanted.data()) {
            (Data::Strings(have), Data::Strings(want)) => equal_records(have, want, per_record),
            _ => match (reals(output), reals(&wanted)) {
                (Some(have), Some(want)) if convert::is_float(output.data_type()) => {
                    equal_records(&have, &want, per_record)
                }
                _ => equal_plain(output, &wanted, per_record),
            },
        };
        Ok(same)
    }

    fn misshapen(&self, output: &Tensor, records: usize) -> Invalid {
        Invalid::OutputShape {
            output: self.output.to_owned(),
            records,
            given: output.shape().to_vec(),
            expected: format!("`{}` labels per record", self.labels.per_record),
        }
    }

    fn no_such_class(&self, index: usize, label: usize, classes: usize) -> Invalid {
        Invalid::Label {
            record: self.records * self.labels.per_record + index + 1,
            value: label.to_string(),
            why: format!("output `{}` has `{classes}` classes", self.output),
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The first of the greatest.
fn best(row: &[f64]) -> usize {
    let greater = |best: usize, at: usize| if row[at] > row[best] { at } else { best };
    (0..row.len()).fold(0, greater)
}

/// The probability of a class: a row's element where the row is a distribution, its softmax otherwise. Never
/// so small that its logarithm says nothing (scikit-learn's limit).
fn probability(row: &[f64], class: usize) -> f64 {
    /// What rounding to 16 bits may do to the sum.
    const ROUNDING: f64 = 1e-2;
    let sum: f64 = row.iter().sum();
    let is_distribution = row.iter().all(|it| *it >= 0.0) && (sum - 1.0).abs() <= ROUNDING;
    let share = match is_distribution {
        true => row[class] / sum,
        false => {
            let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let all: f64 = row.iter().map(|it| (it - most).exp()).sum();
            (row[class] - most).exp() / all
        }
    };
    if share.is_nan() {
        share
    } else {
        share.max(f64::EPSILON)
    }
}

fn absolute_error(have: &[f64], want: &[f64]) -> f64 {
    let errors = have
        .iter()
        .zip(want)
        .map(|(have, want)| (have - want).abs());
    errors.sum::<f64>() / have.len() as f64
}

fn relative_error(have: &[f64], want: &[f64]) -> f64 {
    let errors = have
        .iter()
        .zip(want)
        .map(|(have, want)| (have - want).abs() / want.abs());
    errors.sum::<f64>() / have.len() as f64
}

fn squared_error(have: &[f64], want: &[f64]) -> f64 {
    let errors = have
        .iter()
        .zip(want)
        .map(|(have, want)| (have - want) * (have - want));
    errors.sum()
}

fn cosine(have: &[f64], want: &[f64]) -> f64 {
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    product(have, want) / (product(have, have) * product(want, want)).sqrt()
}

fn is_among_best(row: &[f64], label: usize, k: usize) -> bool {
    let own = row[label];
    let before = row
        .iter()
        .enumerate()
        .filter(|(index, value)| **value > own || (**value == own && *index < label));
    !row.iter().any(|value| value.is_nan()) && before.count() < k
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(values: &[u64]) -> Labels {
        Labels {
            per_record: 1,
            values: Expectation::Classes(values.to_vec()),
        }
    }

    fn floats(shape: &[usize], values: &[f32]) -> Tensor {
        Tensor::from_elements(shape.to_vec(), values).expect("fits")
    }

    fn score(metric: Metric, labels: &Labels, output: &Tensor) -> Accuracy {
        let mut scorer = Scorer::new(metric, labels, "y");
        scorer.push(output, output.rows()).expect("scores");
        scorer.finish(32)
    }

    #[test]
    fn the_first_of_equal_maxima_is_the_answer() {
        let output = floats(&[3, 3], &[1.0, 1.0, 0.0, 0.0, 2.0, 2.0, 5.0, 1.0, 9.0]);
        assert_eq!(
            score(Metric::Top1, &classes(&[0, 1, 2]), &output).value,
            1.0
        );
        assert_eq!(
            score(Metric::Top1, &classes(&[1, 2, 0]), &output).value,
            0.0
        );
        assert_eq!(
            score(Metric::TopK(2), &classes(&[1, 2, 0]), &output).value,
            1.0
        );
        assert_eq!(
            score(Metric::TopK(2), &classes(&[2, 0, 1]), &output).value,
            0.0
        );
    }

    #[test]
    fn not_a_number_finds_nothing() {
        let output = floats(&[1, 2], &[f32::NAN, 1.0]);
        assert_eq!(score(Metric::TopK(2), &classes(&[1]), &output).value, 0.0);
    }

    #[test]
    fn exact_compares_whole_records() {
        let labels = Labels {
            per_record: 2,
            values: Expectation::Exact(
                Tensor::from_elements(vec![2, 2], &[1i64, 2, i64::MAX, 4]).expect("fits"),
            ),
        };
        let output = Tensor::from_elements(vec![2, 2], &[1i64, 2, i64::MAX - 1, 4]).expect("fits");
        assert_eq!(score(Metric::Exact, &labels, &output).value, 0.5);
        let zero = Labels {
            per_record: 1,
            values: Expectation::Exact(floats(&[1], &[0.0])),
        };
        assert_eq!(
            score(Metric::Exact, &zero, &floats(&[1], &[-0.0])).value,
            1.0
        );
    }

    #[test]
    fn mean_absolute_error_averages_records() {
        let labels = Labels {
            per_record: 2,
            values: Expectation::Real(vec![0.0, 0.0, 1.0, 1.0]),
        };
        let output = floats(&[2, 2], &[1.0, -3.0, 1.0, 1.0]);
        let accuracy = score(Metric::MeanAbsoluteError, &labels, &output);
        assert_eq!(accuracy.value, 1.0);
        let mut scorer = Scorer::new(Metric::MeanAbsoluteError, &labels, "y");
        let bad = scorer.push(&floats(&[2, 2], &[0.0, 0.0, f32::INFINITY, 0.0]), 2);
        assert!(matches!(bad, Err(ScoreError::NotFinite { record: 2, .. })));
    }

    fn assert_close(have: f64, want: f64) {
        assert!((have - want).abs() < 1e-9, "{have} for {want}");
    }

    /// Values by scikit-learn 1.9.1 on the same numbers.
    #[test]
    fn metrics_of_classes_agree_with_scikit_learn() {
        let rows = [
            [0.7, 0.2, 0.1],
            [0.1, 0.6, 0.3],
            [0.2, 0.5, 0.3],
            [0.3, 0.3, 0.4],
            [0.8, 0.1, 0.1],
            [0.25, 0.35, 0.4],
        ];
        let output = Tensor::from_elements(vec![6, 3], rows.as_flattened()).expect("fits");
        let labels = classes(&[0, 1, 2, 2, 1, 2]);
        assert_close(
            score(Metric::F1, &labels, &output).value,
            0.655_555_555_555_555_6,
        );
        assert_close(score(Metric::F1Micro, &labels, &output).value, 2.0 / 3.0);
        assert_close(
            score(Metric::LogLoss, &labels, &output).value,
            1.034_439_988_128_835_8,
        );
        let logits = [2.0, 1.0, -1.0, 0.0, 3.0, 1.0];
        let logits = Tensor::from_elements(vec![2, 3], &logits).expect("fits");
        let of_logits = score(Metric::LogLoss, &classes(&[0, 2]), &logits);
        assert_close(of_logits.value, 1.259_429_118_162_236);
        // One column, or two of which the second counts.
        let sure = [0.1, 0.4, 0.35, 0.8, 0.4, 0.9];
        let two: Vec<f64> = sure.iter().flat_map(|it| [1.0 - it, *it]).collect();
        let labels = classes(&[0, 0, 1, 1, 1, 0]);
        for (columns, values) in [(1, sure.to_vec()), (2, two)] {
            let output = Tensor::from_elements(vec![6, columns], &values).expect("fits");
            let area = score(Metric::Auc, &labels, &output);
            assert_close(area.value, 0.5);
            assert!(area.lower < 0.2 && area.upper > 0.8, "{area:?}");
        }
    }

    /// Values by scikit-learn 1.9.1 and NumPy on the same numbers.
    #[test]
    fn metrics_of_numbers_agree_with_scikit_learn() {
        let reals = |per_record, values: &[f64]| Labels {
            per_record,
            values: Expectation::Real(values.to_vec()),
        };
        let output = Tensor::from_elements(vec![4, 1], &[2.5, 0.0, 2.0, 8.0]).expect("fits");
        let labels = reals(1, &[3.0, -0.5, 2.0, 7.0]);
        let of = |metric| score(metric, &labels, &output).value;
        assert_close(of(Metric::RootMeanSquareError), 0.612_372_435_695_794_5);
        assert_close(of(Metric::R2), 0.948_608_137_044_967_9);
        assert_close(
            of(Metric::MeanAbsolutePercentageError),
            0.327_380_952_380_952_4,
        );
        let output = Tensor::from_elements(vec![2, 2], &[1.0, 2.0, 3.0, -1.0]).expect("fits");
        let labels = reals(2, &[2.0, 1.0, 3.0, 1.0]);
        let cosine = score(Metric::Cosine, &labels, &output);
        assert_close(cosine.value, 0.8);
        assert!(cosine.lower <= 0.8 && cosine.upper >= 0.8, "{cosine:?}");
    }

    #[test]
    fn what_a_metric_cannot_say_is_refused_with_the_record() {
        let labels = Labels {
            per_record: 1,
            values: Expectation::Real(vec![1.0, 0.0]),
        };
        let mut scorer = Scorer::new(Metric::MeanAbsolutePercentageError, &labels, "y");
        let refused = scorer.push(&floats(&[2, 1], &[1.0, 2.0]), 2);
        let refused = refused.expect_err("it divides by 0").to_string();
        assert!(
            refused.contains("record `2`") && refused.contains("`mape`"),
            "{refused}"
        );
        let labels = classes(&[0, 1]);
        let mut scorer = Scorer::new(Metric::LogLoss, &labels, "y");
        let refused = scorer.push(&floats(&[2, 2], &[1.0, 0.0, f32::NAN, 1.0]), 2);
        assert!(refused.is_err());
    }

    #[test]
    fn outputs_that_do_not_fit_are_refused() {
        let labels = classes(&[0, 7]);
        let mut scorer = Scorer::new(Metric::Top1, &labels, "y");
        assert!(scorer.push(&floats(&[1, 3], &[0.0; 3]), 2).is_err());
        assert!(matches!(
            scorer.push(&floats(&[2, 3], &[0.0; 6]), 2),
            Err(ScoreError::Invalid(Invalid::Label { record: 2, .. }))
        ));
    }

    #[test]
    fn batches_add_up() {
        let labels = classes(&[0, 1, 1]);
        let mut scorer = Scorer::new(Metric::Top1, &labels, "y");
        scorer
            .push(&floats(&[2, 2], &[1.0, 0.0, 0.0, 1.0]), 2)
            .expect("scores");
        scorer
            .push(&floats(&[1, 2], &[1.0, 0.0]), 1)
            .expect("scores");
        let accuracy = scorer.finish(2);
        assert_eq!((accuracy.records, accuracy.value), (3, 2.0 / 3.0));
    }
}
