//! Experiments: published settings as data, replayed in virtual time by the policies that the service runs and by those
//! of others.
//!
//! Entry points: [`experiment`] (schedulers, by rate, target or number of devices), [`fleets`] (autoscalers of fleets),
//! [`replicas`] (autoscalers on processors that applications share), [`partition`] (which models share a sub-cluster);
//! [`goodput`] and [`bound`] (what can be carried), [`paged`] (devices that hold only some of the models), [`azure`]
//! (arrivals as in a published trace):
//!
//! ```
//! use sextant_lab::experiment::{self, Event, Experiment, Plan};
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
//! **Invariant:** nothing that is released is built of this package. What the service decides by is in
//! `crates/decide`, and worlds that a user's own questions need are in [`sextant_simulator`].

pub mod azure;
pub mod bound;
pub mod experiment;
pub mod fleets;
pub mod goodput;
pub mod paged;
pub mod partition;
pub mod replicas;

/// A run's setting under any policy by its name.
pub type Setting = sextant_simulator::Setting<sextant_baselines::Options>;
