//! An evaluation as figures: name, value, unit.

use sextant_policies::parallelism::{Model, known};

use super::{Cell, Evaluation, evaluation::quantile};

/// One figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// What it is.
    pub name: String,
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
}

/// Prediction errors that count as right, as shares: the mean over all loads and configurations, and
/// the 90th percentile.
pub const GOALS: Quality = Quality {
    mean: 0.04,
    p90: 0.10,
};

/// How far something is off over all loads and configurations, as shares.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quality {
    /// The mean.
    pub mean: f64,
    /// The 90th percentile.
    pub p90: f64,
}

/// What an evaluation says of the predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The errors are within [`GOALS`].
    Met,
    /// They are not, and repetitions agree well enough to tell.
    Missed,
    /// Repetitions of one and the same run differ by more than the goals, or there were none: the
    /// machine was not quiet enough for the errors to say anything.
    Inconclusive,
}

impl Quality {
    /// Of these shares.
    pub fn of(shares: &[f64]) -> Self {
        Self {
            mean: shares.iter().sum::<f64>() / shares.len().max(1) as f64,
            p90: quantile(shares, 0.9),
        }
    }

    fn within(self, goals: Self) -> bool {
        self.mean <= goals.mean && self.p90 <= goals.p90
    }
}

impl Verdict {
    /// Of these errors above this noise floor; `None` where nothing was repeated.
    pub fn of(errors: Quality, floor: Option<Quality>) -> Self {
        match floor {
            Some(floor) if floor.within(GOALS) && errors.within(GOALS) => Self::Met,
            Some(floor) if floor.within(GOALS) => Self::Missed,
            _ => Self::Inconclusive,
        }
    }

    /// `met`, `missed` or `inconclusive`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::Inconclusive => "inconclusive",
        }
    }
}

impl Metric {
    /// A figure.
    pub fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self {
            name: name.into(),
            value,
            unit,
        }
    }
}

impl Evaluation {
    /// All figures, those of the paper's model first.
    pub fn metrics(&self) -> Vec<Metric> {
        let mut metrics = vec![Metric::new(
            "serf_vector_error",
            known::largest_error(),
            "s",
        )];
        let by = |predicted: &dyn Fn(&Cell) -> f64| -> Vec<f64> {
            let cells = self.cells.iter();
            cells.map(|cell| cell.error(predicted(cell))).collect()
        };
        let interference = self.errors(Model::ExponentialInterference);
        let shares = [
            ("serf_prediction_error", self.errors(Model::Serf)),
            ("sextant_prediction_error", by(&|cell| cell.played_mean_s)),
            ("sextant_p99_error", self.p99_errors()),
            (
                "replayed_prediction_error",
                by(&|cell| cell.replayed_mean_s),
            ),
            ("exponential_interference_prediction_error", interference),
            (
                "deterministic_prediction_error",
                self.errors(Model::Deterministic),
            ),
            (
                "exponential_prediction_error",
                self.errors(Model::Exponential),
            ),
            ("repetition_spread", self.spreads()),
            ("serf_regret", self.regrets(|cell| cell.models_s[0])),
            (
                "sextant_regret",
                self.regrets(|cell| Some(cell.played_mean_s)),
            ),
        ];
        for (name, shares) in shares {
            let Quality { mean, p90 } = Quality::of(&shares);
            metrics.push(Metric::new(
                format!("{name}_mean_percent"),
                100.0 * mean,
                "percent",
            ));
            metrics.push(Metric::new(
                format!("{name}_p90_percent"),
                100.0 * p90,
                "percent",
            ));
        }
        let is_inconclusive = self.verdict() == Verdict::Inconclusive;
        metrics.push(Metric::new(
            "serf_prediction_inconclusive",
            f64::from(u8::from(is_inconclusive)),
            "0 or 1",
        ));
        let profiling_s = self.profiled.took.as_secs_f64();
        let requests = self.profiled.requests as f64;
        metrics.extend([
            Metric::new("profile_drift_percent", 100.0 * self.drift(), "percent"),
            Metric::new("profiling_s", profiling_s, "s"),
            Metric::new("profiling_requests", requests, "requests"),
            Metric::new("exhaustive_profiling_s", self.exhaustive_s, "s"),
            Metric::new("profiling_saving", self.exhaustive_s / profiling_s, "ratio"),
        ]);
        metrics
    }

    /// How much repetitions of one and the same run differ: errors below it say nothing. `None` where
    /// nothing was repeated.
    pub fn noise_floor(&self) -> Option<Quality> {
        let repeated = self.cells.iter().all(|cell| cell.means_s.len() > 1);
        (repeated && !self.cells.is_empty()).then(|| Quality::of(&self.spreads()))
    }

    /// Whether equation 12 predicts what was measured, as far as this machine lets one tell.
    pub fn verdict(&self) -> Verdict {
        Verdict::of(Quality::of(&self.errors(Model::Serf)), self.noise_floor())
    }

    fn spreads(&self) -> Vec<f64> {
        self.cells.iter().map(Cell::spread).collect()
    }

    /// For each load, by how much the mean of the configuration with the least `predicted` is above
    /// the least measured one, as a share.
    pub fn regrets(&self, predicted: impl Fn(&Cell) -> Option<f64>) -> Vec<f64> {
        let regret = |cells: &[Cell]| {
            let chosen = least(cells, |cell| predicted(cell).unwrap_or(f64::INFINITY))?;
            let best = least(cells, Cell::mean_s)?;
            Some(chosen.mean_s() / best.mean_s() - 1.0)
        };
        self.loads().filter_map(regret).collect()
    }

    fn p99_errors(&self) -> Vec<f64> {
        let cells = self.cells.iter();
        cells
            .map(|cell| (cell.played_p99_s / cell.p99_s() - 1.0).abs())
            .collect()
    }
}

/// The cell with the least value; the first of equals.
pub fn least(cells: &[Cell], value: impl Fn(&Cell) -> f64) -> Option<&Cell> {
    cells.iter().min_by(|a, b| value(a).total_cmp(&value(b)))
}
