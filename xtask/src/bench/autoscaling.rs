//! How long the planners of the autoscaler take, and how far they are from the optimum.

use anyhow::Result;

use super::{example, report::Report};
use crate::shell;

/// Runs the planners on random problems of the published sizes.
pub fn run(report: &mut Report) -> Result<()> {
    let program = example("sextant-policies", "scaling_time")?;
    for line in shell::output(&mut shell::command(program))?.lines() {
        report.pass(line)?;
    }
    Ok(())
}
