//! Where requests come from: seeded sources that a [`World`](crate::World) reads.
//!
//! [`OpenLoop`] merges independent renewal processes, one of each model, whose rates may change over time.
//! [`Spreading`] is one load over more and more models. [`ClosedLoop`] has clients that send again when they have been
//! answered. [`MixedSource`] combines sources. [`trace`](crate::trace) replays files. A source is a function of its
//! seed. Every model has a generator of its own, so that another model does not change its arrivals, and a higher rate
//! is the same sequence of gaps, compressed.

mod closed;
mod gaps;
mod poisson;
mod popularity;
mod rate;
mod renewal;
mod spreading;

pub use closed::{ClosedLoop, MixedSource};
pub use gaps::{Gaps, exponential, normal};
pub use poisson::Superposition;
pub use popularity::{equal, zipf};
pub use rate::{Piece, Rate};
pub use renewal::{OpenLoop, Stream};
pub use spreading::{Spread, Spreading};

use crate::Source;

/// The fastest source of these streams: superposed if all are Poisson of constant rate.
///
/// # Errors
/// If a rate or shape is not a finite number, a rate is negative, or a shape is not above zero.
pub fn open_loop(streams: &[Stream], seed: u64) -> Result<Box<dyn Source>, crate::Error> {
    let constant: Option<Vec<(u32, f64)>> = streams
        .iter()
        .map(|stream| match (&stream.gaps, &stream.rate) {
            (Gaps::Exponential, Rate::Constant(rps)) => Some((stream.model, *rps)),
            _ => None,
        })
        .collect();
    match constant {
        Some(rates) => Ok(Box::new(Superposition::new(&rates, seed)?)),
        None => Ok(Box::new(OpenLoop::new(streams, seed)?)),
    }
}
