//! A virtual clock, workloads and emulated devices that drive the same policies as the live
//! service.
//!
//! Entry points: [`World`] (one run), [`Source`] (where requests come from; [`workload`], [`trace`]
//! and [`azure`] make them), [`profiles`] (files of run times), [`goodput`] and [`bound`] (what can
//! be carried), [`paged`] (devices that hold only some of the models), [`experiment`] (published
//! settings as data), [`fleet`] (a fleet that grows and shrinks), [`replicas`] (autoscalers on processors that applications share):
//!
//! ```
//! use sextant_simulator::experiment::{self, Event, Experiment, Plan};
//!
//! let experiment = Experiment::named("symphony-table2")?;
//! let plan = Plan { quick: true, ..Plan::default() };
//! let records = experiment::run(&experiment, &plan, &mut |event| match event {
//!     Event::Progress(progress) => eprintln!("{} of {}", progress.done, progress.total),
//!     Event::Record(record) => println!("{}", record.to_json()),
//! })?;
//! assert!(!records.is_empty());
//! # Ok::<(), sextant_simulator::Error>(())
//! ```
//!
//! **Invariant:** decides nothing. Every batch is chosen by a [`sextant_schedule`]
//! policy, the one that the dispatcher drives; here are only arrivals, delays and run times. The
//! same seed gives the same report, byte by byte.

pub mod azure;
pub mod bound;
mod error;
pub mod experiment;
pub mod fleet;
pub mod goodput;
pub mod paged;
mod parallel;
pub mod partition;
pub mod pipelines;
pub mod profiles;
pub mod replicas;
mod table;
pub mod trace;
pub mod what_if;
pub mod workload;
mod world;

pub use error::Error;

pub use world::{
    Arrival, Device, Failure, Histogram, Jitter, Model, Network, Report, Setting, Shape, Source,
    Span, Tally, Token, Usage, World,
};
