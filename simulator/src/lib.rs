//! A virtual clock, workloads and emulated devices that drive the same policies as the live
//! service.
//!
//! Entry points: [`World`] (one run), [`Source`] (where requests come from).
//!
//! **Invariant:** decides nothing. Every batch is chosen by a [`sextant_policies::schedule`]
//! policy, the one that the dispatcher drives; here are only arrivals, delays and run times. The
//! same seed gives the same report, byte by byte.

pub mod plot;
mod world;

pub use world::{
    Arrival, Device, Failure, Histogram, Jitter, Model, Network, Report, Setting, Source, Span,
    Tally, Token, World,
};
