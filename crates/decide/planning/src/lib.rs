//! Plans for pipelines: which variant on which device type each step runs, in batches of how many rows, on how
//! many replicas, so that the whole meets a latency target at the least cost.
//!
//! A [`Graph`] says what may run where and how long it takes. [`Routes`] say which steps each query of a sample
//! visited. [`parts`] make a graph of what asks something. The [`estimate`] module tells what the latency of every query would be under a plan; the [`plan`]
//! module searches the cheapest plan whose misses stay within a share; the [`tune`] module changes replicas while
//! traffic changes. Both follow InferLine (Crankshaw, UCB/EECS-2019-171, chapter 4), as printed where that is named
//! and corrected where it is not. The [`dropping`] module says which queries are given up where all that is not enough.
//!
//! **Invariant:** decides nothing about batches of the running service. The estimator is a model of it, which a test
//! of the simulator holds against the controller that the service runs.

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
