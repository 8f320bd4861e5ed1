//! The simulator through its public interface.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fleet;
mod fleet_prefer;
mod fleet_rules;
mod fleet_shares;
mod pipelines;
mod profiles;
mod traces;
mod workloads;
