//! A worker behind a link behaves as the worker itself, whatever the two clocks show.
//!
//! Time is tokio's paused time: it passes only while everything waits, so delays are exact and the
//! tests take none.

mod calls;
mod clocks;
mod double;
mod faults;
mod transport;
