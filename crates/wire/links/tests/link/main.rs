//! A worker or a dispatcher behind links behaves as it does in one process, whatever the clocks show.
//!
//! Time is tokio's paused time: it passes only while everything waits, so delays are exact and the
//! tests take none.

mod calls;
mod clocks;
mod double;
mod faults;
mod front;
mod transport;
