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
    /// Mean of |output - label| over all elements; smaller is better.
    MeanAbsoluteError,
}

impl Metric {
    /// Whether a larger value is better.
    pub fn higher_is_better(self) -> bool {
        self != Self::MeanAbsoluteError
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

    /// `top1`, `top5`, `exact`, `mae`.
    pub fn name(self) -> String {
        match self {
            Self::Top1 => "top1".to_owned(),
            Self::TopK(k) => format!("top{k}"),
            Self::Exact => "exact".to_owned(),
            Self::MeanAbsoluteError => "mae".to_owned(),
        }
    }

    /// The inverse of [`Metric::name`].
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "top1" => Some(Self::Top1),
            "exact" => Some(Self::Exact),
            "mae" => Some(Self::MeanAbsoluteError),
            _ => {
                let k = name.strip_prefix("top")?.parse().ok()?;
                (k > 1).then_some(Self::TopK(k))
            }
        }
    }
}

/// A measured accuracy with its 95 % interval: Wilson for proportions, bootstrap for means.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Accuracy {
    /// How it was scored.
    pub metric: Metric,
    /// The point estimate, in the metric's own unit.
    pub value: f64,
    /// Lower end of the 95 % interval, in the metric's own unit.
    pub lower: f64,
    /// Upper end of the 95 % interval, in the metric's own unit.
    pub upper: f64,
    /// Records of the validation set that were scored.
    pub records: u64,
    /// Rows per batch while measuring: outputs of dynamically quantised variants depend on it.
    pub evaluation_batch: u32,
}

impl Accuracy {
    /// The pessimistic end of the interval on the quality scale (larger is better): what an
    /// accuracy target is compared with.
    pub fn quality_bound(&self) -> f64 {
        if self.metric.higher_is_better() {
            self.lower
        } else {
            -self.upper
        }
    }
}
