//! Where threads get the time from.

use std::time::Instant;

use sextant_policies::schedule::Nanos;

/// A clock that all threads of a scheduler share. It never goes back.
pub trait Clock: Send + Sync + 'static {
    /// Nanoseconds since some fixed time.
    fn now(&self) -> Nanos;
}

/// The system's monotonic clock, from the time it was made.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Nanos {
        Nanos::try_from(self.0.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }
}
