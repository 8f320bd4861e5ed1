//! Experiments with autoscalers, and with all processors as one pool: settings as data, runs in parallel, figures in a
//! fixed order.

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;
use sextant_baselines as schedule;
use sextant_scaling::autoscale;

use super::{Law, Rates, Report, Setting, World, pooled};
use sextant_simulator::{Error, Record, parallel};

/// The shipped experiments.
const SHIPPED: &str = include_str!("../../experiments/faro.toml");

/// One of a file's experiments.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// Its name.
    pub name: String,
    /// What the experiment shows, in one line.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// Whether every processor runs the requests of every job.
    pub pooled: bool,
    /// Policies that are compared by default.
    pub policies: Vec<Policy>,
    /// Default number of seeds.
    pub seeds: u64,
    /// The setting of the simulation.
    pub setting: Setting,
}

/// The policy that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Decides the number of replicas of each job.
    Replicas(autoscale::Policy),
    /// Decides what each processor runs next, for all jobs.
    Pool(schedule::Policy),
}

/// Which part of an experiment to run, and how.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Names of policies; empty for the experiment's own choice.
    pub policies: Vec<String>,
    /// Seeds are `1..=seeds`; 0 for the experiment's own number.
    pub seeds: u64,
    /// Only the first hour.
    pub quick: bool,
    /// Number of parallel runs; 0 for one per core.
    pub threads: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "kind")]
    _kind: Kind,
    title: String,
    #[serde(default)]
    source: String,
    rates: String,
    target_ms: f64,
    queue: usize,
    #[serde(default)]
    policies: Vec<String>,
    seeds: u64,
    experiment: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Replicas,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    /// A title of its own, if the file's title does not fit.
    title: Option<String>,
    processors: u32,
    jobs: Option<usize>,
    /// Every processor runs the requests of every job, as `sextant` schedules them.
    #[serde(default)]
    pooled: bool,
}

/// Names of the shipped experiments.
pub fn names() -> Vec<String> {
    let shipped = Experiment::parse("faro.toml", SHIPPED, None);
    let names = shipped.into_iter().flatten().map(|of| of.name);
    names.collect()
}

// === impl Policy ===

impl Policy {
    /// An autoscaler or, if processors are `pooled`, a scheduler.
    fn named(name: &str, pooled: bool) -> Result<Self, String> {
        match pooled {
            false => name
                .parse()
                .map(Self::Replicas)
                .map_err(|error: autoscale::UnknownPolicy| error.to_string()),
            true => name
                .parse()
                .map(Self::Pool)
                .map_err(|error: schedule::UnknownPolicy| error.to_string()),
        }
    }

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Replicas(policy) => policy.name(),
            Self::Pool(policy) => policy.name(),
        }
    }

    fn run(self, setting: Setting) -> Result<Report, Error> {
        match self {
            Self::Replicas(policy) => Ok(World::new(setting, policy).run()),
            Self::Pool(policy) => pooled(&setting, policy),
        }
    }
}

// === impl Experiment ===

impl Experiment {
    /// A shipped experiment; `None` if there is none of that name.
    ///
    /// # Errors
    /// Never: the file is part of the library.
    pub fn named(name: &str) -> Result<Option<Self>, Error> {
        let mut shipped = Self::parse("faro.toml", SHIPPED, None)?;
        let at = shipped.iter().position(|of| of.name == name);
        Ok(at.map(|at| shipped.swap_remove(at)))
    }

    /// Whether the text of a file says that it holds such experiments.
    pub fn is_in(text: &str) -> bool {
        let table = text.parse::<toml::Table>();
        table.is_ok_and(|table| {
            table
                .get("kind")
                .is_some_and(|kind| kind.as_str() == Some("replicas"))
        })
    }

