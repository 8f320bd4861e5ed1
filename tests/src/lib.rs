//! The harness of the whole-system tests: the real binary, a free port, a folder of its own.
//!
//! Entry points: [`TestCluster`] starts and stops `sextant serve`, [`Fleet`] several of them over real stores. [`Api`]
//! is their client. [`hostile`] has registrations that are made to do harm. [`hog`] takes cores from other threads.
//! [`oip`] is a client of the Open Inference Protocol over gRPC. [`digits`] is the example's data and a service with
//! its models. [`upgrade`] replaces a fleet under load. [`chaos`] injects faults into all of it, drawn from a seed.
//!
//! **Invariant:** nothing here knows a crate of the workspace: the tests see what a client and an operator see.

#![expect(
    clippy::missing_panics_doc,
    clippy::print_stderr,
    reason = "a harness panics where a test cannot go on, and tells what it knows"
)]

mod api;
mod binary;
pub mod chaos;
mod cluster;
pub mod digits;
mod disk;
mod fleet;
pub mod hog;
pub mod hostile;
mod load;
mod network;
pub mod oip;
pub mod onnx;
mod pages;
mod process;
pub mod steps;
pub mod texts;
pub mod upgrade;
mod wait;
mod wire;

pub use api::{Answer, Api, Upload};
pub use binary::{documents, root, scratch, sextant, sextant_lab};
pub use cluster::{Settings, TestCluster, files};
pub use disk::Disk;
pub use fleet::{End, Fleet, FleetSettings};
pub use load::{Load, Tally};
pub use network::Machine;
pub use pages::Block;
pub use process::{Process, command_behind};
pub use wait::{PATIENCE, until};
pub use wire::{Flow, Wire};
