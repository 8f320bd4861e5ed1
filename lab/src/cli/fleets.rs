//! Experiments with fleets that grow and shrink: what they cost and miss.

use sextant_lab::fleets;
use sextant_simulator::{
    fleet::Experiment,
    report::{Grid, Heading, OF_FLEETS, Progress},
};

use super::{
    Error,
    output::{Output, file_of},
};

/// The experiment of a name, or of a user's file; `None` where it is of another kind.
pub fn find(name: &str) -> Result<Option<Experiment>, Error> {
    if let Some(experiment) = fleets::named(name)? {
        return Ok(Some(experiment));
    }
    let file = file_of(name, Experiment::is_in);
    Ok(file.map(Experiment::load).transpose()?)
}

/// Runs it.
pub fn run(of: &super::Experiment, experiment: &Experiment, output: Output) -> Result<(), Error> {
    of.refuse_others("an experiment with a fleet")?;
    let plan = of.plan()?;
    let progress = Progress::new(output.json);
    let records = fleets::play(experiment, &plan, &mut |done, total| {
        progress.show(done, total, &experiment.name);
    });
    progress.finish();
    let heading = Heading {
        name: &experiment.name,
        title: &experiment.title,
        source: &experiment.source,
    };
    let grid = Grid {
        rows: &["cell", "policy"],
        shown: &OF_FLEETS,
    };
    output.records(&heading, &grid, &records?)
}
