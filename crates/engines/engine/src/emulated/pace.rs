//! How emulated work takes its time: in real time, or as a caller's function says.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::Sleep;

/// Systems wake a sleeping thread late, by 50 microseconds and more; the thread spends the last
/// part of every wait awake, so that work ends within a few microseconds of its time.
const AWAKE: Duration = Duration::from_micros(100);

/// Lets time pass on the calling thread.
#[derive(Clone)]
pub(super) enum Pace {
    /// Until the time since the beginning of the work has passed, computing included.
    Real,
    /// As this function says; computing takes no time.
    Told(Arc<Sleep>),
}

impl Pace {
    /// Ends work that began at `started` and takes `time`.
    pub(super) fn pass(&self, started: Instant, time: Duration) {
        match self {
            Self::Real => wait_until(started + time),
            Self::Told(sleep) => sleep(time),
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the emulated work is the passing of time itself, no state is waited for"
)]
fn wait_until(end: Instant) {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        match left.checked_sub(AWAKE) {
            Some(most) if !most.is_zero() => thread::sleep(most),
            _ => std::hint::spin_loop(),
        }
    }
}
