//! `sextant simulate --what-if`: how many devices are needed.

use std::path::Path;

use sextant_simulator::{
    report::page,
    what_if::{Question, Trials},
};

use super::{Error, Output, Progress, Simulate};
use crate::cli::output::{short, tell};

/// Answers the question of `--workload` and `--devices`.
pub fn run(
    arguments: &Simulate,
    workload: &Path,
    devices: &Path,
    output: Output,
) -> Result<(), Error> {
    let question = Question::load(workload, devices)?;
    for model in question.impossible() {
        tell(&format!(
            "warning: model `{}` takes {} ms alone on the fastest device, more than its target of \
             {} ms: none of its requests can be met",
            model.name,
            short(model.least_ms()),
            short(model.target_ms)
        ));
    }
    let trials = Trials {
        most_devices: arguments.max_devices.unwrap_or(0),
        threads: arguments.threads.unwrap_or(0),
        ..Trials::default()
    };
    let progress = Progress::new(output.json);
    let answer = question.answer(&trials, &|done, total| {
        progress.show(done, total, "tried");
    });
    progress.finish();
    if !output.json {
        return output.text(&page(&question, &answer));
    }
    let lines = answer.records();
    lines
        .iter()
        .try_for_each(|record| output.text(&record.to_json()))
}
