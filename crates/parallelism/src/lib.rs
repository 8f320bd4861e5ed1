//! How many requests run side by side and on how many threads each (SERF, "Efficient Deep Neural
//! Network Serving: Fast and Furious", 2018).
//!
//! - [`configurations`] lists what a machine can run, a [`Profile`] holds the service times that were
//!   measured of each.
//! - [`Queue`] predicts the mean latency of a configuration under a load (the paper's equations 1
//!   to 12), [`Model`] names it beside simpler ones, [`Table`] is the best configuration for every
//!   load.
//! - [`LoadEstimator`] follows the load, [`lookahead`] plays a recent trace on a profile.
//! - [`Policy`] names what chooses while requests arrive: [`Serf`] as printed, [`Sextant`] ours.
//!
//! The paper's model takes arrivals to be Poisson, the queue to be in its steady state and the mean
//! to be what matters. Ours drops all three: bursts make a queue several times as long as Poisson
//! arrivals of the same rate do, a backlog that is there has to be served whatever comes, and a
//! tail target is not met by a good mean. All of that is in the last few hundred gaps between
//! arrivals and the queue's length, so it plays them on the profiled rates, which costs less than a
//! millisecond, and switches when the gain is worth it.
//!
//! **Invariant:** no clock, no async, no lock, no I/O, no logging. Time is an argument, order never
//! depends on a hash, and the same inputs give the same answer.

mod load;
pub mod lookahead;
mod policy;
mod profile;
mod queueing;
mod sextant;
mod space;
mod table;

pub use load::{Load, LoadEstimator, LoadOptions};
pub use policy::{Backlog, Choose, Policy, Serf, UnknownPolicy};
pub use profile::{InvalidRates, MissingTuple, Profile, Rates, Summary};
pub use queueing::{Model, Queue, cosmetatos};
pub use sextant::{Decision, Objective, Sextant, SextantOptions, Unit};
pub use space::{Configuration, Tuple, configurations, unit_load};
pub use table::{Choice, Table, best};
