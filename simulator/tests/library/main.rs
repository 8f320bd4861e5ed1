//! The simulator through its public interface.

mod bounds;
mod experiments;
mod goodput;
mod profiles;
mod traces;
mod workloads;
mod worlds;
