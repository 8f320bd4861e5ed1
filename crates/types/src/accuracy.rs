//! Measured accuracy and how it is compared.

use serde::{Deserialize, Serialize};

/// How predictions are scored against labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// The label is the arg-max of the last axis (first index wins ties).
    Top1,
    /// The label is among the `k` largest of the last axis.
    TopK(u32),
    /// The whole output equals the label.
    Exact,
    /// F1 of each class that occurs, averaged over the classes.
    F1,
    /// F1 over all classes together. With one label a record, it is the share that is right.
    F1Micro,
    /// F1 over all labels of all records together, where a record may have several labels or none. For each label the
    /// output has its probability, or 0 or 1.
    F1MultiLabel,
    /// Area under the receiver operating characteristic, of two classes.
    Auc,
    /// Mean of the negative logarithm of the label's probability; smaller is better.
    LogLoss,
    /// Mean of |output - label| over all elements; smaller is better.
    MeanAbsoluteError,
    /// Square root of the mean of (output - label)²; smaller is better.
    RootMeanSquareError,
    /// Mean of |output - label| / |label|; smaller is better.
    MeanAbsolutePercentageError,
    /// Share of the labels' variance that the output explains.
    R2,
    /// Mean of the cosine of the angle between output and label.
    Cosine,
    /// Share of the tokens whose class is the label. Tokens that are labelled -100 are skipped.
    TokenAccuracy,
    /// Mean of the overlap of boxes with their labels: intersection over union.
    BoxOverlap,
    /// Mean average precision of detected boxes, as COCO defines it.
    MeanAveragePrecision,
    /// Mean of the score that a graph of the model's owner gives to each record, 0 to 1.
    Custom,
}

/// Every metric that is a single word, by name.
const NAMES: [(&str, Metric); 16] = [
    ("top1", Metric::Top1),
    ("exact", Metric::Exact),
    ("f1", Metric::F1),
    ("f1_micro", Metric::F1Micro),
    ("f1_multilabel", Metric::F1MultiLabel),
    ("auc", Metric::Auc),
    ("log_loss", Metric::LogLoss),
    ("mae", Metric::MeanAbsoluteError),
    ("rmse", Metric::RootMeanSquareError),
    ("mape", Metric::MeanAbsolutePercentageError),
    ("r2", Metric::R2),
    ("cosine", Metric::Cosine),
    ("token_accuracy", Metric::TokenAccuracy),
    ("iou", Metric::BoxOverlap),
    ("map", Metric::MeanAveragePrecision),
    ("custom", Metric::Custom),
];

impl Metric {
    /// Whether a larger value is better.
    pub fn higher_is_better(self) -> bool {
        !matches!(
            self,
            Self::LogLoss
                | Self::MeanAbsoluteError
                | Self::RootMeanSquareError
                | Self::MeanAbsolutePercentageError
        )
    }

    /// The names that are accepted, for messages.
    pub fn names() -> String {
        let names = NAMES.iter().map(|(name, _)| format!("`{name}`"));
        format!(
            "{} or `topK` such as `top5`",
            names.collect::<Vec<_>>().join(", ")
        )
    }

    /// Whether the value is the share of the records that are right, so that its interval is Wilson's.
    pub fn is_share_of_records(self) -> bool {
        matches!(self, Self::Top1 | Self::TopK(_) | Self::Exact)
    }

    /// A measured value on the common scale where larger is better: the value itself for
    /// proportions, its negative for errors.
    pub fn quality(self, value: f64) -> f64 {
        if self.higher_is_better() {
            value
        } else {
            -value
        }
    }

    /// `top1`, `top5`, `exact`, `mae`, ..
    pub fn name(self) -> String {
        let known = NAMES.iter().find(|(_, metric)| *metric == self);
        match (known, self) {
            (Some((name, _)), _) => (*name).to_owned(),
            (None, Self::TopK(k)) => format!("top{k}"),
            (None, _) => format!("{self:?}").to_lowercase(),
        }
    }

    /// The inverse of [`Metric::name`].
    pub fn parse(name: &str) -> Option<Self> {
        if let Some((_, metric)) = NAMES.iter().find(|(known, _)| *known == name) {
            return Some(*metric);
        }
        let k = name.strip_prefix("top")?.parse().ok()?;
        (k > 1).then_some(Self::TopK(k))
    }
}

