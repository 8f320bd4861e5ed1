//! Experiments with partitions: which models share a sub-cluster.

use sextant_lab::partition::{self, Experiment};
use sextant_simulator::report::{Grid, Heading};

use super::{
    Error,
    output::{self, Output},
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
    output::find(name, Experiment::named, Experiment::is_in, Experiment::load)
}

/// Runs it.
pub fn run(of: &super::Experiment, experiment: &Experiment, output: Output) -> Result<(), Error> {
    of.refuse_others("an experiment with partitions")?;
    let plan = of.plan()?;
    let heading = Heading {
        name: &experiment.name,
        title: &experiment.title,
        source: &experiment.source,
    };
    let grid = Grid {
        rows: &["cell", "method"],
        shown: &SHOWN,
    };
    output.play(&heading, &grid, |on| partition::run(experiment, &plan, on))
}
