//! Scoring outputs against labels.
//!
//! `top1` is `topk` with k = 1. A label counts as found if fewer than k classes come before it. A class comes before
//! another if its value is greater, or equal with a lower index (so the first of equal maxima is the arg-max, as in
//! NumPy). In a row with NaN nothing is found. `exact` requires that all elements of a record are equal. `mae` averages
//! |output - label| over a record, in double precision, then over the records. `log_loss` takes a row for probabilities
//! if it is a distribution, and for logits otherwise. docs/models.md has the formula of each metric.

use sextant_types::{Accuracy, AccuracyKind, Data, Metric, NamedTensor, Tensor, convert};

use crate::{
    interval::Interval,
    validation::{Expectation, Invalid, Labels, can_be_wrong},
};

mod answers;
mod boxes;
mod evidence;
mod judge;
mod values;

pub(crate) use answers::{Answers, labels_of};
pub(crate) use boxes::mean_overlap;
use evidence::Evidence;
pub use judge::CustomMetric;
pub(crate) use values::reals;
use values::{equal_plain, equal_records, is_rounding};

/// Collects the score of one variant, batch by batch.
#[derive(Debug)]
pub struct Scorer<'a> {
    metric: Metric,
    labels: &'a Labels,
    /// Number of records that were scored by these labels.
    at: usize,
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
    /// A value that must be a number is none.
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
    /// A scorer for an output that messages call `output`.
    pub fn new(metric: Metric, labels: &'a Labels, output: &'a str) -> Self {
        Self {
            metric,
            labels,
            at: 0,
            output,
            records: 0,
            evidence: Evidence::of(metric),
        }
    }

    /// Uses these labels for the records from now on, from the first label on.
    pub fn turn_to(&mut self, labels: &'a Labels) {
        self.labels = labels;
        self.at = 0;
    }

    /// Scores the next `records` records.
    ///
    /// # Errors
    /// If the output does not fit the labels, or an error is not finite.
    pub fn push(&mut self, output: &Tensor, records: usize) -> Result<(), ScoreError> {
        let per_record = self.labels.per_record;
        let at = self.at * per_record..(self.at + records) * per_record;
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
                match self.metric {
                    Metric::BoxOverlap => self.push_overlaps(output, wanted, records)?,
                    Metric::MeanAveragePrecision => self.push_boxes(output, wanted, records)?,
                    Metric::F1MultiLabel => self.push_tags(output, wanted, records)?,
                    _ => self.push_errors(output, wanted, records)?,
                }
            }
            Expectation::Unknown => {
                let metric = self.metric.name();
                return Err(Invalid::MissingLabels { metric }.into());
            }
        }
        self.at += records;
        self.records += records;
        Ok(())
    }

    /// Scores the next `records` records by a custom metric.
    ///
    /// # Errors
    /// An error of its graph.
    pub fn push_judged(
        &mut self,
        judge: &CustomMetric,
        (answers, scored): (&[NamedTensor], usize),
        records: usize,
    ) -> Result<(), ScoreError> {
        let Expectation::Exact(labels) = &self.labels.values else {
            let metric = self.metric.name();
            return Err(Invalid::MissingLabels { metric }.into());
        };
        let labels = labels.slice_rows(self.at, records);
        let labels = labels.map_err(|source| Invalid::Tensor {
            name: "labels".to_owned(),
            source,
        })?;
        let scores = judge.scores(answers, scored, &labels)?;
        self.add(scores);
        self.at += records;
        self.records += records;
        Ok(())
    }

    /// The accuracy over all records so far, with its interval.
    pub fn finish(self, evaluation_batch: u32) -> Accuracy {
        let Interval {
            value,
            lower,
            upper,
        } = self.evidence.interval(self.metric);
        Accuracy {
            kind: AccuracyKind::Accuracy,
            metric: self.metric,
            value,
            lower,
            upper,
            records: self.records as u64,
            evaluation_batch,
        }
    }

    /// Adds shares or errors of records.
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
        self.are_classes(output, (classes, records))?;
        let values = reals(output).ok_or_else(|| self.misshapen(output, records))?;
        self.can_be_wrong(output, classes)?;
        let rows = values.chunks_exact(classes);
        let labelled: Vec<(&[f64], usize)> = rows
            .zip(wanted)
            .map(|(row, label)| (row, usize::try_from(*label).unwrap_or(usize::MAX)))
            .collect();
        // The area is that of the second class, which may have the only column.
        let known = if self.metric == Metric::Auc {
            classes.max(2)
        } else {
            classes
        };
        let is_unknown = |label: usize| label >= known && !self.is_passed_over(label);
        if let Some(at) = labelled.iter().position(|(_, label)| is_unknown(*label)) {
            return Err(self.no_such_class(at, labelled[at].1, classes).into());
        }
        let at = self.records * self.labels.per_record;
        match &mut self.evidence {
            Evidence::Classes(all) => {
                let of_row = |(row, label): &(&[f64], usize)| (predicted(row), *label as u32);
                for record in labelled.chunks(self.labels.per_record.max(1)) {
                    all.push(record.iter().map(of_row));
                }
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
            Evidence::Ratios(all) => {
                for record in labelled.chunks(self.labels.per_record.max(1)) {
                    let counted = record.iter().filter(|(_, it)| *it != usize::MAX);
                    let right = counted
                        .clone()
                        .filter(|(row, it)| is_among_best(row, *it, 1));
                    all.push((right.count() as u32, counted.count() as u32));
                }
            }
            _ => self.push_found(&labelled)?,
        }
        Ok(())
    }

    /// Refuses an output that has a number for each of `classes` classes of each label, but whose last dimension is not
    /// that of the classes: the model may not declare its dimensions. Dimensions of 1 may follow it.
    fn are_classes(
        &self,
        output: &Tensor,
        (classes, records): (usize, usize),
    ) -> Result<(), Invalid> {
        let last = output.shape().iter().rev().find(|size| **size != 1);
        match self.metric {
            Metric::Auc if classes > 2 => Err(Invalid::NotTwoClasses {
                output: self.output.to_owned(),
                shape: format!("{:?}", output.shape()),
            }),
            Metric::Auc => Ok(()),
            _ if classes > 1 && last != Some(&classes) => Err(self.misshapen(output, records)),
            _ => Ok(()),
        }
    }

    /// Refuses to score if any answer would be right: the model may not declare how many numbers it answers.
    fn can_be_wrong(&self, output: &Tensor, numbers: usize) -> Result<(), Invalid> {
        let shape = || format!("{:?}", output.shape());
        can_be_wrong(self.metric, &[Some(numbers as u64)], (self.output, shape))
    }

    /// Whether a label says that its token is not scored.
    fn is_passed_over(&self, label: usize) -> bool {
        self.metric == Metric::TokenAccuracy && label == usize::MAX
    }

    /// Adds whether labels were found among the best, or their negative log-likelihood.
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
        self.can_be_wrong(output, per_record)?;
        let rows = values.chunks(per_record).zip(wanted.chunks(per_record));
        for (at, (have, want)) in rows.enumerate() {
            let squared = squared_error(have, want);
            let score = match self.metric {
                // Small elements count as much as large ones.
                Metric::MeanAbsolutePercentageError => relative_error(have, want),
                metric if is_rounding(have, want) => f64::from(metric == Metric::Cosine),
                Metric::RootMeanSquareError => squared / have.len() as f64,
                Metric::R2 => squared,
                Metric::Cosine => cosine(have, want),
                _ => absolute_error(have, want),
            };
            if !score.is_finite() {
                return Err(self.not_finite(self.records + at));
            }
            match &mut self.evidence {
                Evidence::Scores(all) => all.push(score),
                Evidence::Squares(all) => {
                    all.push([
                        score,
                        want.iter().sum(),
                        want.iter().map(|it| it * it).sum(),
                        want.len() as f64,
                    ]);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Counts the labels that are found: those with a probability of at least a half.
    fn push_tags(
        &mut self,
        output: &Tensor,
        wanted: &[f64],
        records: usize,
    ) -> Result<(), ScoreError> {
        let values = reals(output).filter(|values| values.len() == wanted.len());
        let values = values.ok_or_else(|| self.misshapen(output, records))?;
        let per_record = self.labels.per_record.max(1);
        if let Some(at) = values.iter().position(|it| !(0.0..=1.0).contains(it)) {
            return Err(Invalid::NoProbability {
                output: self.output.to_owned(),
                metric: self.metric.name(),
                record: self.records + at / per_record + 1,
                value: values[at].to_string(),
            }
            .into());
        }
        let Evidence::Ratios(all) = &mut self.evidence else {
            return Ok(());
        };
        let rows = values.chunks(per_record).zip(wanted.chunks(per_record));
        all.extend(rows.map(|(have, want)| {
            let is_found = |value: &f64| *value >= 0.5;
            let found = have.iter().filter(|it| is_found(it)).count();
            let labels = want.iter().filter(|it| is_found(it)).count();
            let both = have.iter().zip(want);
            let right = both.filter(|(a, b)| is_found(a) && is_found(b)).count();
            (2 * right as u32, (found + labels) as u32)
        }));
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
            .slice_rows(self.at, records)
            .map_err(|_| self.misshapen(output, records))?;
        if output.data_type() != wanted.data_type() || output.len() != wanted.len() {
            return Err(self.misshapen(output, records).into());
        }
        let per_record = self.labels.per_record.max(1);
        let same = match (output.data(), wanted.data()) {
            (Data::Strings(have), Data::Strings(want)) => {
                let texts = [have, want].map(|texts| texts.iter().collect::<Vec<_>>());
                equal_records(&texts[0], &texts[1], per_record)
            }
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

/// The position of the first of the greatest elements.
fn best(row: &[f64]) -> usize {
    let greater = |best: usize, at: usize| if row[at] > row[best] { at } else { best };
    (0..row.len()).fold(0, greater)
}

/// The class that a row predicts; `None` if it has NaN.
fn predicted(row: &[f64]) -> Option<u32> {
    let is_nan = row.iter().any(|value| value.is_nan());
    (!is_nan).then(|| best(row) as u32)
}

/// The probability of a class: the row's element if the row is a distribution, its softmax otherwise. It has a lower
/// bound, so that its logarithm is finite (scikit-learn's limit).
fn probability(row: &[f64], class: usize) -> f64 {
    /// Most by which rounding to 16 bits changes the sum.
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
mod tests;
