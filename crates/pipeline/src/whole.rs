//! Measurements of a pipeline as a whole, and the targets that it meets.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use sextant_rpc::{QueryError, StepRecord};
use sextant_types::{Accuracy, Code, Targets, VariantId, WholeAccuracy};

/// The measurements of a pipeline on its validation set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Its accuracy, with the interval.
    pub accuracy: Accuracy,
    /// Median time of a record that was asked alone, without loads, ms.
    pub p50_ms: f64,
    /// 99th percentile of the same times, ms.
    pub p99_ms: f64,
    /// List price of a thousand queries, US dollars: the rows of the steps at the prices of the variants that answered
    /// them, priced as variants are.
    pub cost_per_1k_usd: f64,
    /// Charge for a thousand queries, each alone in its batches, US dollars.
    pub charged_per_1k_usd: f64,
    /// How often its steps ran, by the names of the steps.
    #[serde(default)]
    pub steps: BTreeMap<String, StepShare>,
}

/// How often a step ran.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StepShare {
    /// Queries in which the step ran.
    pub ran: u64,
    /// Queries in which the step did not run.
    pub skipped: u64,
    /// Rows that the step was asked for.
    pub rows: u64,
    /// The variants that answered, with the number of answers of each.
    #[serde(default)]
    pub variants: BTreeMap<VariantId, u64>,
}

/// What is known of a pipeline as a whole.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Whole {
    /// The pipeline has no validation set.
    #[default]
    Unmeasured,
    /// The pipeline is being measured. An earlier measurement is of another version of it or of its models, and no
    /// longer holds.
    Pending(Option<Measurement>),
    /// The current measurement: nothing has changed since.
    Current(Measurement),
}

/// The accuracy that a query demands of the whole and that the pipeline was measured to have.
#[derive(Debug)]
pub(crate) struct AccuracyDemand {
    least: f64,
    measured: f64,
    whole: Arc<Whole>,
}

/// When a query of a pipeline that is being measured may be tried again, ms.
const MEASURING_RETRY_MS: f64 = 1000.0;

// === impl Whole ===

impl Whole {
    /// The measurement that holds now.
    pub fn current(&self) -> Option<&Measurement> {
        match self {
            Self::Current(measured) => Some(measured),
            Self::Unmeasured | Self::Pending(_) => None,
        }
    }

    /// Checks whether the pipeline meets the targets of the whole, except latency. A relative accuracy is relative to
    /// what was measured of the pipeline itself, so the pipeline meets it wherever a measurement exists.
    ///
    /// # Errors
    /// Which target the pipeline misses and by how much, or that nothing was measured.
    pub fn check(&self, name: &str, targets: &Targets) -> Result<(), QueryError> {
        let asked = [
            ("min_accuracy", targets.min_quality.is_some()),
            (
                "min_relative_accuracy",
                targets.min_relative_accuracy.is_some(),
            ),
            ("max_cost_per_1k_usd", targets.max_cost_per_1k_usd.is_some()),
        ];
        let Some((target, _)) = asked.into_iter().find(|(_, is_asked)| *is_asked) else {
            return Ok(());
        };
        let measured = match self {
            Self::Current(measured) => measured,
            Self::Unmeasured => {
                let message = format!(
                    "pipeline `{name}` was not measured as a whole, which `{target}` needs: give its definition a `validation`"
                );
                return Err(QueryError::new(Code::InvalidTarget, message));
            }
            Self::Pending(_) => {
                let message = format!(
                    "pipeline `{name}` is being measured as a whole, which `{target}` needs: try again, or see its \
                     job under `GET /v1/pipelines/{name}`"
                );
                return Err(
                    QueryError::new(Code::Unavailable, message).retry_after_ms(MEASURING_RETRY_MS)
                );
            }
        };
        measured.check(name, targets)
    }
}

// === impl AccuracyDemand ===

impl AccuracyDemand {
    /// The accuracy that `targets` demand of the whole; `None` where they demand none or more than the pipeline has,
    /// and where the metric is no share of right answers.
    pub fn of(whole: &Arc<Whole>, targets: &Targets) -> Option<Self> {
        let measured = whole.current()?.accuracy.share()?;
        let share = targets.min_relative_accuracy.map(|share| share * measured);
        let least = targets.min_quality.into_iter().chain(share);
        let least = least.reduce(f64::max)?;
        (least > 0.0 && least <= measured).then(|| Self {
            least,
            measured,
            whole: Arc::clone(whole),
        })
    }

    /// The demand as a step reports it.
    pub fn of_step(&self, step: &str) -> Option<WholeAccuracy> {
        let share = self.whole.current()?.steps.get(step);
        Some(WholeAccuracy {
            least: self.least,
            measured: self.measured,
            answered: share.map(StepShare::answered).unwrap_or_default(),
        })
    }
}

// === impl Measurement ===

impl Measurement {
    fn check(&self, name: &str, targets: &Targets) -> Result<(), QueryError> {
        let refused = |message: String| Err(QueryError::new(Code::TargetInfeasible, message));
        let of = &self.accuracy;
        if let Some(least) = targets.min_quality
            && of.quality_bound() < least
        {
            let (target, end, bound, asked) = match of.metric.higher_is_better() {
                true => ("min_accuracy", "lower", of.lower, least),
                false => ("max_error", "upper", of.upper, -least),
            };
            return refused(format!(
                "pipeline `{name}` is not accurate enough: `{}` was measured as {:.4} ({:.4} to {:.4}) over {} records, \
                 and `{target}`, {asked}, is compared with the {end} end, {bound:.4}",
                of.metric.name(),
                of.value,
                of.lower,
                of.upper,
                of.records,
            ));
        }
        match targets.max_cost_per_1k_usd {
            Some(most) if self.cost_per_1k_usd > most => refused(format!(
                "pipeline `{name}` costs too much: its steps list {} US dollars for a thousand queries, and \
                 `max_cost_per_1k_usd` is {most}",
                self.cost_per_1k_usd
            )),
            _ => Ok(()),
        }
    }
}

// === impl StepShare ===

impl StepShare {
    /// Counts the outcome of the step in one more query.
    pub fn count(&mut self, taken: &StepRecord) {
        match taken.outcome.as_ref() {
            "skipped" => self.skipped += 1,
            _ => {
                self.ran += 1;
                self.rows += u64::from(taken.rows);
                if let Some(variant) = &taken.variant {
                    *self.variants.entry(variant.clone()).or_default() += 1;
                }
            }
        }
    }

    /// The variant that answered most often.
    pub fn variant(&self) -> Option<&VariantId> {
        let most = self.variants.iter().max_by_key(|(_, count)| **count);
        most.map(|(variant, _)| variant)
    }

    /// The variants that answered, most frequent first.
    pub fn answered(&self) -> Vec<VariantId> {
        let mut all: Vec<_> = self.variants.iter().collect();
        all.sort_by_key(|(_, count)| Reverse(**count));
        all.into_iter()
            .map(|(variant, _)| variant.clone())
            .collect()
    }
}