/// What a measured value was compared with. Only a comparison with labels is an accuracy.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum AccuracyKind {
    /// The labels of the validation set.
    Accuracy,
    /// The answers of the uploaded file, because the set has no labels. It says how closely a variant follows that
    /// file, and nothing about how often the file is right.
    Agreement,
    /// An earlier version registered the model, and nothing records whether its set had labels.
    #[default]
    Unknown,
}

impl AccuracyKind {
    /// `accuracy`, `agreement`, `unknown`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accuracy => "accuracy",
            Self::Agreement => "agreement",
            Self::Unknown => "unknown",
        }
    }

    /// The inverse of [`Self::name`].
    pub fn parse(name: &str) -> Option<Self> {
        let all = [Self::Accuracy, Self::Agreement, Self::Unknown];
        all.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether it was compared with labels. Only then may it meet a least accuracy.
    pub fn is_accuracy(self) -> bool {
        self == Self::Accuracy
    }
}

/// A measured accuracy with its 95 % interval: Wilson for proportions, Hanley and McNeil for the area under
/// the curve, bootstrap for the rest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Accuracy {
    /// What the value was compared with.
    #[serde(default)]
    pub kind: AccuracyKind,
    /// The metric.
    pub metric: Metric,
    /// The point estimate, in the metric's own unit.
    pub value: f64,
    /// Lower end of the 95 % interval, in the metric's own unit.
    pub lower: f64,
    /// Upper end of the 95 % interval, in the metric's own unit.
    pub upper: f64,
    /// Records of the validation set that were scored.
    pub records: u64,
    /// Rows per batch during the measurement. Outputs of dynamically quantised variants depend on it.
    pub evaluation_batch: u32,
}

impl Accuracy {
    /// The measured value on the quality scale (larger is better).
    pub fn quality(&self) -> f64 {
        self.metric.quality(self.value)
    }

    /// The pessimistic end of the interval on the quality scale (larger is better). Accuracy targets are compared with
    /// it.
    pub fn quality_bound(&self) -> f64 {
        if self.metric.higher_is_better() {
            self.lower
        } else {
            -self.upper
        }
    }

    /// The lower end of the interval as a share of right answers, 0 to 1; `None` for an error, and for a value that was
    /// not compared with labels.
    pub fn share(&self) -> Option<f64> {
        let is_share = self.kind.is_accuracy() && self.metric.higher_is_better();
        (is_share && self.lower.is_finite()).then(|| self.lower.clamp(0.0, 1.0))
    }

    /// About how many records would put [`Self::quality_bound`] at `bound`, on the quality scale, if the measured value
    /// stayed the same; `None` if the value does not exceed `bound`, or no number of records would suffice.
    pub fn records_for(&self, bound: f64) -> Option<u64> {
        let excess = self.quality() - bound;
        if excess.is_nan() || excess <= 0.0 || self.records == 0 {
            return None;
        }
        let needed = match self.metric.is_share_of_records() && (0.0..1.0).contains(&bound) {
            true => Z * Z * bound * (1.0 - bound) / (excess * excess),
            false => {
                // The interval narrows with the square root of the number of records.
                let half = self.quality() - self.quality_bound();
                self.records as f64 * (half / excess).powi(2)
            }
        };
        Some(round_up(needed.max(1.0)))
    }
}

/// The number of standard deviations of a normal distribution that contain 95 % of it.
const Z: f64 = 1.959_964;

/// Rounds up to two significant digits.
fn round_up(value: f64) -> u64 {
    let step = 10f64.powf((value.log10().floor() - 1.0).max(0.0));
    ((value / step).ceil() * step).min(1e15) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_a_name_that_is_read_again() {
        let all = NAMES.iter().map(|(_, metric)| *metric);
        for metric in all.chain([Metric::TopK(5)]) {
            assert_eq!(Metric::parse(&metric.name()), Some(metric));
        }
        for none in ["", "top", "top0", "topk", "F1", "accuracy"] {
            assert_eq!(Metric::parse(none), None, "{none}");
        }
    }
}
