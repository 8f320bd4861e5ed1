//! A virtual clock, workloads and emulated devices that drive the same policies as the live
//! service.
//!
//! Entry points: [`what_if`] (how many devices recorded requests need), [`fleet`] (a fleet that grows and shrinks),
//! [`pipelines`] (queries of several steps), [`World`] (one run with everything loaded), [`Source`] (where requests
//! come from; [`workload`] and [`trace`] make them), [`profiles`] (files of run times):
//!
//! ```
//! use std::path::Path;
//!
//! use sextant_simulator::what_if::{Devices, Question, Trials};
//!
//! let devices = "
//!     devices.gpu = { count = 1 }
//!     models.m = { target_ms = 20.0, max_batch = 8, profiles.gpu = { alpha_ms = 1.0, beta_ms = 4.0 } }";
//! let devices = Devices::parse(devices, "devices.toml", Path::new("."))?;
//! let question = Question::read("timestamp,model\n0.0,m\n0.5,m\n", "requests.csv", devices)?;
//! let answer = question.answer(&Trials::default(), &|_, _| {});
//! assert!(answer.policies.iter().any(|of| of.least_devices == Some(1)));
//! # Ok::<(), sextant_simulator::Error>(())
//! ```
//!
//! **Invariant:** this crate decides nothing. A [`sextant_schedule`] policy, the one that the dispatcher drives,
//! chooses every batch. This crate contains only arrivals, delays and run times. The same seed gives the same report,
//! byte by byte.

mod error;
pub mod fleet;
pub mod parallel;
pub mod pipelines;
pub mod profiles;
mod record;
pub mod report;
pub mod table;
pub mod trace;
pub mod what_if;
pub mod workload;
mod world;

pub use error::Error;
pub use record::{Record, means};

pub use world::{
    Arrival, Device, Failure, Histogram, Jitter, Model, Network, Report, Setting, Shape, Source,
    Span, Tally, Token, Usage, World,
};
