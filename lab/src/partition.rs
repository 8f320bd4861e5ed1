//! Models with random rates and memory, divided among sub-clusters by each method (Symphony, figure 15).
//!
//! The methods are those of [`sextant_partition`]; this module has only the draws, the clock and the figures.
//! Everything is offline: nothing is loaded and no request is sent. A seed always draws the same models. The answers of
//! `heuristic` and `random` depend only on the seed. `milp` has a limit of wall-clock time, so a faster machine may
//! find more.

mod experiment;
mod run;

pub use experiment::{Cell, Effort, Experiment, Memory, names};
pub use run::{Plan, run};
