//! Pipelines: plans for them, and their queries in a [`World`](crate::World).
//!
//! [`serve`] sends the queries of a pipeline through the same controller that the service runs: an answer of one step
//! is the request of the next ones ([`Flow`]). A test compares this with the fast estimator of [`sextant_planning`],
//! with which plans are made.

mod flow;
mod traffic;

pub use flow::{Flow, FlowResult, serve};
pub use traffic::arrivals;
