//! Emulated work that fails, drawn by a seed: what a service makes of it can then be tried.

use super::jitter::Draws;
use crate::Error;

/// Which part of an emulated engine's work fails.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Failures {
    /// Share of loads that fail, 0 to 1.
    pub loads: f64,
    /// Share of runs that fail, 0 to 1.
    pub runs: f64,
    /// What they are drawn by.
    pub seed: u64,
}

/// The failures of one engine.
pub(super) struct FailureModel {
    failures: Failures,
    loads: Draws,
    runs: Draws,
}

impl FailureModel {
    pub(super) fn new(failures: Failures) -> Self {
        Self {
            failures,
            loads: Draws::new(failures.seed),
            runs: Draws::new(!failures.seed),
        }
    }

    /// Fails in place of a load, now and then.
    pub(super) fn load(&self) -> Result<(), Error> {
        fail(&self.loads, self.failures.loads, "load")
    }

    /// Fails in place of a run, now and then.
    pub(super) fn run(&self) -> Result<(), Error> {
        fail(&self.runs, self.failures.runs, "run")
    }
}

fn fail(draws: &Draws, share: f64, what: &str) -> Result<(), Error> {
    match draws.next() < share {
        true => Err(Error::Failed(format!("this emulated {what} was to fail"))),
        false => Ok(()),
    }
}
