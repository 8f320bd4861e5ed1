//! Emulated work that fails, drawn by a seed: it shows how a service treats failures.

use super::jitter::Draws;
use crate::Error;

/// Which part of an emulated engine's work fails.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Failures {
    /// Share of loads that fail, 0 to 1.
    pub loads: f64,
    /// Share of runs that fail, 0 to 1.
    pub runs: f64,
    /// The seed of the failures.
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

    /// Sometimes fails instead of a load.
    pub(super) fn load(&self) -> Result<(), Error> {
        fail(&self.loads, self.failures.loads, "load")
    }

    /// Sometimes fails instead of a run.
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
