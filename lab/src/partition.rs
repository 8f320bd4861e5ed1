//! Models with drawn rates and memory, divided among sub-clusters by each method (Symphony, figure 15).
//!
//! The methods are those of [`sextant_partition`]; here are only the draws, the clock and the
//! figures. All is offline: nothing is loaded and no request is sent. A seed always draws the same
//! models. What `heuristic` and `random` answer depends on it alone; `milp` has a limit of wall-clock
//! time, so that a faster machine may find more.

mod experiment;
mod run;

pub use experiment::{Cell, Effort, Experiment, Memory, names};
pub use run::{Plan, run};
