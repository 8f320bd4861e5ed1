//! Real time as the scheduler counts it, and the alarm that wakes it.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::Thread,
    time::{Duration, Instant},
};

use sextant_schedule::{NEVER, Nanos};

/// Nanoseconds since the dispatcher's start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    epoch: Instant,
}

/// One alarm, which any thread sets and one thread waits for.
///
/// It sleeps in the operating system. The timers of tokio round up to a whole millisecond, and the
/// window in which a deferred batch may start is often narrower than that.
#[derive(Debug)]
pub(crate) struct Alarm {
    /// When it rings; [`NEVER`] if nothing is due.
    set: AtomicU64,
    sleeper: OnceLock<Thread>,
    stopped: AtomicBool,
}

// === impl Clock ===

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            epoch: Instant::now(),
        }
    }

    pub(crate) fn now(&self) -> Nanos {
        self.epoch.elapsed().as_nanos() as Nanos
    }

    pub(crate) fn nanos(&self, instant: Instant) -> Nanos {
        instant.saturating_duration_since(self.epoch).as_nanos() as Nanos
    }

    pub(crate) fn instant(&self, nanos: Nanos) -> Instant {
        self.epoch + Duration::from_nanos(nanos)
    }
}

// === impl Alarm ===

impl Alarm {
    pub(crate) fn new() -> Self {
        Self {
            set: AtomicU64::new(NEVER),
            sleeper: OnceLock::new(),
            stopped: AtomicBool::new(false),
        }
    }

    /// Makes the alarm ring no later than at `next`. An earlier alarm that is no longer needed
    /// still rings: that costs less than cancelling it with every batch.
    pub(crate) fn set(&self, next: Nanos) {
        if next < self.set.fetch_min(next, Ordering::AcqRel) {
            self.wake();
        }
    }

    /// Ends [`Self::wait`].
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.wake();
    }

    /// Blocks the calling thread, which must always be the same one, until the alarm rings. Returns
    /// `true` when it rings and `false` when it was stopped.
    pub(crate) fn wait(&self, clock: Clock) -> bool {
        self.sleeper.get_or_init(std::thread::current);
        while !self.stopped.load(Ordering::Acquire) {
            let next = self.set.load(Ordering::Acquire);
            if next == NEVER {
                std::thread::park();
                continue;
            }
            let left = next.saturating_sub(clock.now());
            if left == 0 {
                self.set.store(NEVER, Ordering::Release);
                return true;
            }
            std::thread::park_timeout(Duration::from_nanos(left));
        }
        false
    }

    fn wake(&self) {
        if let Some(sleeper) = self.sleeper.get() {
            sleeper.unpark();
        }
    }
}
