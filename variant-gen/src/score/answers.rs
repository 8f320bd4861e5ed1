//! What the uploaded file answers, in the place of labels.

use bytes::BytesMut;
use sextant_types::{Data, Metric, Tensor, Texts};

use super::{Invalid, ScoreError, best, reals};
use crate::validation::{Expectation, Labels};

/// The answers of a group, as they come.
#[derive(Debug)]
pub(crate) struct Answers {
    metric: Metric,
    output: String,
    /// Labels of each record; none before the first.
    per_record: Option<usize>,
    values: Expectation,
    parts: Vec<Tensor>,
}

/// A file's answers, each group's.
pub(crate) fn labels_of(groups: Vec<Answers>) -> Result<Vec<Labels>, ScoreError> {
    groups.into_iter().map(Answers::finish).collect()
}

impl Answers {
    /// None yet, for a metric and an output, which is called `output` in messages.
    pub(crate) fn new(metric: Metric, output: &str) -> Self {
        Self {
            metric,
            output: output.to_owned(),
            per_record: None,
            values: Expectation::Unknown,
            parts: Vec::new(),
        }
    }

    /// The next records' output. What is scored by classes is labelled with the greatest of each vector, for
    /// `auc` with one column with whether it is above a half.
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
                self.count(values.len(), records)?;
                match &mut self.values {
                    Expectation::Real(all) => all.extend(values),
                    none => *none = Expectation::Real(values),
                }
                Ok(())
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
                match &mut self.values {
                    Expectation::Classes(all) => all.extend(classes),
                    none => *none = Expectation::Classes(classes),
                }
                Ok(())
            }
        }
    }

    /// Takes up how many labels each of the next records has: as many as those before.
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

/// All parts as one, a row of so many elements for each record: a model without a batch dimension says nothing
/// of records.
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

    #[test]
    fn answers_that_differ_in_length_are_no_labels() {
        let boxes = |count: usize| Tensor::from_elements(vec![count, 4], &vec![1f32; count * 4]);
        for metric in [Metric::BoxOverlap, Metric::Exact, Metric::Top1] {
            let mut answers = Answers::new(metric, "boxes");
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
