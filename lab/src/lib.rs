//! Experiments: published settings as data, replayed in virtual time by the policies of the service and by those of
//! other systems.
//!
//! Entry points: [`experiment`] (schedulers, by rate, target or number of devices), [`fleets`] (autoscalers of fleets),
//! [`replicas`] (autoscalers on processors that applications share), [`partition`] (which models share a sub-cluster);
//! [`goodput`] and [`bound`] (the load that devices can carry), [`paged`] (devices that hold only some of the models),
//! [`azure`] (arrivals as in a published trace):
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
//! **Invariant:** nothing that is released depends on this package. The service's decisions are in `crates/decide`, and
//! the worlds that answer users' own questions are in [`sextant_simulator`].

pub mod azure;
pub mod bound;
pub mod experiment;
pub mod fleets;
pub mod goodput;
pub mod paged;
pub mod partition;
pub mod replicas;

/// The setting of a run under any policy by its name.
pub type Setting = sextant_simulator::Setting<sextant_baselines::Options>;
