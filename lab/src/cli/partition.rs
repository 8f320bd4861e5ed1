//! Experiments with partitions: which models share a sub-cluster.

use sextant_lab::partition::{self, Experiment};
use sextant_simulator::report::{Grid, Heading, Progress};

use super::{
    Error,
    output::{Output, file_of},
};

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
    let file = file_of(name, Experiment::is_in);
    Ok(file.map(Experiment::load).transpose()?)
}

/// Runs it.
pub fn run(of: &super::Experiment, experiment: &Experiment, output: Output) -> Result<(), Error> {
    of.refuse_others("an experiment with partitions")?;
    let plan = of.plan()?;
    let progress = Progress::new(output.json);
    let records = partition::run(experiment, &plan, &mut |done, total| {
        progress.show(done, total, &experiment.name);
    });
    progress.finish();
    let heading = Heading {
        name: &experiment.name,
        title: &experiment.title,
        source: &experiment.source,
    };
    let grid = Grid {
        rows: &["cell", "method"],
        shown: &SHOWN,
    };
    output.records(&heading, &grid, &records?)
}
