//! Experiments with fleets that grow and shrink: what they cost and miss.

use sextant_lab::fleets;
use sextant_simulator::{
    fleet::Experiment,
    report::{Grid, Heading, OF_FLEETS},
};

use super::{
    Error,
    output::{self, Output},
};

/// The experiment of a name, or of a user's file; `None` where it is of another kind.
pub fn find(name: &str) -> Result<Option<Experiment>, Error> {
    output::find(name, fleets::named, Experiment::is_in, Experiment::load)
}

/// Runs it.
pub fn run(of: &super::Experiment, experiment: &Experiment, output: Output) -> Result<(), Error> {
    of.refuse_others("an experiment with a fleet")?;
    let plan = of.plan()?;
    let heading = Heading {
        name: &experiment.name,
        title: &experiment.title,
        source: &experiment.source,
    };
    let grid = Grid {
        rows: &["cell", "policy"],
        shown: &OF_FLEETS,
    };
    output.play(&heading, &grid, |on| fleets::play(experiment, &plan, on))
}