    /// Reads a user's experiments. A path of requests is relative to the file's folder.
    ///
    /// # Errors
    /// When the file or its requests cannot be read, or a setting makes no sense.
    pub fn load(path: &Path) -> Result<Vec<Self>, Error> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| Error::Read {
            file: file.clone(),
            source,
        })?;
        Self::parse(&file, &text, path.parent())
    }

    fn parse(file: &str, text: &str, folder: Option<&Path>) -> Result<Vec<Self>, Error> {
        let wrong = |problem: String| Error::experiment(file, problem);
        let of: File = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if !(of.target_ms > 0.0 && of.target_ms.is_finite()) {
            return Err(wrong(format!(
                "`target_ms` is `{}`: it must be more than 0",
                of.target_ms
            )));
        }
        let rates = match folder.map(|folder| folder.join(&of.rates)) {
            Some(path) if of.rates != "faro" => Rates::load(&path)?,
            _ => Rates::named(&of.rates)?,
        };
        let policies = of.policies.iter().map(|name| Policy::named(name, false));
        let policies: Vec<Policy> = policies.collect::<Result<_, _>>().map_err(wrong)?;
        let all = || autoscale::Policy::ALL.iter().copied().map(Policy::Replicas);
        let policies = if policies.is_empty() {
            all().collect()
        } else {
            policies
        };
        let entries = of.experiment.into_iter().map(|entry| {
            let jobs = entry.jobs.unwrap_or_else(|| rates.jobs());
            let least = if entry.pooled { 1 } else { jobs };
            if jobs == 0 || (entry.processors as usize) < least {
                let problem = match entry.pooled {
                    true => "a pool needs a job and a processor at least",
                    false => "each job needs a processor at least",
                };
                return Err(wrong(format!("`{}`: {problem}", entry.name)));
            }
            Ok(Self {
                pooled: entry.pooled,
                name: entry.name,
                title: entry.title.unwrap_or_else(|| of.title.clone()),
                source: of.source.clone(),
                policies: match entry.pooled {
                    true => vec![Policy::Pool(schedule::Policy::default())],
                    false => policies.clone(),
                },
                seeds: of.seeds.max(1),
                setting: Setting {
                    rates: rates.repeated(jobs),
                    processors: entry.processors,
                    initial: None,
                    law: Law::Measured,
                    queue: of.queue,
                    target_ms: of.target_ms,
                    seed: 1,
                },
            })
        });
        entries.collect()
    }
}

/// Runs the part that `plan` selects. `on` gets the number of finished runs and the number of all runs. Returns the
/// figures of each seed and their means, policy by policy.
///
/// # Errors
/// When the plan names an unknown policy, or one of the other kind.
pub fn run(
    experiment: &Experiment,
    plan: &Plan,
    on: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Record>, Error> {
    let named = |name: &String| Policy::named(name, experiment.pooled).map_err(Error::Setting);
    let policies = match plan.policies.is_empty() {
        true => experiment.policies.clone(),
        false => plan.policies.iter().map(named).collect::<Result<_, _>>()?,
    };
    let seeds = if plan.seeds == 0 {
        experiment.seeds
    } else {
        plan.seeds
    };
    let todo: Vec<(Policy, u64)> = policies
        .iter()
        .flat_map(|policy| (1..=seeds).map(|seed| (*policy, seed)))
        .collect();
    let work = |(policy, seed): &(Policy, u64)| {
        let mut setting = experiment.setting.clone();
        setting.seed = *seed;
        if plan.quick {
            setting.rates = setting.rates.first(60);
        }
        policy.run(setting)
    };
    let mut reports: BTreeMap<usize, Report> = BTreeMap::new();
    let mut failed = None;
    parallel::each(
        &todo,
        parallel::threads(plan.threads),
        work,
        |at, report| {
            match report {
                Ok(report) => {
                    reports.insert(at, report);
                    on(reports.len(), todo.len());
                }
                Err(error) => failed = Some(error),
            }
            failed.is_none()
        },
    );
    if let Some(error) = failed {
        return Err(error);
    }
    let mut records = Vec::new();
    for policy in &policies {
        let mut of_policy = Vec::new();
        for (at, (of, seed)) in todo.iter().enumerate() {
            if of == policy
                && let Some(report) = reports.get(&at)
            {
                of_policy.extend(figures(&experiment.name, *policy, *seed, report));
            }
        }
        let means = sextant_simulator::means(&of_policy);
        records.extend(of_policy);
        records.extend(means);
    }
    Ok(records)
}

fn figures(experiment: &str, policy: Policy, seed: u64, report: &Report) -> Vec<Record> {
    let sum = |of: fn(&super::JobReport) -> u64| report.jobs.iter().map(of).sum::<u64>() as f64;
    let (requests, violations) = (sum(|of| of.requests), sum(|of| of.violations));
    let figures = [
        ("slo_violation_percent", report.violation_percent, "percent"),
        ("lost_utility", report.lost_utility, "share"),
        (
            "request_violation_percent",
            100.0 * violations / requests.max(1.0),
            "percent",
        ),
        ("requests_count", requests, "count"),
        ("failed_count", sum(|of| of.failed), "count"),
        ("replicas_mean_count", report.replicas_mean, "count"),
        ("changes_count", report.changes.len() as f64, "count"),
    ];
    let record = |(metric, value, unit): (&str, f64, &str)| Record {
        experiment: experiment.to_owned(),
        cell: None,
        policy: Some(policy.name().to_owned()),
        metric: metric.to_owned(),
        value,
        unit: unit.to_owned(),
        seed: Some(seed),
    };
    figures.into_iter().map(record).collect()
}
