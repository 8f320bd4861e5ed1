//! The scheduling core through its public interface: properties over random histories for every
//! policy with one growing batch per queue, and what each of them does in small histories.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod eager;
mod histories;
mod mixed;
mod pinned;
mod planned;
mod rest;
mod sextant;
mod shares;
mod small;
mod symphony;
mod tenants;
mod world;
