//! Experiments with fleets that grow and shrink: what they cost and miss.

use sextant_simulator::fleet::{self, Experiment, Plan, Policy};

use super::{Simulate, grid, progress::Progress};
use crate::cli::{Error, output::Output};

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
    let file = grid::file_of(name, Experiment::is_in);
    Ok(file.map(Experiment::load).transpose()?)
}

/// Runs it.
pub fn run(of: &Simulate, experiment: &Experiment, output: Output) -> Result<(), Error> {
    grid::refuse_others(of, "an experiment with a fleet")?;
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
    grid::print(
        output,
        &heading(experiment),
        &["cell", "policy"],
        &SHOWN,
        &records?,
    )
}

fn heading(of: &Experiment) -> grid::Heading<'_> {
    grid::Heading {
        name: &of.name,
        title: &of.title,
        source: &of.source,
    }
}
