//! The workers' figures: deadlines and cold starts on emulated devices, how well run times at other sizes are
//! predicted, memory of variants that share weights, punctuality of starts.

use anyhow::{Context, Result};
use serde_json::Value;

use super::report::{Figure, Report};
use super::{Arguments, example};
use crate::{models, provision, server, shell};

/// The parts that `--parts` may name.
pub const PARTS: [&str; 4] = ["clockwork", "shapes", "weights", "windows"];

/// The simulated experiment that has the figures.
const EXPERIMENT: &str = "clockwork-fig6";

/// Numbers of devices with which the punctuality of starts is measured.
const DEVICES: [&str; 2] = ["1", "4"];

/// The goals of figures, by metric.
const GOALS: [(&str, &str); 4] = [
    ("shape_prediction_error_p90_percent", "<= 15"),
    ("success_latency_max_ms", "<= 100"),
    ("minor_cold_starts", "0"),
    ("shared_weights_ratio", "< 1.3"),
];

/// Measures the requested parts.
pub fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    if arguments.wants("clockwork") {
        clockwork(&arguments.policy, report)?;
    }
    if arguments.wants("shapes") {
        shapes(report)?;
    }
    if arguments.wants("weights") {
        provision::runtime()?;
        report.version("ONNX Runtime", "1.31.1");
        let lines = output("sextant-engine-ort", "shared_weights", &[])?;
        pass(&lines, report)?;
    }
    if arguments.wants("windows") {
        for devices in DEVICES {
            pass(&output("sextant-worker", "windows", &[devices])?, report)?;
        }
    }
    Ok(())
}

/// Run times of a text encoder at sizes that were never measured.
fn shapes(report: &mut Report) -> Result<()> {
    let provisioned = provision::runtime()?;
    report.version("ONNX Runtime", "1.31.1");
    let folder = models::write(&provisioned.python, &["encoder"])?;
    let files = ["encoder.onnx", "encoder-validation.npz"].map(|name| folder.join(name));
    let files = files.map(|file| file.display().to_string());
    let arguments = [files[0].as_str(), files[1].as_str(), "--json"];
    pass(
        &output("sextant-variant-gen", "shapes", &arguments)?,
        report,
    )
}

/// Runs the experiment as a user does and takes the wanted figures from it.
fn clockwork(policy: &str, report: &mut Report) -> Result<()> {
    let mut command = shell::command(server::build_lab()?);
    command
        .args(["--json", "experiment", EXPERIMENT])
        .args(["--policy", policy]);
    eprintln!("$ {}", shell::show(&command));
    let lines = shell::output(&mut command)?;
    let wanted = [
        "success_latency_max_ms",
        "minor_cold_starts",
        "minor_throughput_rps",
    ];
    let mut found = 0;
    for line in lines.lines().filter(|line| line.starts_with('{')) {
        let record: Value = serde_json::from_str(line)?;
        let metric = record["metric"].as_str().unwrap_or_default();
        // Figures of a single seed or a single interval do not count.
        let cell = record["cell"].as_str().unwrap_or_default();
        let whole = record["seed"].is_null() && !cell.contains('/');
        if wanted.contains(&metric) && whole {
            report.add(figure(&record)?);
            found += 1;
        }
    }
    anyhow::ensure!(found > 0, "`{EXPERIMENT}` reports none of {wanted:?}");
    Ok(())
}

/// Returns what an example prints.
fn output(package: &str, name: &str, arguments: &[&str]) -> Result<String> {
    let mut command = shell::command(example(package, name)?);
    command.args(arguments).env("MIMALLOC_PURGE_DELAY", "1000");
    eprintln!("$ {}", shell::show(&command));
    shell::output(&mut command)
}

/// Passes on the figures among `lines`.
fn pass(lines: &str, report: &mut Report) -> Result<()> {
    for line in lines.lines().filter(|line| line.starts_with('{')) {
        report.add(figure(&serde_json::from_str(line)?)?);
    }
    Ok(())
}

fn figure(record: &Value) -> Result<Figure> {
    let text = |key: &str| record[key].as_str().map(str::to_owned);
    let metric = text("metric").with_context(|| format!("no metric in {record}"))?;
    let goal = GOALS.iter().find(|(name, _)| *name == metric);
    Ok(Figure {
        experiment: "worker",
        cell: text("cell"),
        policy: text("policy"),
        value: record["value"]
            .as_f64()
            .with_context(|| format!("no value in {record}"))?,
        unit: unit(record["unit"].as_str().unwrap_or_default(), &metric),
        goal: goal.map(|(_, goal)| *goal),
        metric,
    })
}

/// The unit of a figure: the stated one, or else the end of the metric's name.
fn unit(stated: &str, metric: &str) -> &'static str {
    let units = [
        "ms", "us", "s", "MB", "MiB", "ratio", "percent", "rps", "count", "requests",
    ];
    let is = |unit: &&&str| stated == **unit;
    let ends = |unit: &&&str| stated.is_empty() && metric.ends_with(&format!("_{unit}"));
    let known = units.iter().find(|unit| is(unit) || ends(unit));
    known.copied().unwrap_or("count")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_other_programs_become_figures() {
        let record = serde_json::json!({"experiment": "weights", "metric": "shared_weights_ratio",
            "value": 1.1, "unit": "ratio"});
        let figure = figure(&record).unwrap();
        assert_eq!((figure.experiment, figure.unit), ("worker", "ratio"));
        assert_eq!(figure.goal, Some("< 1.3"));
        assert_eq!(unit("", "success_latency_max_ms"), "ms");
        assert_eq!(unit("", "minor_cold_starts"), "count");
    }

    #[test]
    fn a_record_without_a_value_is_an_error() {
        let record = serde_json::json!({"metric": "shared_weights_ratio"});
        assert!(figure(&record).is_err());
    }
}
