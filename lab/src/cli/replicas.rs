//! Experiments with autoscalers: how many replicas each application has.

use sextant_lab::replicas::{self, Experiment, Plan};
use sextant_simulator::report::{Grid, Heading};

use super::{
    Error,
    output::{self, Output},
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
    let named = |name: &str| Ok(Experiment::named(name)?.map(|experiment| vec![experiment]));
    output::find(name, named, Experiment::is_in, Experiment::load)
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
        let heading = Heading {
            name: &experiment.name,
            title: &experiment.title,
            source: &experiment.source,
        };
        let grid = Grid {
            rows: &["policy"],
            shown: &SHOWN,
        };
        output.play(&heading, &grid, |on| replicas::run(experiment, &plan, on))?;
    }
    Ok(())
}
