//! Planners and tuners for pipelines, simulated, and a pipeline that is served in real time.

use anyhow::Result;

use super::{Arguments, report::Report, scheduler::pass};

/// Parts that can be asked for one by one.
pub const PARTS: [&str; 6] = ["alarms", "grid", LIVE, "optimal", "speed", "spikes"];

/// The part in real time.
const LIVE: &str = "live";

/// Runs the parts that are asked for.
pub fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let parts = PARTS.into_iter().filter(|part| arguments.wants(part));
    let (live, simulated): (Vec<&str>, Vec<&str>) = parts.partition(|part| *part == LIVE);
    if !live.is_empty() {
        pass("sextant-lab", "agreement", &["pipelines"], report)?;
    }
    match simulated.is_empty() {
        true => Ok(()),
        false => pass("sextant-planning", "inferline", &simulated, report),
    }
}
