//! Experiments with fleets: settings as data, runs in parallel, figures in one order.

use std::{collections::BTreeMap, path::Path};

use sextant_schedule::{Options, Schedulers};

use super::{Policy, Report, Setting, format};
use crate::{Error, Record, parallel};

/// An experiment as read from its file.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// Its name.
    pub name: String,
    /// What it shows, in one line.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// Policies that are compared by default.
    pub policies: Vec<Policy>,
    /// The default number of seeds.
    pub seeds: u64,
    /// The settings, in the order of the report.
    pub cells: Vec<Cell>,
    /// The settings of the reduced version.
    pub quick: Vec<Cell>,
    /// The number of seeds of the reduced version.
    pub quick_seeds: u64,
}

/// One setting.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Its name.
    pub name: String,
    /// What the baselines are pinned to, as part of the name of a figure.
    pub baseline: Option<String>,
    /// The setting that is run.
    pub setting: Setting,
}

/// Which parts of an experiment to run, and how.
#[derive(Debug, Clone)]
pub struct Plan<P = Policy> {
    /// Policies; empty for the experiment's own choice.
    pub policies: Vec<P>,
    /// Seeds are `1..=seeds`; 0 for the experiment's own number.
    pub seeds: u64,
    /// Names of the cells; empty for all.
    pub cells: Vec<String>,
    /// Whether to run the reduced version.
    pub quick: bool,
    /// Runs at the same time; 0 for one per core, or for one run if time is measured.
    pub threads: usize,
}

// === impl Plan ===

impl<P> Default for Plan<P> {
    fn default() -> Self {
        Self {
            policies: Vec::new(),
            seeds: 0,
            cells: Vec::new(),
            quick: false,
            threads: 0,
        }
    }
}

// === impl Experiment ===

impl Experiment {
    /// Whether a file's text contains an experiment of this kind.
    pub fn is_in(text: &str) -> bool {
        let table = text.parse::<toml::Table>().unwrap_or_default();
        table.get("kind").and_then(toml::Value::as_str) == Some("fleet")
    }

    /// Reads a user's experiment. Paths are relative to the file's folder.
    ///
    /// # Errors
    /// If a file cannot be read or a setting is invalid. The message names the file and the cell.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => format::parse(&file, &text, path.parent()),
            Err(source) => Err(Error::Read { file, source }),
        }
    }

    /// The experiment in `text`; `file` names it in errors.
    ///
    /// # Errors
    /// As for [`Self::load`].
    pub fn parse(text: &str, file: &str) -> Result<Self, Error> {
        format::parse(file, text, None)
    }
}

/// Runs what `plan` says. `on` is called with the number of finished runs and the total. Returns the figures of each
/// seed and their means, cell by cell and policy by policy, and after each cell how our policy compares.
///
/// # Errors
/// If the plan names a cell that does not exist, or a setting is invalid.
pub fn play(
    experiment: &Experiment,
    plan: &Plan,
    on: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Record>, Error> {
    play_by(experiment, plan, &|_| Options::default(), on)
}

/// The same with other scheduling policies in place of the service's, by the way to run the fleet.
///
/// # Errors
/// As for [`play`].
pub fn play_by<S: Schedulers>(
    experiment: &Experiment,
    plan: &Plan,
    schedulers: &(impl Fn(Policy) -> S + Sync),
    on: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Record>, Error> {
    let cells = plan.cells(experiment)?;
    let policies = match plan.policies.is_empty() {
        true => &experiment.policies,
        false => &plan.policies,
    };
    let seeds = match (plan.seeds, plan.quick) {
        (0, false) => experiment.seeds,
        (0, true) => experiment.quick_seeds,
        (seeds, _) => seeds,
    };
    let mut todo: Vec<(usize, Policy, u64)> = Vec::new();
    for cell in 0..cells.len() {
        for policy in policies {
            todo.extend((1..=seeds).map(|seed| (cell, *policy, seed)));
        }
    }
    let work = |(cell, policy, seed): &(usize, Policy, u64)| {
        let mut setting = cells[*cell].setting.clone();
        setting.seed = *seed;
        super::run_by(&setting, *policy, &schedulers(*policy))
    };
    let mut reports: BTreeMap<usize, Report> = BTreeMap::new();
    let mut failed = None;
    let threads = parallel::threads(plan.threads);
    parallel::each(&todo, threads, work, |at, report| {
        match report {
            Ok(report) => {
                reports.insert(at, report);
                on(reports.len(), todo.len());
            }
            Err(error) => failed = Some(error),
        }
        failed.is_none()
    });
    if let Some(error) = failed {
        return Err(error);
    }
    let mut records = Vec::new();
    for (at, cell) in cells.iter().enumerate() {
        let mut means = Vec::new();
        for policy in policies {
            let of = todo.iter().enumerate();
            let of = of.filter(|(_, (of, by, _))| *of == at && by == policy);
            let figures = of.filter_map(|(at, (_, _, seed))| {
                let report = reports.get(&at)?;
                let label = Label(&experiment.name, &cell.name, *policy, Some(*seed));
                Some(label.records(report.figures(&cell.setting)))
            });
            let figures: Vec<Record> = figures.flatten().collect();
            means.extend(crate::means(&figures));
            records.extend(figures);
        }
        let compared = compare(&experiment.name, cell, policies, &means);
        records.extend(means);
        records.extend(compared);
    }
    Ok(records)
}

// === impl Plan ===

impl Plan {
    fn cells<'a>(&self, experiment: &'a Experiment) -> Result<Vec<&'a Cell>, Error> {
        let all = match self.quick {
            true => &experiment.quick,
            false => &experiment.cells,
        };
        let known = |name: &String| all.iter().any(|cell| cell.name == *name);
        if let Some(missing) = self.cells.iter().find(|name| !known(name)) {
            let names: Vec<&str> = all.iter().map(|cell| cell.name.as_str()).collect();
            return Err(Error::unknown("cell", missing, &names));
        }
        let chosen = all
            .iter()
            .filter(|cell| self.cells.is_empty() || self.cells.contains(&cell.name));
        Ok(chosen.collect())
    }
}

