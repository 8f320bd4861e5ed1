//! `sextant simulate`: experiments in virtual time, and a user's own what-if questions.
//!
//! Needs no server. Figures go to standard output, as tables or as one JSON object per line;
//! progress goes to standard error.

use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use serde_json::json;
use sextant_partition as division;
use sextant_scaling::autoscale;
use sextant_schedule::Policy;
use sextant_simulator::experiment::{self, Event, Experiment, Plan};

use super::{Client, Error, output::Output};

mod fleet;
mod grid;
mod machine;
mod partition;
mod prices;
mod progress;
mod registered;
mod replicas;
mod tables;
mod timeline;
mod what_if;

use progress::Progress;

/// Run scheduling policies on emulated devices, or autoscalers on replicas or on a fleet, in virtual time;
/// or divide models among sub-clusters.
///
/// All figures are simulated: requests, devices and network are a model, the policies are the ones
/// that the service runs. Partitions of models are computed offline. The same seeds give the same
/// figures, but for measured times and for `milp`, whose limit is a time. See docs/simulator.md.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("task").required(true).args(["experiment", "list", "what_if"]))]
#[command(group = clap::ArgGroup::new("fleet").multiple(true).args(["devices", "registered"]))]
pub struct Simulate {
    /// Run an experiment: a shipped one by name, or a TOML file.
    #[arg(long, value_name = "NAME|FILE")]
    experiment: Option<String>,
    /// List the shipped experiments.
    #[arg(long)]
    list: bool,
    /// Try recorded requests: on a number of devices by scheduling policies (`--devices`), or on a fleet
    /// that is scaled (`--registered`).
    #[arg(long, requires = "workload", requires = "fleet")]
    what_if: bool,
    /// Requests to replay: CSV with the columns `timestamp` (s) and `model`; with `--registered`
    /// `application` in its place.
    #[arg(long, value_name = "CSV", requires = "what_if")]
    workload: Option<PathBuf>,
    /// Kinds of devices and models with run times: TOML. With `--registered`: types of devices in place of
    /// those that the service has.
    #[arg(long, value_name = "TOML", requires = "what_if")]
    devices: Option<PathBuf>,
    /// Take the variants of the applications from the service, with what was measured of them, and its
    /// types of devices; compare autoscalers.
    #[arg(long, requires = "what_if")]
    registered: bool,
    /// Latency targets to try in place of the applications' own, ms, separated by commas.
    #[arg(
        long,
        value_name = "MS,..",
        value_delimiter = ',',
        requires = "registered"
    )]
    latency_ms: Vec<f64>,
    /// Accuracy targets to try in place of the applications' own, separated by commas.
    #[arg(
        long,
        value_name = "A,..",
        value_delimiter = ',',
        requires = "registered"
    )]
    min_accuracy: Vec<f64>,
    /// Write the question as an experiment that can be changed and run again.
    #[arg(long, value_name = "TOML", requires = "registered")]
    save: Option<PathBuf>,
    /// Most devices to try [default: twice as many as there are].
    #[arg(long, value_name = "N", requires = "what_if", conflicts_with = "registered", value_parser = clap::value_parser!(u32).range(1..))]
    max_devices: Option<u32>,
    /// Only these policies, separated by commas.
    #[arg(long, value_name = "P,..", value_delimiter = ',', value_parser = policies())]
    policy: Vec<String>,
    /// Number of seeds instead of the experiment's own.
    #[arg(long, value_name = "N", requires = "experiment", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// Only these cells, separated by commas.
    #[arg(
        long,
        value_name = "CELL,..",
        value_delimiter = ',',
        requires = "experiment"
    )]
    cells: Vec<String>,
    /// Only so many cells, drawn at random, the same each time.
    #[arg(long, value_name = "N", requires = "experiment")]
    sample: Option<usize>,
    /// The reduced version: seconds instead of minutes.
    #[arg(long, requires = "experiment")]
    quick: bool,
    /// The published length where the usual one is shorter: hours instead of minutes.
    #[arg(long, requires = "experiment", conflicts_with = "quick")]
    full: bool,
    /// Runs at the same time [default: one per core].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Append what is finished to this file, and do not run again what is in it.
    #[arg(long, value_name = "JSONL", requires = "experiment")]
    resume: Option<PathBuf>,
}

/// The names of scheduling policies, of autoscalers, of ways to divide models and of ways to run a fleet;
/// which of them an experiment has is known later.
fn policies() -> PossibleValuesParser {
    let schedulers = Policy::ALL.iter().map(|policy| policy.name());
    let autoscalers = autoscale::Policy::ALL.iter().map(|policy| policy.name());
    let autoscalers = autoscalers.filter(|name| name.parse::<Policy>().is_err());
    let divisions = division::Policy::ALL.iter().map(|policy| policy.name());
    let fleets = sextant_simulator::fleet::Policy::ALL.map(sextant_simulator::fleet::Policy::name);
    let fleets = fleets.into_iter();
    let fleets = fleets.filter(|name| name.parse::<Policy>().is_err());
    let mut names: Vec<&'static str> = Vec::new();
    // Some rule over replicas is both an autoscaler and a fleet's.
    for name in schedulers.chain(autoscalers).chain(divisions).chain(fleets) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    PossibleValuesParser::new(names)
}

