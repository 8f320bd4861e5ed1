//! How many requests run side by side and on how many threads each (SERF, "Efficient Deep Neural
//! Network Serving: Fast and Furious", 2018).
//!
//! - [`configurations`] lists what a machine can run. A [`Profile`] holds the measured service times.
//! - [`Queue`] predicts the mean latency of a configuration under a load (the paper's equations 1 to 12). [`Model`]
//!   names this prediction beside simpler ones. [`Table`] has the best configuration for every load.
//! - [`Serf`] follows the load and looks it up while requests arrive.
//!
//! The paper's model assumes that arrivals are Poisson, that the queue is in its steady state, and that the mean is
//! what matters. A policy that replayed the last gaps between arrivals on the profiled rates was also tried. It was
//! better in simulated bursts and never better live, so it was removed.
//!
//! **Invariant:** no clock, no async, no lock, no I/O, no logging. Time is an argument, order never
//! depends on a hash, and the same inputs give the same answer.

mod profile;
mod queueing;
mod serf;
mod space;
mod table;

pub use profile::{InvalidRates, MissingTuple, Profile, Rates, Summary};
pub use queueing::{Model, Queue, cosmetatos};
pub use serf::Serf;
pub use space::{Configuration, Tuple, configurations, unit_load};
pub use table::{Choice, Table, best};
