//! Figures, as JSON lines or as a table below the machine and the versions.

use anyhow::Result;
use serde_json::{Map, Value};

use crate::shell;

/// One measured number.
pub struct Figure {
    /// Experiment that it belongs to.
    pub experiment: &'static str,
    /// What was measured, if the metric has several cells.
    pub cell: Option<String>,
    /// Scheduling policy, if it matters.
    pub policy: Option<String>,
    /// Name, unit last.
    pub metric: String,
    /// Value in `unit`.
    pub value: f64,
    /// Unit, `ratio` for quotients.
    pub unit: &'static str,
    /// The goal that the table shows.
    pub goal: Option<&'static str>,
}

impl Figure {
    /// A figure of an experiment as a whole.
    pub fn new(
        experiment: &'static str,
        metric: &str,
        value: f64,
        unit: &'static str,
        goal: Option<&'static str>,
    ) -> Self {
        Self {
            experiment,
            cell: None,
            policy: None,
            metric: metric.to_owned(),
            value,
            unit,
            goal,
        }
    }

    /// The same figure with a cell.
    pub fn of(self, cell: &str) -> Self {
        Self {
            cell: Some(cell.to_owned()),
            ..self
        }
    }
}

/// Collects figures and prints them.
pub struct Report {
    json: bool,
    versions: Vec<(String, String)>,
    figures: Vec<Figure>,
}

impl Report {
    /// An empty report.
    pub fn new(json: bool) -> Self {
        Self {
            json,
            versions: Vec::new(),
            figures: Vec::new(),
        }
    }

    /// Notes the version of something that takes part.
    pub fn version(&mut self, name: &str, version: impl Into<String>) {
        self.versions.push((name.to_owned(), version.into()));
    }

    /// Adds a figure; in JSON it is printed at once.
    pub fn add(&mut self, figure: Figure) {
        if self.json {
            println!("{}", line(&figure));
        } else {
            shell::say(format!("{} = {}", figure.metric, number(figure.value)));
            self.figures.push(figure);
        }
    }

    /// Passes on a line that another program printed in the same format.
    pub fn pass(&mut self, text: &str) -> Result<()> {
        let value: Value = serde_json::from_str(text)?;
        if self.json {
            println!("{text}");
            return Ok(());
        }
        let text_of = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        self.figures.push(Figure {
            experiment: "",
            policy: value["policy"].as_str().map(str::to_owned),
            cell: value["cell"].as_str().map(str::to_owned),
            metric: text_of("metric"),
            value: value["value"].as_f64().unwrap_or(f64::NAN),
            unit: "",
            goal: None,
        });
        Ok(())
    }

    /// Prints the table.
    pub fn finish(self) -> Result<()> {
        if self.json {
            return Ok(());
        }
        println!("machine: {}", machine()?);
        for (name, version) in &self.versions {
            println!("{name}: {version}");
        }
        println!("\n| figure | on | value | goal |\n|---|---|---|---|");
        for figure in &self.figures {
            let on = [figure.cell.as_deref(), figure.policy.as_deref()];
            let on: Vec<&str> = on.into_iter().flatten().collect();
            let on = on.join(", ");
            let value = number(figure.value);
            println!(
                "| {} | {on} | {value} | {} |",
                figure.metric,
                figure.goal.unwrap_or("")
            );
        }
        Ok(())
    }
}

fn line(figure: &Figure) -> Value {
    let mut object = Map::new();
    object.insert("experiment".into(), figure.experiment.into());
    if let Some(cell) = &figure.cell {
        object.insert("cell".into(), cell.clone().into());
    }
    if let Some(policy) = &figure.policy {
        object.insert("policy".into(), policy.clone().into());
    }
    object.insert("metric".into(), figure.metric.clone().into());
    object.insert("value".into(), figure.value.into());
    object.insert("unit".into(), figure.unit.into());
    Value::Object(object)
}

/// Formats a value with three significant digits, or with more before the point.
fn number(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size >= 100.0 => format!("{value:.0}"),
        _ if size >= 10.0 => format!("{value:.1}"),
        _ if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn machine() -> Result<String> {
    let processors = std::fs::read_to_string("/proc/cpuinfo")?;
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, name)| name);
    let cores = std::thread::available_parallelism()?;
    let memory = std::fs::read_to_string("/proc/meminfo")?;
    let kibibytes: f64 = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB"))
        .and_then(|size| size.trim().parse().ok())
        .unwrap_or(f64::NAN);
    let load = std::fs::read_to_string("/proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or_default();
    let system = shell::output(shell::command("uname").arg("-sr"))?;
    let gibibytes = kibibytes / 1024.0 / 1024.0;
    Ok(format!(
        "{model}, {cores} cores, {gibibytes:.0} GiB, {}, load average at the end {load}",
        system.trim()
    ))
}
