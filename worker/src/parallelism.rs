//! Requests of one model side by side on the cores of this machine, live: measuring what SERF's
//! model needs, running what it chose, and comparing the two.
//!
//! - [`Handles`] holds a loaded model once for each number of threads; the weights are shared.
//! - [`measure`] profiles it: exactly so many closed-loop threads, each on cores of its own.
//! - [`Runner`] runs requests under a configuration that may change at any time.
//! - [`drive`] sends a runner open-loop load, [`evaluate`] compares predictions with what it
//!   measures.
//!
//! The decisions are in [`sextant_policies::parallelism`]; nothing here chooses.

mod affinity;
mod drive;
mod evaluation;
mod handles;
mod metrics;
mod profiler;
mod runner;

use sextant_policies::parallelism::MissingTuple;

pub use affinity::{caller_cores, cores};
pub use drive::{Served, drive};
pub use evaluation::{Cell, Evaluation, Plan, Progress, evaluate, quantile};
pub use handles::{Handles, sample_inputs};
pub use metrics::{GOALS, Metric, Quality, Verdict, least};
pub use profiler::{Profiled, measure};
pub use runner::{Completed, Counters, Request, RunError, Runner, RunnerOptions};

/// Why something could not be measured.
#[derive(Debug)]
pub enum Error {
    /// The engine could not load or run the model.
    Engine(sextant_engine::Error),
    /// No thread or core could be had.
    System(std::io::Error),
    /// What was measured makes no profile.
    Profile(MissingTuple),
    /// A value that makes no sense; the text says which and what to do.
    Invalid(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Engine(error) => error.fmt(f),
            Self::System(_) => write!(f, "no threads or cores to measure on"),
            Self::Profile(error) => error.fmt(f),
            Self::Invalid(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System(error) => Some(error),
            _ => None,
        }
    }
}

impl From<sextant_engine::Error> for Error {
    fn from(error: sextant_engine::Error) -> Self {
        Self::Engine(error)
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::System(error)
    }
}

impl From<MissingTuple> for Error {
    fn from(error: MissingTuple) -> Self {
        Self::Profile(error)
    }
}