/// The run to which figures belong: experiment, cell, policy, seed.
struct Label<'a>(&'a str, &'a str, Policy, Option<u64>);

impl Label<'_> {
    fn records(&self, figures: Vec<(String, f64)>) -> Vec<Record> {
        let record = |(metric, value): (String, f64)| Record {
            experiment: self.0.to_owned(),
            cell: Some(self.1.to_owned()),
            policy: Some(self.2.name().to_owned()),
            unit: metric.rsplit('_').next().unwrap_or_default().to_owned(),
            metric,
            value,
            seed: self.3,
        };
        figures.into_iter().map(record).collect()
    }
}

/// How each policy compares with the others, by means. Above 1 it is cheaper, violates less or answers more. A mean
/// without violations counts as half of one query.
fn compare(experiment: &str, cell: &Cell, policies: &[Policy], means: &[Record]) -> Vec<Record> {
    let value = |policy: Policy, metric: &str| {
        let is = |it: &&Record| it.policy.as_deref() == Some(policy.name()) && it.metric == metric;
        means.iter().find(is).map(|it| it.value)
    };
    let mut records = Vec::new();
    for policy in policies.iter().filter(|policy| !policy.is_pinned()) {
        let mut figures = Vec::new();
        for other in policies.iter().filter(|other| *other != policy) {
            let of = other.name().replace('-', "_");
            let both = |metric: &str| Some((value(*policy, metric)?, value(*other, metric)?));
            if let Some((ours, theirs)) = both("cost_usd") {
                figures.push((format!("cost_vs_{of}_ratio"), theirs / ours.max(1e-12)));
            }
            let half = value(*policy, "sent_count").map_or(1.0, |sent| 50.0 / sent.max(1.0));
            if let Some((ours, theirs)) = both("violation_percent") {
                let ratio = theirs.max(half) / ours.max(half);
                figures.push((format!("violations_vs_{of}_ratio"), ratio));
            }
            if let Some((ours, theirs)) = both("throughput_rps") {
                figures.push((
                    format!("throughput_vs_{of}_ratio"),
                    ours / theirs.max(1e-12),
                ));
            }
        }
        let baselines = policies.iter().filter(|other| other.is_baseline());
        let cheapest = baselines.filter_map(|other| value(*other, "cost_usd"));
        let cheapest = cheapest.fold(f64::INFINITY, f64::min);
        if let (Some(name), Some(ours)) = (&cell.baseline, value(*policy, "cost_usd"))
            && cheapest.is_finite()
        {
            let ratio = cheapest / ours.max(1e-12);
            figures.push((format!("cost_vs_{name}_baseline_ratio"), ratio));
        }
        records.extend(Label(experiment, &cell.name, *policy, None).records(figures));
    }
    records
}
