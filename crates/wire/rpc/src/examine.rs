//! Measures how correct the answers of an examinee are: it is asked each record of a validation set.

use async_trait::async_trait;
use bytes::Bytes;
use sextant_types::{Accuracy, Metric, NamedTensor, Signature, Tensor};

/// The data for scoring answers.
#[derive(Debug, Clone, Copy)]
pub struct Examination<'a> {
    /// The validation set with labels, in the form that a registration accepts.
    pub set: &'a Bytes,
    /// The metric.
    pub metric: Metric,
    /// The output that is scored; `None`: the output for which the metric is meant.
    pub output: Option<&'a str>,
    /// Inputs and outputs of the examinee, with its own shapes.
    pub signature: &'a Signature,
}

/// Why nothing was measured.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ExaminationFailure {
    /// The set does not fit. The text is a sentence without its end.
    #[error("the validation set does not fit: {0}")]
    Unfit(String),
    /// A record was not answered.
    #[error("record `{record}` was not answered: {reason}")]
    Unanswered {
        /// Its number, from 1.
        record: usize,
        /// Why.
        reason: String,
    },
}

/// What is examined.
#[async_trait]
pub trait Examinee: Send {
    /// Answers one record, number `done` from 0 of `all`, and returns the output called `output`.
    ///
    /// # Errors
    /// The reason why it cannot; the examination ends.
    async fn answer(
        &mut self,
        record: Vec<NamedTensor>,
        output: &str,
        progress: (usize, usize),
    ) -> Result<Tensor, String>;
}

/// What scores answers.
#[async_trait]
pub trait Examine: Send + Sync {
    /// Asks each record of a set, one by one, and scores the answers as a registration scores those of variants.
    ///
    /// # Errors
    /// If the set does not fit the examinee, or a record is not answered.
    async fn examine(
        &self,
        examination: Examination<'_>,
        examinee: &mut dyn Examinee,
    ) -> Result<Accuracy, ExaminationFailure>;
}

/// An examiner that scores nothing: for front ends that measure no pipelines.
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
