//! The controller's figures: the cost of a request in the whole controller, in the shape of a fleet.

use anyhow::Result;

use super::{
    Arguments,
    report::Report,
    scheduler::{self, Subject},
};

/// The parts that `--parts` may name.
pub const PARTS: [&str; 3] = ["core", "instructions", "growth"];

/// Workers with one slot. Up to 32 of them hold every variant; of more workers, groups of eight hold the same variants.
const FLEET: Subject = Subject {
    name: "controller",
    shape: "fleet",
    sizes: [
        (20, 32, Some("<= 300")),
        (1_000, 1_000, Some("<= 600")),
        (10_000, 10_000, Some("<= 1200")),
    ],
};

/// The same workers, where each variant is on eight workers of its own, so that hardly two workers hold the same.
const SPREAD: Subject = Subject {
    name: "controller_spread",
    shape: "spread",
    sizes: [(20, 32, None), (1_000, 1_000, None), (10_000, 10_000, None)],
};

/// Measures the requested parts.
pub fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let policy = arguments.policy.as_str();
    for subject in [FLEET, SPREAD] {
        if arguments.wants("core") {
            scheduler::core(policy, subject, report)?;
        }
        if arguments.wants("instructions") {
            scheduler::instructions(policy, subject, report)?;
        }
    }
    if arguments.wants("growth") {
        scheduler::growth(policy, report)?;
    }
    Ok(())
}
