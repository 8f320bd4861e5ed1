//! Measures how long the planners of the autoscaler take and how far they are from the optimum. With `--live`, compares
//! a fleet that grows and shrinks with its simulation. In the part `ramp`, the load of a small model grows.

pub(super) mod arrivals;
pub(super) mod clients;
mod live;
mod ramp;
mod service;
mod simulated;
mod watch;

use anyhow::Result;

use super::{Arguments, example, report::Report};
use crate::shell;

/// The parts.
pub const PARTS: [&str; 2] = ["planners", "ramp"];

/// Runs the planners on random problems of the published sizes, or a fleet beside its simulation.
pub fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    if arguments.live {
        return live::run(arguments, report);
    }
    if arguments.wants("ramp") {
        ramp::run(arguments, report)?;
    }
    if !arguments.wants("planners") {
        return Ok(());
    }
    let program = example("sextant-scaling", "scaling_time")?;
    for line in shell::output(&mut shell::command(program))?.lines() {
        report.pass(line)?;
    }
    Ok(())
}
