//! What `sextant profile parallelism` found, as text and as lines of JSON.

use serde_json::{Value, json};
use sextant_policies::parallelism::{Profile, Summary};
use sextant_worker::parallelism::{Cell, Evaluation, least};

use crate::cli::output::{Table, short};

/// One object per figure; those of one load and configuration have a `cell`.
pub fn lines(evaluation: &Evaluation) -> Vec<Value> {
    let line = |metric: &str, value: f64, unit: &str| json!({"experiment": "serf", "metric": metric, "value": value, "unit": unit});
    let mut lines: Vec<Value> = evaluation
        .metrics()
        .iter()
        .map(|metric| line(&metric.name, metric.value, metric.unit))
        .collect();
    for cell in &evaluation.cells {
        let name = format!("{:.1}/s {}", cell.load_per_s, cell.configuration);
        for (metric, seconds) in figures(cell) {
            let mut line = line(metric, 1e3 * seconds, "ms");
            line["cell"] = json!(name);
            lines.push(line);
        }
    }
    lines
}

fn figures(cell: &Cell) -> Vec<(&'static str, f64)> {
    let names = [
        "serf_mean_ms",
        "exponential_interference_mean_ms",
        "deterministic_mean_ms",
        "exponential_mean_ms",
    ];
    let models = names.into_iter().zip(cell.models_s);
    let models = models.filter_map(|(name, predicted)| Some((name, predicted?)));
    models
        .chain([
            ("sextant_mean_ms", cell.played_mean_s),
            ("replayed_mean_ms", cell.replayed_mean_s),
            ("measured_mean_ms", cell.mean_s()),
            ("measured_service_ms", cell.service_s),
            ("sextant_p99_ms", cell.played_p99_s),
            ("measured_p99_ms", cell.p99_s()),
        ])
        .collect()
}

/// Tables, and what they come to.
pub fn text(evaluation: &Evaluation) -> String {
    let parts = [
        profile(&evaluation.profiled.profile),
        warnings(&evaluation.profiled.profile),
        cells(evaluation),
        choices(evaluation),
        figures_of_all(evaluation),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("\n\n")
}

fn profile(profile: &Profile) -> String {
    let mut table = Table::new(&[
        "#running",
        "#threads",
        "#mean ms",
        "#+-%",
        "#requests/s",
        "#slow-down",
        "#SCV",
        "#samples",
    ]);
    for (tuple, summary) in profile.tuples() {
        let alone = profile.tuples().find(|(other, _)| {
            (other.running, other.inter, other.intra) == (1, tuple.inter, tuple.intra)
        });
        let slow_down = alone.map_or(1.0, |(_, alone)| summary.mean_s / alone.mean_s);
        table.row(vec![
            tuple.running.to_string(),
            tuple.intra.to_string(),
            short(1e3 * summary.mean_s),
            short(100.0 * summary.half_width),
            short(f64::from(tuple.running) / summary.mean_s),
            short(slow_down),
            short(summary.scv),
            summary.samples.to_string(),
        ]);
    }
    table.render()
}

fn warnings(profile: &Profile) -> String {
    let wild = profile
        .tuples()
        .filter(|(_, it)| !Summary::is_homogeneous(it));
    let lines = wild.map(|(tuple, summary)| {
        format!(
            "warning: service times of {} side by side on {} threads scatter (SCV {}): requests are \
             not of one kind, predictions from their mean are not to be trusted",
            tuple.running,
            tuple.intra,
            short(summary.scv)
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn cells(evaluation: &Evaluation) -> String {
    let mut table = Table::new(&[
        "#requests/s",
        "configuration",
        "#serf ms",
        "#sextant ms",
        "#replayed ms",
        "#measured ms",
        "#serf error %",
        "#sextant error %",
        "#p99 predicted",
        "#p99 measured",
        "#spread %",
    ]);
    for cell in &evaluation.cells {
        let ms = |seconds: f64| short(1e3 * seconds);
        let percent = |predicted: f64| short(100.0 * (predicted / cell.mean_s() - 1.0));
        let serf = cell.models_s[0];
        table.row(vec![
            short(cell.load_per_s),
            cell.configuration.to_string(),
            serf.map_or_else(|| "-".to_owned(), ms),
            ms(cell.played_mean_s),
            ms(cell.replayed_mean_s),
            ms(cell.mean_s()),
            serf.map_or_else(|| "-".to_owned(), percent),
            percent(cell.played_mean_s),
            ms(cell.played_p99_s),
            ms(cell.p99_s()),
            short(100.0 * cell.spread()),
        ]);
    }
    table.render()
}

fn choices(evaluation: &Evaluation) -> String {
    let mut table = Table::new(&[
        "#requests/s",
        "serf",
        "sextant",
        "sextant p99",
        "measured best",
        "measured best p99",
    ]);
    for cells in evaluation.loads() {
        let by = |value: &dyn Fn(&Cell) -> f64| {
            let chosen = least(cells, value);
            chosen.map_or_else(String::new, |cell| cell.configuration.to_string())
        };
        table.row(vec![
            cells
                .first()
                .map_or_else(String::new, |cell| short(cell.load_per_s)),
            by(&|cell| cell.models_s[0].unwrap_or(f64::INFINITY)),
            by(&|cell| cell.played_mean_s),
            by(&|cell| cell.played_p99_s),
            by(&Cell::mean_s),
            by(&Cell::p99_s),
        ]);
    }
    table.render()
}

fn figures_of_all(evaluation: &Evaluation) -> String {
    let mut table = Table::new(&["figure", "#value", "unit"]);
    for metric in evaluation.metrics() {
        table.row(vec![
            metric.name,
            short(metric.value),
            metric.unit.to_owned(),
        ]);
    }
    table.render()
}
