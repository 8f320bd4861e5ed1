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
        let spreads: Vec<f64> = self.cells.iter().map(Cell::spread).collect();
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
            ("repetition_spread", spreads),
            ("serf_regret", self.regrets(|cell| cell.models_s[0])),
            (
                "sextant_regret",
                self.regrets(|cell| Some(cell.played_mean_s)),
            ),
        ];
        for (name, shares) in shares {
            let mean = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
            let p90 = quantile(&shares, 0.9);
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
