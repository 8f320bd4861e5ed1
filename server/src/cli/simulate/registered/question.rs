//! Makes the file of an experiment from the service's answers.

use std::{collections::BTreeMap, path::Path};

use serde_json::Value;
use sextant_types::Metric;
use toml::{Table, Value as Toml};

use crate::cli::{
    Error,
    output::{cell, rows},
};

/// Name of the experiment.
pub const NAME: &str = "what-if";

/// The planners that a service may have.
const POLICIES: [&str; 2] = ["sextant", "ilp"];

/// Time behind the last query in which answers still count, s.
const AFTER_S: f64 = 60.0;

/// What a question is made of.
pub struct Parts<'a> {
    /// By application: `about` it, and its `variants`.
    pub applications: &'a [Value],
    /// `GET /v1/workers` and `GET /v1/scaling`, where devices are not in a file.
    pub workers: &'a Value,
    pub scaling: &'a Value,
    /// A TOML file with a list of `device`.
    pub devices: Option<&'a Path>,
    /// A cell for each.
    pub targets: Vec<Targets>,
    /// Recorded queries, and their length, s.
    pub workload: &'a Path,
    pub seconds: f64,
}

/// Targets in place of those of the applications.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Targets {
    pub latency_ms: Option<f64>,
    pub min_accuracy: Option<f64>,
}

// === impl Targets ===

impl Targets {
    /// Refuses what is no target.
    pub fn check(latencies: &[f64], accuracies: &[f64]) -> Result<(), Error> {
        let latency = latencies.iter().find(|ms| !(**ms > 0.0 && **ms <= 1e9));
        if let Some(ms) = latency {
            return Err(Error::Usage(format!(
                "`--latency-ms {ms}`: it must be above 0"
            )));
        }
        let accuracy = accuracies
            .iter()
            .find(|least| !(0.0..=1.0).contains(*least));
        accuracy.map_or(Ok(()), |least| {
            Err(Error::Usage(format!(
                "`--min-accuracy {least}`: it must be from 0 to 1"
            )))
        })
    }

    /// Every latency with every accuracy.
    pub fn each(latencies: &[f64], accuracies: &[f64]) -> Vec<Self> {
        let some = |values: &[f64]| match values {
            [] => vec![None],
            values => values.iter().copied().map(Some).collect::<Vec<_>>(),
        };
        let mut all = Vec::new();
        for latency_ms in some(latencies) {
            for min_accuracy in some(accuracies) {
                all.push(Self {
                    latency_ms,
                    min_accuracy,
                });
            }
        }
        all
    }

    /// Its cell's name.
    fn name(self) -> String {
        match (self.latency_ms, self.min_accuracy) {
            (None, None) => "own targets".to_owned(),
            (Some(ms), None) => format!("{ms} ms"),
            (None, Some(least)) => format!("accuracy {least}"),
            (Some(ms), Some(least)) => format!("{ms} ms, accuracy {least}"),
        }
    }
}

// === impl Parts ===

