//! How right something is that answers whole records: a validation set, asked record by record.

use async_trait::async_trait;
use bytes::Bytes;
use sextant_types::{Accuracy, Metric, NamedTensor, Signature, Tensor};

/// By what answers are scored.
#[derive(Debug, Clone, Copy)]
pub struct Examination<'a> {
    /// The validation set, as a registration takes it, with labels.
    pub set: &'a Bytes,
    /// The metric.
    pub metric: Metric,
    /// The output that is scored; `None`: the one that the metric is meant for.
    pub output: Option<&'a str>,
    /// Inputs and outputs of whoever is examined, by its own shapes.
    pub signature: &'a Signature,
}

/// Why nothing was measured.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ExaminationFailure {
    /// The set does not fit; a sentence without its end.
    #[error("the validation set does not fit: {0}")]
    Unfit(String),
    /// An answer could not be had.
    #[error("record `{record}` was not answered: {reason}")]
    Unanswered {
        /// Its number, from 1.
        record: usize,
        /// Why.
        reason: String,
    },
}

/// Whoever is examined.
#[async_trait]
pub trait Examinee: Send {
    /// Answers one record, which is the `done`-th from 0 of `all`, and tells the output called `output`.
    ///
    /// # Errors
    /// Why it cannot; the examination ends.
    async fn answer(
        &mut self,
        record: Vec<NamedTensor>,
        output: &str,
        progress: (usize, usize),
    ) -> Result<Tensor, String>;
}

/// Whoever scores answers.
#[async_trait]
pub trait Examine: Send + Sync {
    /// Asks every record of a set, one by one, and scores the answers as a registration scores those of variants.
    ///
    /// # Errors
    /// When the set does not fit what is examined, or a record is not answered.
    async fn examine(
        &self,
        examination: Examination<'_>,
        examinee: &mut dyn Examinee,
    ) -> Result<Accuracy, ExaminationFailure>;
}

/// Scores nothing: for front ends that measure no pipelines.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoExaminer;

#[async_trait]
impl Examine for NoExaminer {
    async fn examine(
        &self,
        _: Examination<'_>,
        _: &mut dyn Examinee,
    ) -> Result<Accuracy, ExaminationFailure> {
        Err(ExaminationFailure::Unfit(
            "this process scores nothing".to_owned(),
        ))
    }
}
