//! Experiments with partitions: which models share a sub-cluster.

use sextant_partition::Policy;
use sextant_simulator::partition::{self, Experiment, Plan};

use super::{Simulate, grid, progress::Progress};
use crate::cli::{Error, output::Output};

/// Figures that are shown, with their headings; the rest is in the JSON.
const SHOWN: [(&str, &str); 6] = [
    ("found_share", "found"),
    ("rate_imbalance_percent", "rates apart, %"),
    ("memory_imbalance_percent", "memory apart, %"),
    ("objective_percent", "objective, %"),
    ("solve_s", "s"),
    ("solver_objective_percent", "solver alone, %"),
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
    grid::refuse_others(of, "an experiment with partitions")?;
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
    let records = partition::run(experiment, &plan, &mut |done, total| {
        progress.show(done, total, &experiment.name);
    });
    progress.finish();
    grid::print(
        output,
        &heading(experiment),
        &["cell", "method"],
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
