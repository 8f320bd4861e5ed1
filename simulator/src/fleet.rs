//! A fleet that grows and shrinks: applications with several variants, devices with start times and
//! prices, and the autoscaler of the live service on a virtual clock.
//!
//! A query names an application, a latency target and the least accuracy. [`sextant_selection`] decides which variant
//! answers, [`sextant_controller::Controller`] decides which batch runs where, and [`sextant_scaling::Scaler`] decides
//! how many devices there are and what is loaded. Dispatcher and autoscaler run the same code with the same defaults.
//! This module supplies queries, run times, loads, devices that start and drain, and bills.
//!
//! It differs from a live fleet in these points. Messages take no time. The autoscaler sees the state of the fleet
//! without delay. A device starts after exactly its start time. Variants that run on a device at the same time slow
//! each other down as its type says. The rule of the live worker's monitor detects that, and a device that is slowed
//! down stays of its type's kind, while a live fleet makes it a kind of its own.
//!
//! [`Setting`] is a run's input, [`Experiment`] reads it from files, and [`run`] makes a [`Report`] from it.

mod balance;
mod control;
mod devices;
mod experiment;
mod format;
mod load;
mod need;
mod policy;
mod registered;
mod replicas;
mod report;
mod scaling;
mod setting;
mod shown;
mod traffic;
mod variants;
mod world;

pub use experiment::{Cell, Experiment, Plan, play, play_by};
pub use policy::{Policy, UnknownPolicy};
pub use report::{QueryCounts, Report};
pub use setting::{Application, Class, DeviceType, Entry, Measurement, Scaling, Setting, Variant};
pub use shown::{FleetView, ShownDevice};

use sextant_schedule::Schedulers;

use crate::Error;

/// Runs a setting under a policy.
///
/// # Errors
/// If the setting is invalid. The message names what is wrong.
pub fn run(setting: &Setting, policy: Policy) -> Result<Report, Error> {
    run_by(setting, policy, &sextant_schedule::Options::default())
}

/// The same with another scheduling policy in place of the service's.
///
/// # Errors
/// As for [`run`].
pub fn run_by(
    setting: &Setting,
    policy: Policy,
    schedulers: &impl Schedulers,
) -> Result<Report, Error> {
    let setting = setting.under(policy)?;
    let mut queries = load::source(&setting)?;
    Ok(world::World::new(&setting, policy, schedulers).run(queries.as_mut()))
}
