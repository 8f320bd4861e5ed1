//! Targets on the wire.

use serde::{Deserialize, Serialize};
use sextant_types::{Code, Metric, Prefer, Targets};
use utoipa::ToSchema;

use crate::problem::Problem;

/// The targets of a query. A member that is left out sets no target.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Targets)]
pub struct TargetsBody {
    /// Deadline in milliseconds, counted from the arrival of the last byte of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, example = 20.0)]
    pub latency_ms: Option<f64>,
    /// Lowest accuracy, 0 to 1, for metrics of which more is better: all but the errors mae, rmse, mape and
    /// log_loss. It is compared with the lower end of the measured 95 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1, example = 0.95)]
    pub min_accuracy: Option<f64>,
    /// Greatest error, for the metrics mae, rmse, mape and log_loss. It is compared with the upper end of the
    /// measured 95 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub max_error: Option<f64>,
    /// Lowest accuracy as a share of that of the file as it was uploaded, above 0 and at most 1, for every
    /// metric. For a metric that is an error, the error may be at most that of the file divided by this
    /// share. If the application has several models, the share is of the most accurate one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1, example = 0.99)]
    pub min_relative_accuracy: Option<f64>,
    /// Greatest cost of a thousand queries, US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub max_cost_per_1k_usd: Option<f64>,
    /// Which of the variants that meet all targets answers; if it is left out, the cheapest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "accuracy")]
    pub prefer: Option<PreferBody>,
}

/// Which of the variants that meet all targets answers: the cheapest, the most accurate, or the fastest.
/// If there is no time for all queries, the service gives up accuracy before it gives up answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Prefer)]
pub enum PreferBody {
    /// The cheapest.
    Cost,
    /// The most accurate.
    Accuracy,
    /// The quickest.
    Latency,
}

impl From<PreferBody> for Prefer {
    fn from(body: PreferBody) -> Self {
        match body {
            PreferBody::Cost => Self::Cost,
            PreferBody::Accuracy => Self::Accuracy,
            PreferBody::Latency => Self::Latency,
        }
    }
}

impl From<Prefer> for PreferBody {
    fn from(prefer: Prefer) -> Self {
        match prefer {
            Prefer::Cost => Self::Cost,
            Prefer::Accuracy => Self::Accuracy,
            Prefer::Latency => Self::Latency,
        }
    }
}

// === impl TargetsBody ===

impl TargetsBody {
    /// Checks the values and converts accuracy to the quality scale.
    pub fn read(self) -> Result<Targets, Problem> {
        let targets = Targets {
            latency_ms: self.latency_ms,
            min_quality: self.quality()?,
            min_relative_accuracy: self.min_relative_accuracy,
            min_agreement: None,
            max_cost_per_1k_usd: self.max_cost_per_1k_usd,
            prefer: self.prefer.map(Prefer::from),
        };
        targets.validate()?;
        Ok(targets)
    }

    /// The same targets in the terms of a metric.
    pub fn show(targets: &Targets, metric: Metric) -> Self {
        let higher = metric.higher_is_better();
        Self {
            latency_ms: targets.latency_ms,
            min_accuracy: targets.min_quality.filter(|_| higher),
            max_error: targets.min_quality.filter(|_| !higher).map(|value| -value),
            min_relative_accuracy: targets.min_relative_accuracy,
            max_cost_per_1k_usd: targets.max_cost_per_1k_usd,
            prefer: targets.prefer.map(PreferBody::from),
        }
    }

    /// Refuses an accuracy target for the other kind of metric.
    pub fn suits(&self, metric: Metric) -> Result<(), Problem> {
        let (name, use_instead, given) = if metric.higher_is_better() {
            ("max_error", "min_accuracy", self.max_error)
        } else {
            ("min_accuracy", "max_error", self.min_accuracy)
        };
        if given.is_none() {
            return Ok(());
        }
        let metric = metric.name();
        let detail = format!("target `{name}` has no meaning for `{metric}`: use `{use_instead}`");
        Err(Problem::new(Code::InvalidTarget, detail).field(name))
    }

    fn quality(&self) -> Result<Option<f64>, Problem> {
        match (self.min_accuracy, self.max_error) {
            (Some(_), Some(_)) => Err(Problem::new(
                Code::InvalidTarget,
                "`min_accuracy` and `max_error` exclude each other",
            )),
            (Some(value), None) => in_range("min_accuracy", value, 1.0).map(Some),
            (None, Some(value)) => in_range("max_error", value, f64::MAX).map(|value| Some(-value)),
            (None, None) => Ok(None),
        }
    }
}

fn in_range(name: &'static str, value: f64, most: f64) -> Result<f64, Problem> {
    if (0.0..=most).contains(&value) {
        return Ok(value);
    }
    let rule = if most > 1.0 {
        "at least 0"
    } else {
        "between 0 and 1"
    };
    let detail = format!("target `{name}` is `{value}`: it must be {rule}");
    Err(Problem::new(Code::InvalidTarget, detail).field(name))
}
