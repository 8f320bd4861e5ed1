//! What `sextant profile parallelism` found, as text and as lines of JSON.

use serde_json::{Value, json};
use sextant_policies::parallelism::{Profile, Summary};
use sextant_worker::parallelism::{Cell, Evaluation, GOALS, least};

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
        verdict(evaluation),
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

/// What the errors are worth on this machine.
fn verdict(evaluation: &Evaluation) -> String {
    let percent = |share: f64| format!("{} %", short(100.0 * share));
    let goals = format!(
        "goals: {} on average, {} for 90 of 100",
        percent(GOALS.mean),
        percent(GOALS.p90)
    );
    let floor = evaluation.noise_floor().map_or_else(
        || "nothing was repeated".to_owned(),
        |floor| {
            let (mean, p90) = (percent(floor.mean), percent(floor.p90));
            format!("repetitions of one run differ by {mean} and {p90}")
        },
    );
    let verdict = evaluation.verdict().name();
    format!("prediction by equation 12: {verdict} ({goals}; {floor})")
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sextant_policies::parallelism::Configuration;
    use sextant_worker::parallelism::Profiled;

    use super::*;

    fn summary(mean_s: f64, scv: f64) -> Summary {
        Summary {
            samples: 10,
            mean_s,
            scv,
            half_width: 0.01,
        }
    }

    fn cell(configuration: Configuration, predicted_s: f64, measured_s: f64) -> Cell {
        Cell {
            load_per_s: 40.0,
            configuration,
            models_s: [Some(predicted_s), None, Some(0.02), Some(0.03)],
            played_mean_s: predicted_s,
            played_p99_s: 3.0 * predicted_s,
            replayed_mean_s: predicted_s,
            means_s: vec![measured_s, measured_s],
            p99s_s: vec![3.0 * measured_s; 2],
            service_s: 0.01,
            requests: 400,
        }
    }

    fn evaluation() -> Evaluation {
        let (wide, many) = (Configuration::local(1, 2), Configuration::local(2, 1));
        let mut profile = Profile::default();
        profile.insert(wide.full(), summary(0.008, 0.0));
        for (tuple, mean_s) in many.tuples().zip([0.010, 0.012]) {
            profile.insert(tuple, summary(mean_s, 0.9));
        }
        Evaluation {
            profiled: Profiled {
                profile: profile.clone(),
                requests: 30,
                took: Duration::from_secs(2),
            },
            again: profile,
            cells: vec![cell(wide, 0.010, 0.016), cell(many, 0.011, 0.011)],
            capacity_per_s: 150.0,
            took: Duration::from_secs(20),
            exhaustive_s: 1000.0,
        }
    }

    #[test]
    fn tables_tell_choices_and_doubts() {
        let text = text(&evaluation());
        assert!(
            text.contains("warning: service times of 1 side by side"),
            "{text}"
        );
        let by_prediction = "40.0  (1, 1, 2)  (1, 1, 2)";
        let choices = text.lines().find(|line| line.contains(by_prediction));
        let choices = choices.unwrap_or_default();
        assert!(choices.contains("(2, 1, 1)"), "{text}");
        assert!(text.contains("-37.5"), "{text}");
    }

    #[test]
    fn lines_hold_what_benchmarks_read() {
        let lines = lines(&evaluation());
        let value = |name: &str| {
            let line = lines.iter().find(|line| line["metric"] == name);
            line.and_then(|line| line["value"].as_f64())
                .unwrap_or(f64::NAN)
        };
        assert!(value("serf_vector_error") < 1e-4);
        assert!((value("serf_prediction_error_mean_percent") - 18.75).abs() < 1e-9);
        assert!((value("serf_prediction_error_p90_percent") - 37.5).abs() < 1e-9);
        assert!((value("serf_regret_mean_percent") - 100.0 * 5.0 / 11.0).abs() < 1e-6);
        assert!((value("profiling_saving") - 500.0).abs() < 1e-9);
        let cells = lines
            .iter()
            .filter(|line| line["cell"] == "40.0/s (2, 1, 1)");
        assert_eq!(cells.count(), 9);
    }
}
