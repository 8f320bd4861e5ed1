//! A load generator: queries sent at a pace to a live service, measured from when each was due.
//!
//! Entry points: [`run`] (a [`Plan`] of [`Stream`]s against an [`Endpoint`]), [`Summary`] (what was measured),
//! [`inputs`] (tensors that fit a signature, random ones or a file's) and [`Arrivals`].
//!
//! A *stream* is the queries of one application. In a closed loop each of its connections asks again as soon as it
//! has an answer. In an open loop a query is due when the arrivals say so, whatever has become of those before it; what
//! it waits for a connection is part of its latency. So a service that stalls is seen by every query that came due
//! meanwhile, not by those alone that were under way (coordinated omission; wrk2 measures so too).
//!
//! **Invariant:** each query that is due within the measured time is counted once: answered, refused with a code, or
//! broken. What is sent while the service warms up is not counted.

mod arrivals;
mod closed;
mod connection;
mod endpoint;
mod error;
pub mod inputs;
mod message;
mod open;
mod progress;
mod reply;
mod run;
mod summary;
mod tally;
mod timer;
mod trace;

pub use arrivals::Arrivals;
pub use endpoint::Endpoint;
pub use error::Error;
pub use message::{Message, Question};
pub use progress::Progress;
pub use run::{Pace, Plan, Stream, run};
pub use summary::{Percentiles, Summary};
pub use tally::Tally;
pub use trace::Trace;
