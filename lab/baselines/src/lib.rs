//! Published schedulers with which ours is compared, and [`Options`], which makes any of them by its [`Policy`] name.
//!
//! Some batches grow in their queue, by rules of [`sextant_schedule::Candidates`]: [`Eager`], [`Timeout`] (Triton),
//! [`Symphony`] and [`SymphonyPaper`]. Other schedulers commit requests to a device at once: Clockwork, Nexus and
//! Clipper.
//!
//! **Invariant:** no clock, no async, no lock, no I/O, no logging. Time is an argument, order never
//! depends on a hash, and the same inputs give the same actions and reasons.

mod clipper;
mod clockwork;
mod eager;
mod nexus;
mod options;
mod pool_queues;
mod replicas;
mod slots;
mod symphony;
mod timeout;

pub use eager::Eager;
pub use options::{Options, Policy, UnknownPolicy};
pub use symphony::{Symphony, SymphonyPaper};
pub use timeout::Timeout;
