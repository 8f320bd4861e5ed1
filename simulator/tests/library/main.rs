//! The simulator through its public interface.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bounds;
mod clairvoyant;
mod experiments;
mod fleet;
mod fleet_prefer;
mod fleet_rules;
mod fleet_shares;
mod goodput;
mod paged;
mod partition;
mod pipelines;
mod pooled;
mod profiles;
mod replicas;
mod traces;
mod workloads;
mod worlds;
