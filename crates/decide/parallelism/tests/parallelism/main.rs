//! Parallelism on CPU cores: the queueing model against its vectors, its properties and a simulator
//! of its own, and the policy on changing loads.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod known;
mod machine;
mod policies;
mod queueing;
mod simulated;
mod space;
mod table;
