//! The answers of the uploaded file as labels.

use bytes::BytesMut;
use sextant_types::{Data, Metric, Tensor, Texts};

use super::{Invalid, ScoreError, best, reals};
use crate::validation::{Expectation, Labels};

/// The answers of a group, as they are computed.
#[derive(Debug)]
pub(crate) struct Answers {
    metric: Metric,
    output: String,
    /// Records before the next one, also of other groups.
    records: usize,
    /// Labels of each record; `None` before the first.
    per_record: Option<usize>,
    values: Expectation,
    parts: Vec<Tensor>,
}

/// The labels that the answers of each group make.
pub(crate) fn labels_of(groups: Vec<Answers>) -> Result<Vec<Labels>, ScoreError> {
    groups.into_iter().map(Answers::finish).collect()
}

impl Answers {
    /// Empty answers for a metric and an output that messages call `output`, after `records` records.
    pub(crate) fn new(metric: Metric, output: &str, records: usize) -> Self {
        Self {
            metric,
            output: output.to_owned(),
            records,
            per_record: None,
            values: Expectation::Unknown,
            parts: Vec::new(),
        }
    }

    /// Adds the outputs of the next records. If the metric scores classes, the label is the greatest element of each
    /// vector; for `auc` with one column, whether it is above a half. If a record may have several labels, it gets
    /// those with a probability of at least a half.
    pub(crate) fn push(&mut self, output: &Tensor, records: usize) -> Result<(), ScoreError> {
        let metric = self.metric.name();
        let missing = || Invalid::MissingLabels { metric };
        match self.metric {
            Metric::Exact | Metric::Custom => {
                self.parts.push(output.clone());
                self.count(output.len(), records)
            }
            Metric::MeanAveragePrecision => Err(missing().into()),
            Metric::MeanAbsoluteError
            | Metric::RootMeanSquareError
            | Metric::MeanAbsolutePercentageError
            | Metric::R2
            | Metric::Cosine
            | Metric::BoxOverlap => {
                let values = reals(output).ok_or_else(missing)?;
                self.numbers(values, records)
            }
            Metric::F1MultiLabel => {
                let values = reals(output).ok_or_else(missing)?;
                let tags = values.iter().map(|it| f64::from(u8::from(*it >= 0.5)));
                self.numbers(tags.collect(), records)
            }
            _ => {
                let values = reals(output).ok_or_else(missing)?;
                let columns = output.shape().last().copied().unwrap_or(1).max(1);
                let class = |row: &[f64]| match columns {
                    1 => u64::from(row[0] > 0.5),
                    _ => best(row) as u64,
                };
                let classes: Vec<u64> = values.chunks_exact(columns).map(class).collect();
                self.count(classes.len(), records)?;
                let mut vectors = values.chunks_exact(columns);
                let is_none = |row: &[f64]| row.iter().any(|it| it.is_nan());
                if let Some(at) = vectors.position(is_none) {
                    return Err(self.not_finite(at, (classes.len(), records)));
                }
                self.records += records;
                match &mut self.values {
                    Expectation::Classes(all) => all.extend(classes),
                    none => *none = Expectation::Classes(classes),
                }
                Ok(())
            }
        }
    }

    /// Adds the next records' labels, which are numbers.
    fn numbers(&mut self, values: Vec<f64>, records: usize) -> Result<(), ScoreError> {
        self.count(values.len(), records)?;
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            return Err(self.not_finite(at, (values.len(), records)));
        }
        self.records += records;
        match &mut self.values {
            Expectation::Real(all) => all.extend(values),
            none => *none = Expectation::Real(values),
        }
        Ok(())
    }

    /// The error of a label at this place, which is not finite.
    fn not_finite(&self, at: usize, (labels, records): (usize, usize)) -> ScoreError {
        let each = (labels / records.max(1)).max(1);
        let invalid = Invalid::AnswersNotFinite {
            output: self.output.clone(),
            metric: self.metric.name(),
            record: self.records + at / each + 1,
        };
        invalid.into()
    }

    /// Notes how many labels each of the next records has: it must be as many as before.
    fn count(&mut self, labels: usize, records: usize) -> Result<(), ScoreError> {
        let each = labels / records.max(1);
        let before = *self.per_record.get_or_insert(each);
        let is_whole = labels == each * records;
        match is_whole && each == before {
            true => Ok(()),
            false => Err(Invalid::UnevenAnswers {
                output: self.output.clone(),
                one: before.to_string(),
                other: if is_whole {
                    each.to_string()
                } else {
                    format!("{labels} of {records}")
                },
            }
            .into()),
        }
    }

    fn finish(self) -> Result<Labels, ScoreError> {
        let per_record = self.per_record.unwrap_or(0);
        let values = match self.metric {
            Metric::Exact | Metric::Custom => Expectation::Exact(joined(&self.parts, per_record)?),
            _ => self.values,
        };
        Ok(Labels { per_record, values })
    }
}