impl Parts<'_> {
    /// The experiment as TOML.
    pub fn text(&self) -> Result<String, Error> {
        let devices = self.devices()?;
        let applications = self.applications.iter();
        let applications = applications.map(|of| variants::application(of, &devices));
        let applications = applications.collect::<Result<Vec<Toml>, Error>>()?;
        let cells = self.targets.iter().map(|targets| self.cell(*targets));
        let mut table = Table::new();
        for (key, value) in [("kind", "fleet"), ("name", NAME)] {
            table.insert(key.to_owned(), value.into());
        }
        let policies = POLICIES.map(Toml::from);
        table.insert("policies".to_owned(), Toml::Array(policies.to_vec()));
        let title = "Recorded queries on a fleet that is scaled";
        table.insert("title".to_owned(), title.into());
        let source = "variants and devices of the service, as measured";
        table.insert("source".to_owned(), source.into());
        table.insert("measured_s".to_owned(), (self.seconds + AFTER_S).into());
        let recorded = self.workload.display().to_string();
        let load = Table::from_iter([("recorded".to_owned(), recorded.into())]);
        table.insert("load".to_owned(), load.into());
        let devices: Vec<Toml> = devices.into_values().collect();
        table.insert("device".to_owned(), Toml::Array(devices));
        table.insert("application".to_owned(), Toml::Array(applications));
        let cells = cells.collect::<Result<Vec<Toml>, Error>>()?;
        table.insert("cell".to_owned(), Toml::Array(cells));
        toml::to_string(&table).map_err(|error| answer(&error.to_string()))
    }

    /// Types of devices by name: those of the file, or else those that workers or pools have.
    fn devices(&self) -> Result<BTreeMap<String, Toml>, Error> {
        if let Some(path) = self.devices {
            return of_file(path);
        }
        let mut devices = BTreeMap::new();
        for worker in rows(self.workers, "/workers") {
            let Some(of) = worker.get("device_type") else {
                continue;
            };
            let pool = rows(self.scaling, "/pools");
            let pool = pool.iter().find(|pool| pool["device_type"] == of["name"]);
            devices.insert(cell(of, "/name"), device(of, pool));
        }
        match devices.is_empty() {
            false => Ok(devices),
            true => Err(Error::Usage(
                "the service has no workers that say what they are: name devices with `--devices FILE`"
                    .to_owned(),
            )),
        }
    }

    fn cell(&self, targets: Targets) -> Result<Toml, Error> {
        let mut classes = Vec::new();
        for of in self.applications {
            let about = &of["about"];
            let number = |pointer: &str| about.pointer(pointer).and_then(Value::as_f64);
            let metric = metric(about);
            if !metric.higher_is_better() && targets.min_accuracy.is_some() {
                return Err(Error::Usage(format!(
                    "`--min-accuracy` means nothing for `{}`, whose metric is `{}`",
                    cell(about, "/name"),
                    metric.name()
                )));
            }
            let own = match metric.higher_is_better() {
                true => number("/default_targets/min_accuracy"),
                false => number("/default_targets/max_error").map(|error| metric.quality(error)),
            };
            let share = number("/default_targets/min_relative_accuracy");
            let most_usd = number("/default_targets/max_cost_per_1k_usd");
            let mut class = Table::new();
            class.insert("application".to_owned(), cell(about, "/name").into());
            let latency_ms = targets.latency_ms;
            let latency_ms = latency_ms.or_else(|| number("/default_targets/latency_ms"));
            for (key, value) in [
                ("latency_ms", latency_ms),
                ("min_accuracy", targets.min_accuracy.or(own)),
                // A demanded accuracy replaces a demanded share.
                (
                    "min_relative_accuracy",
                    share.filter(|_| targets.min_accuracy.is_none()),
                ),
                ("max_cost_per_1k_usd", most_usd),
            ] {
                if let Some(value) = value {
                    class.insert(key.to_owned(), value.into());
                }
            }
            if let Some(prefer) = about
                .pointer("/default_targets/prefer")
                .and_then(Value::as_str)
            {
                class.insert("prefer".to_owned(), prefer.into());
            }
            classes.push(Toml::Table(class));
        }
        let name = ("name".to_owned(), targets.name().into());
        let class = ("class".to_owned(), Toml::Array(classes));
        Ok(Toml::Table(Table::from_iter([name, class])))
    }
}

/// The list of `device` of a file, by name.
fn of_file(path: &Path) -> Result<BTreeMap<String, Toml>, Error> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })?;
    let wrong = |problem: String| Error::Usage(format!("{}: {problem}", path.display()));
    let table: Table = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let list = table.get("device").and_then(Toml::as_array);
    let list = list.ok_or_else(|| wrong("it has no list `[[device]]`".to_owned()))?;
    let named = list.iter().map(|device| {
        let name = device.get("name").and_then(Toml::as_str);
        let name = name.ok_or_else(|| wrong("a device has no `name`".to_owned()))?;
        Ok((name.to_owned(), device.clone()))
    });
    named.collect()
}

/// A type of device as a worker announces it. Workers that nobody starts and ends are as many as they
/// are.
fn device(of: &Value, pool: Option<&Value>) -> Toml {
    let count = |key: &str| pool.and_then(|pool| pool.get(key)?.as_i64());
    let up = count("up").unwrap_or(1);
    let managed = pool.is_some_and(|pool| pool.get("provider").is_some_and(Value::is_string));
    let bounds = match managed {
        true => (count("least").unwrap_or(0), count("most").unwrap_or(up)),
        false => (up, up),
    };
    let mut table = Table::new();
    table.insert("name".to_owned(), cell(of, "/name").into());
    let number = |key: &str| of.get(key).and_then(Value::as_f64).unwrap_or(0.0);
    let price = number("price_per_hour_usd");
    table.insert("price_per_hour_usd".to_owned(), price.into());
    table.insert("slots".to_owned(), (number("slots").max(1.0) as i64).into());
    let memory_mb = (number("memory_bytes") / 1e6).floor().max(1.0);
    table.insert("memory_mb".to_owned(), (memory_mb as i64).into());
    table.insert("start_s".to_owned(), (number("start_ms") / 1e3).into());
    table.insert("least".to_owned(), bounds.0.into());
    table.insert("most".to_owned(), bounds.1.into());
    table.insert("initial".to_owned(), up.into());
    Toml::Table(table)
}

/// How the accuracy of an application is measured; larger is better where this service names none that is known here.
fn metric(about: &Value) -> Metric {
    let name = about["metric"].as_str().unwrap_or_default();
    Metric::parse(name).unwrap_or(Metric::Custom)
}

fn answer(reason: &str) -> Error {
    Error::Answer {
        reason: reason.to_owned(),
    }
}

mod variants;

#[cfg(test)]
mod tests;
