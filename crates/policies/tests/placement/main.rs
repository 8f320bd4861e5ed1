//! Placement through its public interface: properties over random histories for every policy, and
//! what each of them does in small histories.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod demand;
mod histories;
mod replicas;
mod rhythm;
mod small;
mod world;
