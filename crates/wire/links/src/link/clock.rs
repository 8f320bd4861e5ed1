//! Different clocks, and their offset.

use std::time::{Duration, Instant};

use crate::clock_offset::OffsetFilter;

use super::Stamp;

/// Monotonic nanoseconds since an arbitrary origin.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    anchor: Instant,
    anchor_ns: u64,
    source: fn() -> Instant,
}

/// What one side knows of the other's clock.
#[derive(Debug)]
pub(crate) struct Peer {
    clock: Clock,
    filter: OffsetFilter,
}

// === impl Clock ===

impl Clock {
    /// The value of a new clock, unless another is given: years, so that earlier times can be
    /// expressed.
    const START_NS: u64 = 1 << 60;

    /// The system's monotonic clock.
    pub fn system() -> Self {
        Self::with_source(Self::START_NS, Instant::now)
    }

    /// A clock that shows `now_ns` now and runs like `source`.
    pub fn with_source(now_ns: u64, source: fn() -> Instant) -> Self {
        Self {
            anchor: source(),
            anchor_ns: now_ns,
            source,
        }
    }

    /// The present time.
    pub fn now(&self) -> Instant {
        (self.source)()
    }

    /// The present value of the clock.
    pub fn now_ns(&self) -> u64 {
        self.nanos(self.now())
    }

    /// The value of the clock at `instant`.
    pub fn nanos(&self, instant: Instant) -> u64 {
        match instant.checked_duration_since(self.anchor) {
            Some(after) => self.anchor_ns.saturating_add(nanos(after)),
            None => self
                .anchor_ns
                .saturating_sub(nanos(self.anchor.saturating_duration_since(instant))),
        }
    }

    /// The instant at which the clock shows `ns`, or the nearest one that the system can express.
    pub fn instant(&self, ns: u64) -> Instant {
        let after = Duration::from_nanos(ns.saturating_sub(self.anchor_ns));
        let before = Duration::from_nanos(self.anchor_ns.saturating_sub(ns));
        let instant = self.anchor.checked_add(after);
        let instant = instant.and_then(|instant| instant.checked_sub(before));
        instant.unwrap_or(self.anchor)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

// === impl Peer ===

impl Peer {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            filter: OffsetFilter::default(),
        }
    }

    /// The stamp of a message that is sent now.
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp {
            sent_at_ns: self.clock.now_ns(),
            least_delta_ns: self.filter.least_delta(),
        }
    }

    /// Notes the arrival of a message.
    pub(crate) fn arrived(&mut self, stamp: &Stamp) {
        self.filter
            .on_message(stamp.sent_at_ns, self.clock.now_ns());
        if let Some(theirs) = stamp.least_delta_ns {
            self.filter.on_peer(theirs);
        }
    }

    /// Whether times can be converted from one clock to the other.
    pub(crate) fn is_known(&self) -> bool {
        self.filter.offset().is_some()
    }

    /// The instant at which the other side's clock shows `theirs_ns`.
    pub(crate) fn instant(&self, theirs_ns: u64) -> Instant {
        self.clock.instant(self.filter.to_local(theirs_ns))
    }

    /// The local clock.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }
}
