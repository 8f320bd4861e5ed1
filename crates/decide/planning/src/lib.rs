//! Plans for pipelines: which variant on which device type runs each step, in batches of how many rows, on how many
//! replicas, so that the whole pipeline meets a latency target at the least cost.
//!
//! A [`Graph`] says what may run each step and how long it takes. [`Routes`] say which steps each query of a sample
//! visited. [`parts`] builds a graph from the parts of a pipeline that ask something. The [`estimate`] module estimates
//! the latency of every query under a plan. The [`plan`] module searches for the cheapest plan whose misses stay within
//! a share. The [`tune`] module changes replicas while traffic changes. Both follow InferLine (Crankshaw,
//! UCB/EECS-2019-171, chapter 4): as printed where they say so, and corrected elsewhere. The [`dropping`] module
//! decides which queries are given up if all that is not enough.
//!
//! **Invariant:** this crate decides nothing about batches of the running service. The estimator is a model of the
//! service. A test of the simulator compares it with the controller that the service runs.

pub mod dropping;
pub mod estimate;
mod graph;
mod learn;
pub mod parts;
pub mod plan;
pub mod profiles;
mod routes;
pub mod tune;
mod whole;

pub use graph::{Choice, Graph, Invalid, Scale, Step};
pub use learn::{Interval, StepScale, VisitCounts};
pub use routes::{Fit, Routes};
pub use whole::Whole;

/// Nanoseconds.
pub use sextant_schedule::Nanos;
