//! Clocks that differ, and how far apart they are.

use std::time::{Duration, Instant};

use crate::clock_offset::OffsetFilter;

use super::Stamp;

/// Nanoseconds since an origin of one's own that never run backwards.
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
    /// Where a clock stands when it is made, unless it is said: years, so that times before it can
    /// be told.
    const START_NS: u64 = 1 << 60;

    /// The system's monotonic clock.
    pub fn system() -> Self {
        Self::with_source(Self::START_NS, Instant::now)
    }

    /// A clock that stands at `now_ns` now and runs as `source` does.
    pub fn with_source(now_ns: u64, source: fn() -> Instant) -> Self {
        Self {
            anchor: source(),
            anchor_ns: now_ns,
            source,
        }
    }

    /// The time now.
    pub fn now(&self) -> Instant {
        (self.source)()
    }

    /// The time now, as the clock shows it.
    pub fn now_ns(&self) -> u64 {
        self.nanos(self.now())
    }

    /// What the clock shows at `instant`.
    pub fn nanos(&self, instant: Instant) -> u64 {
        match instant.checked_duration_since(self.anchor) {
            Some(after) => self.anchor_ns.saturating_add(nanos(after)),
            None => self
                .anchor_ns
                .saturating_sub(nanos(self.anchor.saturating_duration_since(instant))),
        }
    }

    /// When the clock shows `ns`; the nearest time that the system can tell.
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

    /// What a message that is sent now carries.
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp {
            sent_at_ns: self.clock.now_ns(),
            least_delta_ns: self.filter.least_delta(),
        }
    }

    /// A message arrives now.
    pub(crate) fn arrived(&mut self, stamp: &Stamp) {
        self.filter
            .on_message(stamp.sent_at_ns, self.clock.now_ns());
        if let Some(theirs) = stamp.least_delta_ns {
            self.filter.on_peer(theirs);
        }
    }

    /// Whether times can be moved from one clock onto the other.
    pub(crate) fn is_known(&self) -> bool {
        self.filter.offset().is_some()
    }

    /// When the other side's clock shows `theirs_ns`.
    pub(crate) fn instant(&self, theirs_ns: u64) -> Instant {
        self.clock.instant(self.filter.to_local(theirs_ns))
    }

    /// The clock here.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }
}
