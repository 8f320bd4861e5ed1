//! Simulated planners and tuners for pipelines, a pipeline that is served in real time, and the cost of a step beside
//! the run of its model.

use anyhow::Result;

use super::{Arguments, report::Report, scheduler::pass};

mod steps;

/// The parts that `--parts` may name.
pub const PARTS: [&str; 7] = ["alarms", "grid", LIVE, "optimal", "speed", "spikes", STEPS];

/// The part in real time, on emulated devices.
const LIVE: &str = "live";

/// The part that queries running services.
const STEPS: &str = "steps";

/// Runs the requested parts.
pub fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    if arguments.wants(LIVE) {
        pass("sextant-lab", "agreement", &["pipelines"], report)?;
    }
    if arguments.wants(STEPS) {
        steps::run(arguments, report)?;
    }
    let is_simulated = |part: &&str| ![LIVE, STEPS].contains(part) && arguments.wants(part);
    let simulated: Vec<&str> = PARTS.into_iter().filter(is_simulated).collect();
    match simulated.is_empty() {
        true => Ok(()),
        false => pass("sextant-planning", "inferline", &simulated, report),
    }
}
