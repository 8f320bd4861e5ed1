//! How long batches hold how many of a device's slots, with the part that is online work.
//!
//! Slots are counted while they are held and not when a batch ends: if a run takes longer than the time between two
//! looks, each look sees its part of the run.

use std::{
    ops::{AddAssign, Mul},
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

/// Counts for one instance. They are separate from the instance, so that they can be read after it is gone.
pub(crate) struct BusyMeter(Mutex<Meter>);

struct Meter {
    held: Amount,
    /// Slot-nanoseconds up to `at` since the last [`BusyMeter::take`].
    total: Amount,
    at: Instant,
    holders: u32,
}

/// Slots, or slot-nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Amount {
    pub(crate) all: f64,
    /// The part of online queries.
    pub(crate) online: f64,
}

/// Slots that a batch holds until this is dropped.
pub(crate) struct SlotGuard {
    busy: Arc<BusyMeter>,
    slots: Amount,
}

impl BusyMeter {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Meter {
            held: Amount::default(),
            total: Amount::default(),
            at: Instant::now(),
            holders: 0,
        })))
    }

    /// Holds slots from the moment `from` on, which may lie in the past.
    pub(crate) fn hold(self: &Arc<Self>, slots: Amount, from: Instant) -> SlotGuard {
        self.with(|meter| meter.begin(slots, from));
        SlotGuard {
            busy: Arc::clone(self),
            slots,
        }
    }

    /// Slot-nanoseconds up to `now` since the last call.
    pub(crate) fn take(&self, now: Instant) -> Amount {
        self.with(|meter| {
            meter.advance(now);
            std::mem::take(&mut meter.total)
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Meter) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        let (slots, now) = (self.slots, Instant::now());
        self.busy.with(|meter| meter.end(slots, now));
    }
}

// === impl Meter ===

impl Meter {
    fn advance(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at);
        self.total += self.held * passed.as_nanos() as f64;
        self.at = self.at.max(now);
    }

    fn begin(&mut self, slots: Amount, from: Instant) {
        self.advance(from);
        let missed = self.at.saturating_duration_since(from);
        self.total += slots * missed.as_nanos() as f64;
        self.held += slots;
        self.holders += 1;
    }

    fn end(&mut self, slots: Amount, now: Instant) {
        self.advance(now);
        self.holders -= 1;
        // Sums of shares are not exact. The rest is cleared when nobody holds a slot.
        self.held = if self.holders == 0 {
            Amount::default()
        } else {
            Amount {
                all: self.held.all - slots.all,
                online: self.held.online - slots.online,
            }
        };
    }
}

// === impl Amount ===

impl Amount {
    /// `slots` slots for a batch of `rows` rows, of which `offline_rows` are rows of offline jobs.
    pub(crate) fn of_batch(slots: u16, rows: usize, offline_rows: u32) -> Self {
        let (all, rows) = (f64::from(slots), rows.max(1) as f64);
        let offline = (f64::from(offline_rows) / rows).min(1.0);
        Self {
            all,
            online: all * (1.0 - offline),
        }
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        self.all += other.all;
        self.online += other.online;
    }
}

impl Mul<f64> for Amount {
    type Output = Self;

    fn mul(self, by: f64) -> Self {
        Self {
            all: self.all * by,
            online: self.online * by,
        }
    }
}
