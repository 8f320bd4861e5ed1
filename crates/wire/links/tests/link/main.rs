//! A worker or a dispatcher behind links behaves as in one process, whatever the clocks show.
//!
//! Time is tokio's paused time: it advances only while all tasks wait, so delays are exact and the tests take no time.

mod calls;
mod clocks;
mod double;
mod faults;
mod front;
mod transport;