/// All parts as one tensor, with a row of `per_record` elements for each record: a model without a batch dimension has
/// no dimension of records.
fn joined(parts: &[Tensor], per_record: usize) -> Result<Tensor, ScoreError> {
    let wrap = |source| Invalid::Tensor {
        name: "labels".to_owned(),
        source,
    };
    let elements: usize = parts.iter().map(Tensor::len).sum();
    let shape = vec![elements / per_record.max(1), per_record];
    let tensor = match parts.first().map(Tensor::data) {
        Some(Data::Strings(_)) => {
            let texts = parts.iter().filter_map(Tensor::texts);
            Tensor::from_strings(shape, texts.flat_map(Texts::iter))
        }
        _ => {
            let mut bytes = BytesMut::new();
            for part in parts {
                if let Data::Plain(of) = part.data() {
                    bytes.extend_from_slice(of);
                }
            }
            let data_type = parts
                .first()
                .map_or(sextant_types::DataType::Int64, Tensor::data_type);
            Tensor::from_bytes(data_type, shape, bytes.freeze())
        }
    };
    Ok(tensor.map_err(wrap)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::Scorer;

    #[test]
    fn answers_of_several_labels_are_all_that_are_found() {
        let sure = |values: &[f32]| Tensor::from_elements(vec![2, 3], values).expect("it fits");
        let mut answers = Answers::new(Metric::F1MultiLabel, "tags", 0);
        let found = answers.push(&sure(&[0.9, 0.6, 0.1, 0.2, 0.5, 0.4]), 2);
        found.expect("as many each");
        let labels = answers.finish().expect("labels");
        let wanted = vec![1.0, 1.0, 0.0, 0.0, 1.0, 0.0];
        assert_eq!(labels.values, Expectation::Real(wanted));
        // The greatest element is the same, and a label beside it is lost.
        let mut scorer = Scorer::new(Metric::F1MultiLabel, &labels, "tags");
        let scored = scorer.push(&sure(&[0.9, 0.3, 0.1, 0.2, 0.5, 0.4]), 2);
        scored.expect("scores");
        assert_eq!(scorer.finish(2).value, 4.0 / 5.0);
    }

    #[test]
    fn answers_that_are_not_finite_are_no_labels() {
        for (metric, wrong) in [
            (Metric::MeanAbsoluteError, f32::NAN),
            (Metric::MeanAbsoluteError, f32::NEG_INFINITY),
            (Metric::Top1, f32::NAN),
        ] {
            let mut answers = Answers::new(metric, "scores", 7);
            let scores = |values: &[f32]| Tensor::from_elements(vec![2, 2], values);
            let good = scores(&[0.0; 4]).expect("it fits");
            answers.push(&good, 2).expect("labels");
            let bad = scores(&[0.0, 0.0, 1.0, wrong]).expect("it fits");
            let error = answers.push(&bad, 2).expect_err("no label").to_string();
            assert!(
                error.contains("output `scores` of record `11`") && error.contains(&metric.name()),
                "{error}"
            );
        }
        // A class that is ruled out is less than all others.
        let mut answers = Answers::new(Metric::Top1, "scores", 0);
        let ruled_out = Tensor::from_elements(vec![1, 2], &[f32::NEG_INFINITY, 0.0]);
        let ruled_out = ruled_out.expect("it fits");
        answers.push(&ruled_out, 1).expect("a label");
        let labels = answers.finish().expect("labels");
        assert_eq!(labels.values, Expectation::Classes(vec![1]));
    }

    #[test]
    fn answers_that_differ_in_length_are_no_labels() {
        let boxes = |count: usize| Tensor::from_elements(vec![count, 4], &vec![1f32; count * 4]);
        for metric in [Metric::BoxOverlap, Metric::Exact, Metric::Top1] {
            let mut answers = Answers::new(metric, "boxes", 0);
            for records in [1, 2] {
                let even = boxes(2 * records).expect("it fits");
                answers.push(&even, records).expect("as many each");
            }
            for (count, records) in [(1, 1), (5, 2), (0, 1)] {
                let odd = boxes(count).expect("it fits");
                let error = answers.push(&odd, records).expect_err("other lengths");
                let error = error.to_string();
                assert!(
                    error.contains("output `boxes` has") && error.contains("add labels"),
                    "{error}"
                );
            }
        }
    }
}
