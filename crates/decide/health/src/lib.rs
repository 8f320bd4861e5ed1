//! When an instance counts as overloaded or interfered (INFaaS section 3.2, Figure 3).
//!
//! The paper names the states and not the thresholds. There an instance is *overloaded* when it serves
//! at its peak throughput. What limits an instance here is its device: a worker runs as many batches
//! side by side as it has slots (cores; one on a device of its own), of one variant or of many. So:
//!
//! * The measure is device time: how long batches kept how many slots, over all slots and the wall
//!   clock. Throughput over that of a lone session, which a profile has, says 1 when one slot of
//!   sixteen is busy.
//! * The *device* decides. One instance that keeps all slots busy and ten that do so together are in
//!   the same place: the next query waits, whichever of them it asks. A rule for each instance alone
//!   would see nothing in the second case, since none of the ten is near one.
//! * Of a full device those instances are overloaded that *take part*: their share is not small beside
//!   the mean of those with work ([`Thresholds::overload_share`]), or batches of theirs came too late.
//!   Moving work away from them helps; an instance with a query now and then neither fills the device
//!   nor, as long as it starts in time, suffers from it.
//! * Offline work does not count. A job takes what is free and makes room when online queries come
//!   ([`crate::throttle`]); were it load, then queries would avoid the variants that jobs use.
//!
//! An instance is *interfered* when it is not overloaded, and yet its runs take longer than the profile
//! says, because something else contends for caches, memory bandwidth or cores. Entering takes
//! [`Thresholds::enter_windows`] windows in a row, leaving [`Thresholds::leave_windows`], with a gap
//! between the two levels: without that an instance at the edge would flap, and every flap moves load.
//! A window says something with [`Thresholds::min_batches`] batches or with [`ENOUGH_MS`] of run time: a model whose
//! run takes half a second has two batches a second at most. A window in which a batch runs and none ends says nothing,
//! neither for a change nor against it.
//! For the same reason an overloaded instance stays so while its device is full and it has any work,
//! also when its share becomes small: that is what moving work away from it does.
//!
//! Beside it: [`interference`], what is done about an instance that something else slows down, and
//! [`throttle`], when an offline job may run.
//!
//! **Invariant:** no clock, no async, no lock, no I/O, no logging. Time is an argument, order never
//! depends on a hash, and the same inputs give the same answer.

pub mod interference;
pub mod throttle;

/// Time that the batches of a window have run, all together, from which their ratio says something however few they
/// are, ms: what delays a run by chance takes a few milliseconds.
pub const ENOUGH_MS: f64 = 200.0;

/// Levels and patience.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// Enter `overloaded` when online work keeps this share of the device's slots busy.
    pub overload_enter: f64,
    /// Leave it below this share.
    pub overload_leave: f64,
    /// An instance takes part in its device's overload from this share of the mean load of the
    /// device's busy instances on.
    pub overload_share: f64,
    /// Enter `interfered` at this ratio of measured to profiled latency.
    pub interfere_enter: f64,
    /// Leave it below this ratio.
    pub interfere_leave: f64,
    /// Batches in a window below which its latency ratio says nothing, unless they have run for [`ENOUGH_MS`].
    pub min_batches: u64,
    /// Windows in a row before a state is entered.
    pub enter_windows: u32,
    /// Windows in a row before a state is left.
    pub leave_windows: u32,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            overload_enter: 0.95,
            overload_leave: 0.8,
            overload_share: 0.5,
            interfere_enter: 2.0,
            interfere_leave: 1.4,
            min_batches: 10,
            enter_windows: 3,
            leave_windows: 2,
        }
    }
}

/// What was seen of one instance in one window.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Window {
    /// Share of the device's slots that online batches of the instance kept busy, 0 to 1.
    pub load: f64,
    /// The same of all instances of the device together, 0 to 1.
    pub device_load: f64,
    /// Instances of the device with online work, this one among them where it had some.
    pub busy_instances: u32,
    /// Batches of the instance that could not start inside their windows.
    pub late: u64,
    /// Measured over profiled run time, weighted by batches.
    pub slow_down: f64,
    /// Batches that ended in the window.
    pub batches: u64,
    /// How long these ran, all together, ms.
    pub run_ms: f64,
}

/// Present condition of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Condition {
    /// Serving as profiled, with room for more.
    #[default]
    Healthy,
    /// Its device is full, also of its work.
    Overloaded,
    /// Slower than profiled, although its device has room.
    Interfered,
}

/// Condition with its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Health {
    condition: Condition,
    candidate: Condition,
    windows: u32,
}

impl Health {
    /// The present condition.
    pub fn condition(&self) -> Condition {
        self.condition
    }

    /// Takes in one window; returns the new condition when it changed.
    pub fn observe(&mut self, window: Window, limits: &Thresholds) -> Option<Condition> {
        let seen = self.classify(window, limits);
        if seen != Condition::Overloaded && window.is_open() {
            return None;
        }
        if seen == self.condition {
            self.windows = 0;
            self.candidate = seen;
            return None;
        }
        self.windows = if seen == self.candidate {
            self.windows + 1
        } else {
            1
        };
        self.candidate = seen;
        let patience = match seen {
            Condition::Healthy => limits.leave_windows,
            _ => limits.enter_windows,
        };
        if self.windows < patience {
            return None;
        }
        *self = Self {
            condition: seen,
            candidate: seen,
            windows: 0,
        };
        Some(seen)
    }

    fn classify(&self, window: Window, limits: &Thresholds) -> Condition {
        if self.is_overloaded(window, limits) {
            Condition::Overloaded
        } else if self.is_interfered(window, limits) {
            Condition::Interfered
        } else {
            Condition::Healthy
        }
    }

    fn is_overloaded(&self, window: Window, limits: &Thresholds) -> bool {
        if self.condition == Condition::Overloaded {
            return window.device_load >= limits.overload_leave && window.has_work();
        }
        window.device_load >= limits.overload_enter && window.takes_part(limits.overload_share)
    }

    fn is_interfered(&self, window: Window, limits: &Thresholds) -> bool {
        let level = if self.condition == Condition::Interfered {
            limits.interfere_leave
        } else {
            limits.interfere_enter
        };
        let is_enough = window.batches >= limits.min_batches || window.run_ms >= ENOUGH_MS;
        is_enough && window.slow_down >= level
    }
}

// === impl Window ===

impl Window {
    fn has_work(&self) -> bool {
        self.load > 0.0 || self.late > 0
    }

    /// Whether a batch ran all the time that has not ended yet.
    fn is_open(&self) -> bool {
        self.batches == 0 && self.load > 0.0
    }

    /// Whether the instance is one of those that fill the device or suffer from it being full.
    fn takes_part(&self, share: f64) -> bool {
        let mean = self.device_load / f64::from(self.busy_instances.max(1));
        self.late > 0 || (self.load > 0.0 && self.load >= share * mean)
    }
}
