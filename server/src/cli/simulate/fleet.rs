//! Fleets that grow and shrink: what they cost and miss.

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
