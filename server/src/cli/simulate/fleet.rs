//! Experiments with fleets that grow and shrink: what they cost and miss.

use std::path::Path;

use sextant_simulator::{
    experiment::Record,
    fleet::{self, Experiment, Plan, Policy},
};

use super::{Simulate, machine, progress::Progress, tables::Sheet};
use crate::cli::{
    Error,
    output::{Output, short},
};

/// Figures that are shown, with their headings; the rest is in the JSON.
const SHOWN: [(&str, &str); 6] = [
    ("violation_percent", "late or refused, %"),
    ("accuracy_percent", "accuracy, %"),
    ("throughput_rps", "answers/s"),
    ("device_hours", "device hours"),
    ("cost_usd", "USD"),
    ("reversals_in_ten_minutes_count", "turns in 10 min"),
];

/// The experiment of a name, or of a user's file; `None` where it is of another kind.
pub fn find(name: &str) -> Result<Option<Experiment>, Error> {
    if let Some(experiment) = Experiment::named(name)? {
        return Ok(Some(experiment));
    }
    let path = Path::new(name);
    // One that cannot be read is another kind's to complain about.
    let text = std::fs::read_to_string(path).unwrap_or_default();
    match Experiment::is_in(&text) {
        true => Ok(Some(Experiment::load(path)?)),
        false => Ok(None),
    }
}

/// Runs it.
pub fn run(of: &Simulate, experiment: &Experiment, output: Output) -> Result<(), Error> {
    let others = [
        ("--sample", of.sample.is_some()),
        ("--full", of.full),
        ("--resume", of.resume.is_some()),
        ("--plot", of.plot.is_some()),
    ];
    super::refuse(&others, "an experiment with a fleet")?;
    let policies = of.policy.iter().map(|name| name.parse::<Policy>());
    let policies: Result<Vec<Policy>, _> = policies.collect();
    let plan = Plan {
        policies: policies.map_err(|error| Error::Usage(error.to_string()))?,
        seeds: of.seeds.unwrap_or(0),
        cells: of.cells.clone(),
        quick: of.quick,
        threads: of.threads.unwrap_or(0),
    };
    let progress = Progress::new(output.json);
    let records = fleet::play(experiment, &plan, &mut |done, total| {
        progress.show(done, total, &experiment.name);
    });
    progress.finish();
    let records = records?;
    if !output.json {
        return output.text(&table(experiment, &records));
    }
    records
        .iter()
        .try_for_each(|record| output.text(&record.to_json()))
}

/// The means, a line for each cell and policy.
fn table(experiment: &Experiment, records: &[Record]) -> String {
    let means = records.iter().filter(|record| record.seed.is_none());
    let means: Vec<&Record> = means.collect();
    let mut rows: Vec<(&str, &str)> = means.iter().map(|record| of(record)).collect();
    rows.dedup();
    let headings: Vec<&str> = ["cell", "policy"]
        .into_iter()
        .chain(SHOWN.iter().map(|(_, heading)| *heading))
        .collect();
    let mut sheet = Sheet::new(&headings);
    for row in rows {
        let value = |metric: &str| {
            let is = |record: &&&Record| of(record) == row && record.metric == metric;
            let found = means.iter().find(is);
            found.map_or_else(String::new, |record| short(record.value))
        };
        let mut cells = vec![row.0.to_owned(), row.1.to_owned()];
        cells.extend(SHOWN.iter().map(|(metric, _)| value(metric)));
        sheet.row(cells);
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

/// The cell and the policy of a figure.
fn of(record: &Record) -> (&str, &str) {
    let cell = record.cell.as_deref().unwrap_or_default();
    (cell, record.policy.as_deref().unwrap_or_default())
}
