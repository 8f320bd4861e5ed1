//! Planners and tuners for pipelines: all figures but the times are simulated.

use anyhow::Result;

use super::{Arguments, report::Report, scheduler::pass};

/// Parts that can be asked for one by one.
pub const PARTS: [&str; 5] = ["alarms", "grid", "optimal", "speed", "spikes"];

/// Runs the parts that are asked for.
pub fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let parts = PARTS.into_iter().filter(|part| arguments.wants(part));
    let parts: Vec<&str> = parts.collect();
    pass("sextant-planning", "inferline", &parts, report)
}
