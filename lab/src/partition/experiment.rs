//! Experiments with partitions: settings as data.

use std::path::Path;

use serde::Deserialize;
use sextant_partition::Policy;

use sextant_simulator::Error;

/// The shipped experiment and its name.
const SHIPPED: (&str, &str) = (
    "symphony-fig15",
    include_str!("../../experiments/symphony-fig15.toml"),
);

/// An experiment as read from its file.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// Its name.
    pub name: String,
    /// What the experiment shows, in one line.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// Methods that are compared by default.
    pub policies: Vec<Policy>,
    /// Mean of the models' rates, requests per second.
    pub mean_rate_rps: f64,
    /// The memory sizes; each model has one of them.
    pub memory: Vec<Memory>,
    /// The settings, in the order of the report.
    pub cells: Vec<Cell>,
    /// The effort in each cell.
    pub effort: Effort,
    /// Names of the cells of the reduced version, and the effort there.
    pub quick: (Vec<String>, Effort),
}

/// The effort in each cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
    /// Default number of seeds.
    pub seeds: u64,
    /// Most steps of `heuristic`.
    pub steps: u64,
    /// Partitions that `random` draws.
    pub draws: u64,
    /// Most seconds of the solver of `milp`.
    pub time_limit_s: f64,
}

/// Memory of a model.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Name of the model, for the reader.
    pub model: String,
    /// Memory that it always takes, million bytes.
    pub static_mb: f64,
    /// Additional memory while it runs, million bytes.
    pub dynamic_mb: f64,
}

/// A number of models in a number of sub-clusters.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Its name.
    pub name: String,
    /// Number of models.
    pub models: usize,
    /// Number of sub-clusters.
    pub clusters: usize,
    /// Most requests per second of a sub-cluster; no limit without it.
    #[serde(default)]
    pub rate_limit_rps: Option<f64>,
    /// Most memory of a device, million bytes; no limit without it.
    #[serde(default)]
    pub memory_limit_mb: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "kind")]
    _kind: Kind,
    name: String,
    title: String,
    #[serde(default)]
    source: String,
    #[serde(default)]
    policies: Vec<String>,
    seeds: u64,
    mean_rate_rps: f64,
    memory: Vec<Memory>,
    steps: u64,
    draws: u64,
    time_limit_s: f64,
    cell: Vec<Cell>,
    #[serde(default)]
    quick: QuickSettings,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Partition,
}

/// What the reduced version changes.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct QuickSettings {
    cells: Vec<String>,
    seeds: Option<u64>,
    steps: Option<u64>,
    draws: Option<u64>,
    time_limit_s: Option<f64>,
}

/// Names of the shipped experiments.
pub fn names() -> Vec<&'static str> {
    vec![SHIPPED.0]
}

// === impl Experiment ===

impl Experiment {
    /// A shipped experiment; `None` if there is none of that name.
    ///
    /// # Errors
    /// Never: the file is part of the library.
    pub fn named(name: &str) -> Result<Option<Self>, Error> {
        match name == SHIPPED.0 {
            true => Self::parse(SHIPPED.1, name).map(Some),
            false => Ok(None),
        }
    }

    /// Whether the text of a file says that it holds such an experiment.
    pub fn is_in(text: &str) -> bool {
        let table = text.parse::<toml::Table>().unwrap_or_default();
        let kind = table.get("kind").and_then(toml::Value::as_str);
        kind == Some("partition")
    }

    /// Reads a user's experiment.
    ///
    /// # Errors
    /// When the file cannot be read or a setting makes no sense.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, &file),
            Err(source) => Err(Error::Read { file, source }),
        }
    }

    /// The experiment in `text`; `file` names it in errors.
    ///
    /// # Errors
    /// When it cannot be understood or a setting makes no sense.
    pub fn parse(text: &str, file: &str) -> Result<Self, Error> {
        let wrong = |problem: String| Error::experiment(file, problem);
        let of: File =
            toml::from_str(text).map_err(|error| wrong(error.to_string().trim_end().to_owned()))?;
        let policies = of.policies.iter().map(|name| name.parse::<Policy>());
        let policies: Result<Vec<Policy>, _> = policies.collect();
        let mut policies = policies.map_err(|error| wrong(error.to_string()))?;
        if policies.is_empty() {
            policies = Policy::ALL.to_vec();
        }
        let experiment = of.experiment(policies);
        check(&experiment).map_err(wrong)?;
        Ok(experiment)
    }
}

// === impl File ===

impl File {
    fn experiment(self, policies: Vec<Policy>) -> Experiment {
        let effort = Effort {
            seeds: self.seeds,
            steps: self.steps,
            draws: self.draws,
            time_limit_s: self.time_limit_s,
        };
        let quick = Effort {
            seeds: self.quick.seeds.unwrap_or(effort.seeds),
            steps: self.quick.steps.unwrap_or(effort.steps),
            draws: self.quick.draws.unwrap_or(effort.draws),
            time_limit_s: self.quick.time_limit_s.unwrap_or(effort.time_limit_s),
        };
        Experiment {
            name: self.name,
            title: self.title,
            source: self.source,
            policies,
            mean_rate_rps: self.mean_rate_rps,
            memory: self.memory,
            cells: self.cell,
            effort,
            quick: (self.quick.cells, quick),
        }
    }
}

/// Refuses invalid values. Limits and models are checked where they are divided.
fn check(experiment: &Experiment) -> Result<(), String> {
    let memory = experiment.memory.iter();
    let memory = memory.flat_map(|of| [("static_mb", of.static_mb), ("dynamic_mb", of.dynamic_mb)]);
    let cells = experiment.cells.iter();
    let limits = cells.filter_map(|cell| Some(("memory_limit_mb", cell.memory_limit_mb?)));
    let single = [
        ("mean_rate_rps", experiment.mean_rate_rps),
        ("time_limit_s", experiment.effort.time_limit_s),
        ("quick.time_limit_s", experiment.quick.1.time_limit_s),
    ];
    for (key, value) in single.into_iter().chain(memory).chain(limits) {
        // A billion seconds or a thousand petabytes are mistakes.
        if !(0.0..=1e9).contains(&value) {
            return Err(format!("`{key}` is `{value}`: it must be from 0 to 1e9"));
        }
    }
    if experiment.memory.is_empty() || experiment.cells.is_empty() {
        return Err("`memory` and `cell` must have an entry each at least".to_owned());
    }
    let known = |name: &String| experiment.cells.iter().any(|cell| cell.name == *name);
    match experiment.quick.0.iter().find(|name| !known(name)) {
        Some(name) => Err(format!("`quick.cells` names `{name}`, which is not a cell")),
        None => Ok(()),
    }
}
