//! Scoring outputs against labels.
//!
//! `top1` is `topk` with k = 1: a label counts as found when fewer than k classes come before it,
//! where a class comes before another with a greater value, or with an equal value and a lower
//! index (so the first of equal maxima is the arg-max, as in NumPy). A row with NaN finds nothing.
//! `exact` asks for all elements of a record to be equal. `mae` averages |output - label| over a
//! record, in double precision, then over the records.

use sextant_types::{Accuracy, Data, Metric, Tensor};

use crate::{
    interval::{self, Interval},
    validation::{Expectation, Invalid, Labels},
};

mod values;

pub(crate) use values::reals;
use values::{equal_plain, equal_records, is_float};

/// Collects the score of one variant, batch by batch.
#[derive(Debug)]
pub struct Scorer<'a> {
    metric: Metric,
    labels: &'a Labels,
    output: &'a str,
    /// Score of each record so far: share of its labels found, or its mean error.
    scores: Vec<f64>,
}

/// Why an output cannot be scored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScoreError {
    /// It does not fit the labels.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// It is not a number anywhere a number is needed.
    #[error("output `{output}` of record `{record}` is not finite: no mean error can be given")]
    NotFinite {
        /// The scored output.
        output: String,
        /// Number of the record, from 1.
        record: usize,
    },
}

impl<'a> Scorer<'a> {
    /// A scorer for the first output, which is called `output` in messages.
    pub fn new(metric: Metric, labels: &'a Labels, output: &'a str) -> Self {
        Self {
            metric,
            labels,
            output,
            scores: Vec::new(),
        }
    }

    /// Scores the next `records` records.
    pub fn push(&mut self, output: &Tensor, records: usize) -> Result<(), ScoreError> {
        let per_record = self.labels.per_record;
        let at = self.scores.len() * per_record..(self.scores.len() + records) * per_record;
        match &self.labels.values {
            Expectation::Classes(classes) => {
                let wanted = classes.get(at).unwrap_or_default();
                self.push_classes(output, wanted, records)
            }
            Expectation::Exact(labels) => {
                let same = self.compare(output, labels, records)?;
                self.scores.extend(same);
                Ok(())
            }
            Expectation::Real(values) => {
                let wanted = values.get(at).unwrap_or_default();
                self.push_errors(output, wanted, records)
            }
        }
    }

    /// The accuracy over everything that was pushed, with its interval.
    pub fn finish(self, evaluation_batch: u32) -> Accuracy {
        let interval = match self.metric {
            Metric::MeanAbsoluteError => interval::bootstrap(&self.scores),
            _ => interval::wilson(self.scores.iter().sum(), self.scores.len() as u64),
        };
        let Interval {
            value,
            lower,
            upper,
        } = interval;
        Accuracy {
            metric: self.metric,
            value,
            lower,
            upper,
            records: self.scores.len() as u64,
            evaluation_batch,
        }
    }

    fn push_classes(
        &mut self,
        output: &Tensor,
        wanted: &[u64],
        records: usize,
    ) -> Result<(), ScoreError> {
        let k = match self.metric {
            Metric::TopK(k) => k as usize,
            _ => 1,
        };
        let classes = output.shape().last().copied().unwrap_or(0);
        let values = reals(output).filter(|values| values.len() == wanted.len() * classes);
        let values = values.ok_or_else(|| self.misshapen(output, records))?;
        let mut found = Vec::with_capacity(wanted.len());
        for (row, label) in values.chunks_exact(classes.max(1)).zip(wanted) {
            let label = usize::try_from(*label).unwrap_or(usize::MAX);
            if label >= row.len() {
                return Err(self.no_such_class(found.len(), label, classes).into());
            }
            found.push(is_among_best(row, label, k));
        }
        let per_record = self.labels.per_record.max(1);
        self.scores.extend(
            found.chunks(per_record).map(|found| {
                found.iter().filter(|found| **found).count() as f64 / found.len() as f64
            }),
        );
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
        for (row, wanted) in values.chunks(per_record).zip(wanted.chunks(per_record)) {
            let errors = row
                .iter()
                .zip(wanted)
                .map(|(have, want)| (have - want).abs());
            let mean = errors.sum::<f64>() / row.len() as f64;
            if !mean.is_finite() {
                return Err(ScoreError::NotFinite {
                    output: self.output.to_owned(),
                    record: self.scores.len() + 1,
                });
            }
            self.scores.push(mean);
        }
        Ok(())
    }

    fn compare(
        &self,
        output: &Tensor,
        labels: &Tensor,
        records: usize,
    ) -> Result<Vec<f64>, ScoreError> {
        let wanted = labels
            .slice_rows(self.scores.len(), records)
            .map_err(|_| self.misshapen(output, records))?;
        if output.data_type() != wanted.data_type() || output.len() != wanted.len() {
            return Err(self.misshapen(output, records).into());
        }
        let per_record = self.labels.per_record.max(1);
        let same = match (output.data(), wanted.data()) {
            (Data::Strings(have), Data::Strings(want)) => equal_records(have, want, per_record),
            _ => match (reals(output), reals(&wanted)) {
                (Some(have), Some(want)) if is_float(output) => {
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
            record: self.scores.len() * self.labels.per_record + index + 1,
            value: label.to_string(),
            why: format!("output `{}` has `{classes}` classes", self.output),
        }
    }
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
