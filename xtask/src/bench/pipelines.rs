//! Simulated planners and tuners for pipelines; a pipeline that is served in real time; the cost of a step besides its
//! run.

use anyhow::Result;

use super::{Arguments, report::Report, scheduler::pass};

mod steps;

/// Parts that can be asked for one by one.
pub const PARTS: [&str; 7] = ["alarms", "grid", LIVE, "optimal", "speed", "spikes", STEPS];

/// The part in real time, on emulated devices.
const LIVE: &str = "live";

/// The part that asks running services.
const STEPS: &str = "steps";

/// Runs the parts that are asked for.
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
