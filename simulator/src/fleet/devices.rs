//! Emulated devices: they start, run batches in their slots and loads one by one, drain and go.

mod slots;
mod watch;

use std::collections::BTreeMap;

use sextant_schedule::{NEVER, Nanos};
use sextant_types::index::VariantIx;

use super::DeviceType;
use slots::Slots;
pub(super) use slots::{FinishedBatch, Job};
use watch::Watch;

/// The stage of a device's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It is ordered, and not up yet.
    Starting,
    /// Takes work.
    Up,
    /// It finishes its work, and then goes.
    Draining,
}

/// The state of a variant on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Residency {
    Loading,
    Loaded,
}

/// One device.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) kind: usize,
    pub(super) state: State,
    /// Distinguishes it from earlier devices with its number.
    pub(super) life: u64,
    pub(super) since: Nanos,
    pub(super) held: BTreeMap<VariantIx, Residency>,
    pub(super) slots: Slots,
    /// When the slots must be looked at next, as last scheduled.
    pub(super) next: Nanos,
    pub(super) watch: Watch,
    loader_free_at: Nanos,
    /// When it was last measured.
    measured: Nanos,
    /// The share of the time since the last look in which it was busy, 0 to 1.
    pub(super) busy_share: f64,
    /// Whether its variants move to others, so that it may go.
    pub(super) emptying: bool,
}

impl Device {
    pub(super) fn new(of: &DeviceType, kind: usize, life: u64, now: Nanos) -> Self {
        Self {
            kind,
            state: State::Starting,
            life,
            since: now,
            held: BTreeMap::new(),
            slots: Slots::new(of.slots, &of.slowdown, now),
            next: NEVER,
            watch: Watch::default(),
            loader_free_at: 0,
            measured: now,
            busy_share: 0.0,
            emptying: false,
        }
    }

    /// Schedules a load that may start at `earliest` and takes `takes`. Returns when it starts; it ends that much
    /// later.
    pub(super) fn load(&mut self, earliest: Nanos, takes: Nanos) -> Nanos {
        let start = earliest.max(self.loader_free_at);
        self.loader_free_at = start.saturating_add(takes);
        start
    }

    /// Measures how busy it was since the last time, and the condition of its variants. Returns the variants whose
    /// condition has changed.
    pub(super) fn look(&mut self, now: Nanos) -> Vec<VariantIx> {
        let whole = (now - self.measured).max(1) as f64 * f64::from(self.slots.count());
        self.measured = now;
        let busy = self.slots.read_busy(now).into_iter();
        let shares: Vec<(VariantIx, f64)> = busy.map(|(of, nanos)| (of, nanos / whole)).collect();
        let busy_share: f64 = shares.iter().map(|(_, share)| share).sum();
        self.busy_share = busy_share.clamp(0.0, 1.0);
        self.watch.look(&self.held, &shares)
    }
}
