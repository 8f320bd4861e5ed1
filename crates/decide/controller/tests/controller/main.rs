//! The controller through its public interface: properties over random histories for every pair of
//! policies, and what happens to variants with frequent requests, periodic requests, or none.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod burst_period;
mod first_load;
mod growth;
mod histories;
mod kept;
mod relocate;
mod replicas;
mod retired;
mod shapes;
mod unloads;
mod world;
