//! The output that a metric scores, and the meaning of its columns.

use sextant_types::{DataType, Metric, Signature, TensorSpec, convert};

use super::{DETECTION, row_shape};

/// The scored output.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct ScoringTarget {
    /// Position of the output.
    pub output: usize,
    /// The class of each of its columns, if the model says so: labels may then be names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// The model's own names of the classes, if the application uses others: labels may use these, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<String>,
}

impl ScoringTarget {
    /// The output that the metric is meant for. Top-k scores probabilities: the first output of floats with a class
    /// axis. `exact` scores answers: the first output of integers, booleans or strings. Errors are about numbers: the
    /// first output of floats. If there is none, it is the first output.
    pub fn by(metric: Metric, signature: &Signature) -> Self {
        let is_float = |spec: &TensorSpec| convert::is_float(spec.data_type);
        let has_classes =
            |spec: &TensorSpec| !row_shape(spec, signature.batched).is_empty() && !is_text(spec);
        let mut outputs = signature.outputs.iter();
        let output = match metric {
            Metric::Top1
            | Metric::TopK(_)
            | Metric::F1
            | Metric::F1Micro
            | Metric::LogLoss
            | Metric::TokenAccuracy
            | Metric::Auc => outputs
                .position(|spec| is_float(spec) && has_classes(spec))
                .or_else(|| signature.outputs.iter().position(has_classes)),
            Metric::Exact => outputs.position(|spec| !is_float(spec)),
            Metric::F1MultiLabel => outputs.position(has_classes),
            Metric::MeanAbsoluteError
            | Metric::RootMeanSquareError
            | Metric::MeanAbsolutePercentageError
            | Metric::R2
            | Metric::Cosine
            | Metric::BoxOverlap
            | Metric::Custom => outputs.position(is_float),
            Metric::MeanAveragePrecision => outputs
                .position(|spec| is_float(spec) && spec.shape.last() == Some(&Some(DETECTION)))
                .or_else(|| signature.outputs.iter().position(is_float)),
        };
        Self {
            output: output.unwrap_or(0),
            classes: Vec::new(),
            own: Vec::new(),
        }
    }

    /// The column of a class by its name.
    pub(super) fn column(&self, name: &str) -> Option<u64> {
        let of = |names: &[String]| names.iter().position(|class| class == name);
        let at = of(&self.classes).or_else(|| of(&self.own));
        at.map(|at| at as u64)
    }

    /// Whether the classes are numbers: a label is then a class, not a position.
    pub(super) fn are_numbers(&self) -> bool {
        let is_number = |class: &String| class.parse::<i64>().is_ok();
        !self.classes.is_empty() && self.classes.iter().all(is_number)
    }
}

fn is_text(spec: &TensorSpec) -> bool {
    spec.data_type == DataType::Bytes
}