impl Simulate {
    /// Whether the service has to be asked.
    pub fn asks_service(&self) -> bool {
        self.registered
    }

    /// Answers a question about what is registered.
    pub async fn run_registered(&self, client: &Client, output: Output) -> Result<(), Error> {
        match &self.workload {
            Some(workload) => registered::run(self, workload, client, output).await,
            None => self.run(output),
        }
    }

    /// Does what is asked for.
    pub fn run(&self, output: Output) -> Result<(), Error> {
        if let Some(name) = &self.experiment {
            if let Some(experiment) = fleet::find(name)? {
                return fleet::run(self, &experiment, output);
            }
            if let Some(experiment) = partition::find(name)? {
                return partition::run(self, &experiment, output);
            }
            return match replicas::find(name)? {
                Some(experiments) => replicas::run(self, &experiments, output),
                None => self.experiment(&find(name)?, output),
            };
        }
        if let (Some(workload), Some(devices)) = (&self.workload, &self.devices) {
            return what_if::run(self, workload, devices, output);
        }
        list(output)
    }

    fn experiment(&self, experiment: &Experiment, output: Output) -> Result<(), Error> {
        let plan = Plan {
            policies: self.schedulers()?,
            seeds: self.seeds.unwrap_or(0),
            cells: self.cells.clone(),
            sample: self.sample,
            quick: self.quick,
            full: self.full,
            threads: self.threads.unwrap_or(0),
            resume: self.resume.clone(),
            ..Plan::default()
        };
        let progress = Progress::new(output.json);
        let mut written = Ok(());
        let records = experiment::run(experiment, &plan, &mut |event| match event {
            Event::Progress(at) => {
                let policy = at.policy.map_or("any policy", Policy::name);
                progress.show(at.done, at.total, &format!("{} {policy}", at.cell));
            }
            Event::Record(record) if output.json && written.is_ok() => {
                written = progress.aside(|| output.text(&record.to_json()));
            }
            Event::Record(_) => {}
        });
        progress.finish();
        let records = records?;
        written?;
        if !output.json {
            output.text(&tables::of_experiment(experiment, &records))?;
        }
        Ok(())
    }

    /// The scheduling policies that were asked for.
    fn schedulers(&self) -> Result<Vec<Policy>, Error> {
        let policies = self.policy.iter().map(|name| name.parse::<Policy>());
        let policies: Result<Vec<Policy>, _> = policies.collect();
        policies.map_err(|error| Error::Usage(error.to_string()))
    }
}

/// A shipped experiment by its name, or one of the user's by its path.
fn find(name: &str) -> Result<Experiment, Error> {
    let path = Path::new(name);
    let is_path = name.contains(std::path::is_separator) || path.extension().is_some();
    if is_path && !experiment::names().contains(&name) {
        return Ok(Experiment::load(path)?);
    }
    Ok(Experiment::named(name)?)
}

/// Fails where an option was given that an experiment of a kind has no use for.
fn refuse(options: &[(&str, bool)], kind: &str) -> Result<(), Error> {
    match options.iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(Error::Usage(format!("`{option}` means nothing in {kind}"))),
        None => Ok(()),
    }
}

fn list(output: Output) -> Result<(), Error> {
    let mut table = super::output::Table::new(&["experiment", "#cells", "what it shows"]);
    for (name, cells, title, source) in shipped()? {
        if output.json {
            let line =
                json!({"experiment": name, "cells": cells, "title": title, "source": source});
            output.text(&line.to_string())?;
        }
        table.row(vec![name, cells.to_string(), title]);
    }
    match output.json {
        true => Ok(()),
        false => output.text(&table.render()),
    }
}

/// Every shipped experiment: name, number of cells, title and source.
fn shipped() -> Result<Vec<(String, usize, String, String)>, Error> {
    let mut shipped = Vec::new();
    for name in experiment::names() {
        let of = Experiment::named(name)?;
        shipped.push((of.name, of.cells.len(), of.title, of.source));
    }
    for name in sextant_simulator::partition::names() {
        let of = sextant_simulator::partition::Experiment::named(name)?;
        shipped.extend(of.map(|of| (of.name, of.cells.len(), of.title, of.source)));
    }
    for name in sextant_simulator::fleet::names() {
        let of = sextant_simulator::fleet::Experiment::named(name)?;
        shipped.extend(of.map(|of| (of.name, of.cells.len(), of.title, of.source)));
    }
    for name in sextant_simulator::replicas::names() {
        let of = sextant_simulator::replicas::Experiment::named(&name)?;
        shipped.extend(of.map(|of| (of.name, 1, of.title, of.source)));
    }
    Ok(shipped)
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })
}

/// A mean, for the tests of tables.
#[cfg(test)]
fn record(policy: &str, cell: &str, metric: &str, value: f64) -> experiment::Record {
    experiment::Record {
        experiment: "e".to_owned(),
        cell: Some(cell.to_owned()),
        policy: Some(policy.to_owned()),
        metric: metric.to_owned(),
        value,
        unit: "share".to_owned(),
        seed: None,
    }
}
