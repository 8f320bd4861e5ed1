//! Waking up at a time to the microsecond: the runtime's own timers know milliseconds alone, and what a query is sent
//! late is part of its latency.

use std::{io, os::fd::OwnedFd, time::Duration};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::{io::unix::AsyncFd, time::Instant};

/// A timer of the kernel.
#[derive(Debug)]
pub(crate) struct Timer {
    file: AsyncFd<OwnedFd>,
}

// === impl Timer ===

impl Timer {
    /// One that is not set; called within a runtime.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let file = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(
            deprecated,
            reason = "an `OwnedFd` owns its descriptor, and what replaces this is unsafe code"
        )]
        let file = AsyncFd::new(file)?;
        Ok(Self { file })
    }

    /// Waits until then. What is due already lets others of the thread run and returns.
    pub(crate) async fn until(&self, due: Instant) -> io::Result<()> {
        let wait = due.saturating_duration_since(Instant::now());
        if wait.is_zero() {
            tokio::task::yield_now().await;
            return Ok(());
        }
        timerfd_settime(&self.file, TimerfdTimerFlags::empty(), &once(wait))?;
        loop {
            let mut ready = self.file.readable().await?;
            let expired = ready.try_io(|file| {
                let read = rustix::io::read(file, &mut [0; 8]);
                read.map_err(io::Error::from)
            });
            if let Ok(read) = expired {
                return read.map(drop);
            }
        }
    }
}

fn once(wait: Duration) -> Itimerspec {
    Itimerspec {
        it_interval: Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
        it_value: Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        },
    }
}
