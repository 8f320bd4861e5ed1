//! Experiments with autoscalers: how many replicas each application has.

use std::path::Path;

use sextant_simulator::{
    experiment::Record,
    replicas::{self, Experiment, Plan},
};

use super::{Simulate, machine, progress::Progress, tables::Sheet};
use crate::cli::{
    Error,
    output::{Output, short},
};

/// Figures that are shown, with their headings; the rest is in the JSON.
const SHOWN: [(&str, &str); 6] = [
    ("slo_violation_percent", "violations, %"),
    ("lost_utility", "lost utility"),
    ("request_violation_percent", "of all requests, %"),
    ("failed_count", "refused"),
    ("replicas_mean_count", "mean replicas"),
    ("changes_count", "changes"),
];

/// The experiments of a name, or of a user's file; `None` where it is of another kind.
pub fn find(name: &str) -> Result<Option<Vec<Experiment>>, Error> {
    if let Some(experiment) = Experiment::named(name)? {
        return Ok(Some(vec![experiment]));
    }
    let path = Path::new(name);
    // One that cannot be read is the other kind's to complain about.
    let text = std::fs::read_to_string(path).unwrap_or_default();
    match Experiment::is_in(&text) {
        true => Ok(Some(Experiment::load(path)?)),
        false => Ok(None),
    }
}

/// Runs them one after the other.
pub fn run(of: &Simulate, experiments: &[Experiment], output: Output) -> Result<(), Error> {
    let devices = [
        ("--cells", !of.cells.is_empty()),
        ("--sample", of.sample.is_some()),
        ("--full", of.full),
        ("--resume", of.resume.is_some()),
        ("--plot", of.plot.is_some()),
    ];
    super::refuse(&devices, "an experiment with autoscalers")?;
    let plan = Plan {
        policies: of.policy.clone(),
        seeds: of.seeds.unwrap_or(0),
        quick: of.quick,
        threads: of.threads.unwrap_or(0),
    };
    for experiment in experiments {
        let progress = Progress::new(output.json);
        let records = replicas::run(experiment, &plan, &mut |done, total| {
            progress.show(done, total, &experiment.name);
        })?;
        progress.finish();
        match output.json {
            true => {
                for record in &records {
                    output.text(&record.to_json())?;
                }
            }
            false => output.text(&table(experiment, &records))?,
        }
    }
    Ok(())
}

/// The means, a line for each autoscaler.
fn table(experiment: &Experiment, records: &[Record]) -> String {
    let means = records.iter().filter(|record| record.seed.is_none());
    let means: Vec<&Record> = means.collect();
    let mut policies: Vec<&str> = Vec::new();
    for record in &means {
        let policy = record.policy.as_deref().unwrap_or_default();
        if policies.last() != Some(&policy) {
            policies.push(policy);
        }
    }
    let headings: Vec<&str> = std::iter::once("policy")
        .chain(SHOWN.iter().map(|(_, heading)| *heading))
        .collect();
    let mut sheet = Sheet::new(&headings);
    for policy in policies {
        let value = |metric: &str| {
            let is = |record: &&&Record| {
                record.policy.as_deref() == Some(policy) && record.metric == metric
            };
            let found = means.iter().find(is);
            found.map_or_else(String::new, |record| short(record.value))
        };
        let mut row = vec![policy.to_owned()];
        row.extend(SHOWN.iter().map(|(metric, _)| value(metric)));
        sheet.row(row);
    }
    format!(
        "{}: {} (simulated)\n{}\nsource: {}\n\n{}",
        experiment.name,
        experiment.title,
        machine::lines(),
        experiment.source,
        sheet.render()
    )
}
