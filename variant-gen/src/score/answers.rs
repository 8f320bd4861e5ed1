//! What the uploaded file answers, in the place of labels.

use bytes::BytesMut;
use sextant_types::{Data, Metric, Tensor};

use super::{Invalid, ScoreError, best, reals};
use crate::validation::{Expectation, Labels};

/// The answers of a group, as they come.
#[derive(Debug)]
pub(crate) struct Answers {
    metric: Metric,
    per_record: usize,
    values: Expectation,
    parts: Vec<Tensor>,
}

/// A file's answers, each group's.
pub(crate) fn labels_of(groups: Vec<Answers>) -> Result<Vec<Labels>, ScoreError> {
    groups.into_iter().map(Answers::finish).collect()
}

impl Answers {
    /// None yet, for a metric.
    pub(crate) fn new(metric: Metric) -> Self {
        Self {
            metric,
            per_record: 0,
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
                self.per_record = output.len() / records.max(1);
                Ok(())
            }
            Metric::MeanAveragePrecision => Err(missing().into()),
            Metric::MeanAbsoluteError
            | Metric::RootMeanSquareError
            | Metric::MeanAbsolutePercentageError
            | Metric::R2
            | Metric::Cosine
            | Metric::BoxOverlap => {
                let values = reals(output).ok_or_else(missing)?;
                self.per_record = values.len() / records.max(1);
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
                self.per_record = classes.len() / records.max(1);
                match &mut self.values {
                    Expectation::Classes(all) => all.extend(classes),
                    none => *none = Expectation::Classes(classes),
                }
                Ok(())
            }
        }
    }

    fn finish(self) -> Result<Labels, ScoreError> {
        let values = match self.metric {
            Metric::Exact | Metric::Custom => {
                Expectation::Exact(joined(&self.parts, self.per_record)?)
            }
            _ => self.values,
        };
        Ok(Labels {
            per_record: self.per_record,
            values,
        })
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
            let texts = parts.iter().flat_map(|part| match part.data() {
                Data::Strings(texts) => texts.clone(),
                Data::Plain(_) => Vec::new(),
            });
            Tensor::from_strings(shape, texts.collect())
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
