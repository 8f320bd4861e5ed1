//! Experiments with autoscalers: how many replicas each application has.

use sextant_lab::replicas::{self, Experiment, Plan};
use sextant_simulator::report::{Grid, Heading, Progress};

use super::{
    Error,
    output::{Output, file_of},
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
    let file = file_of(name, Experiment::is_in);
    Ok(file.map(Experiment::load).transpose()?)
}

/// Runs them one after the other.
pub fn run(
    of: &super::Experiment,
    experiments: &[Experiment],
    output: Output,
) -> Result<(), Error> {
    super::refuse(
        &[("--cells", !of.cells.is_empty())],
        "an experiment with autoscalers",
    )?;
    of.refuse_others("an experiment with autoscalers")?;
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
        let heading = Heading {
            name: &experiment.name,
            title: &experiment.title,
            source: &experiment.source,
        };
        let grid = Grid {
            rows: &["policy"],
            shown: &SHOWN,
        };
        output.records(&heading, &grid, &records)?;
    }
    Ok(())
}
