//! Experiments with schedulers: what they carry, and how late.

use std::path::Path;

use sextant_baselines::Policy;
use sextant_lab::experiment::{self, Event, Experiment, Plan};
use sextant_simulator::report::Progress;

use super::{Error, named, output::Output, tables};

/// A shipped experiment by its name, or one of the user's by its path.
pub fn find(name: &str) -> Result<Experiment, Error> {
    let path = Path::new(name);
    let is_path = name.contains(std::path::is_separator) || path.extension().is_some();
    if is_path && !experiment::names().contains(&name) {
        return Ok(Experiment::load(path)?);
    }
    Ok(Experiment::named(name)?)
}

/// Runs it.
pub fn run(of: &super::Experiment, experiment: &Experiment, output: Output) -> Result<(), Error> {
    let plan = Plan {
        policies: named::<Policy>(&of.policy)?,
        seeds: of.seeds.unwrap_or(0),
        cells: of.cells.clone(),
        sample: of.sample,
        quick: of.quick,
        full: of.full,
        threads: of.threads.unwrap_or(0),
        resume: of.resume.clone(),
        ..Plan::default()
    };
    let progress = Progress::new(output.json);
    let mut written = Ok(());
    let records = experiment::run(experiment, &plan, &mut |event| match event {
        Event::Progress(at) => {
            let policy = at.policy.map_or("any policy", Policy::name);
            progress.show(at.done, at.total, &format!("{} {policy}", at.cell));
        }
        Event::Record(record) if output.json && written.is_ok() => {
            written = progress.aside(|| output.text(&record.to_json()));
        }
        Event::Record(_) => {}
    });
    progress.finish();
    let records = records?;
    written?;
    if !output.json {
        output.text(&tables::of_experiment(experiment, &records))?;
    }
    Ok(())
}
