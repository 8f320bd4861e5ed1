//! Fleets that grow and shrink: their costs and misses.

use sextant_simulator::{
    Record,
    fleet::{self, Experiment, Plan, Policy},
    report::{Grid, Heading, OF_FLEETS},
};

use super::{Progress, Simulate};
use crate::cli::{Error, output::Output};

/// Plays it.
pub fn run(of: &Simulate, experiment: &Experiment, output: Output) -> Result<(), Error> {
    let policies = of.policy.iter().map(|name| name.parse::<Policy>());
    let policies: Result<Vec<Policy>, _> = policies.collect();
    let mut policies = policies.map_err(|error| Error::Usage(error.to_string()))?;
    if policies.is_empty() {
        policies = named(experiment)?;
    }
    let plan = Plan {
        policies,
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
    if output.json {
        let mut lines = records.iter().map(Record::to_json);
        return lines.try_for_each(|line| output.text(&line));
    }
    let heading = Heading {
        name: &experiment.name,
        title: &experiment.title,
        source: &experiment.source,
    };
    let grid = Grid {
        rows: &["cell", "policy"],
        shown: &OF_FLEETS,
    };
    output.text(&grid.page(&heading, &records))
}

/// The planners that a file names; all that a service may have where it names none.
fn named(experiment: &Experiment) -> Result<Vec<Policy>, Error> {
    if experiment.policies == Policy::ALL {
        return Ok(Policy::OF_SERVICE.to_vec());
    }
    let mut policies = experiment.policies.iter();
    match policies.find(|it| !Policy::OF_SERVICE.contains(it)) {
        None => Ok(experiment.policies.clone()),
        Some(other) => Err(Error::Usage(format!(
            "`{}` names the policy `{}`, which is one of experiments alone: name planners with `--policy`, or run the \
             file with `sextant-lab experiment`",
            experiment.name,
            other.name()
        ))),
    }
}
