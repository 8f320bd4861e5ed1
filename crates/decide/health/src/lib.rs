//! When an instance counts as overloaded or interfered (INFaaS section 3.2, Figure 3).
//!
//! The paper names the states but not the thresholds. In the paper an instance is *overloaded* when it serves at its
//! peak throughput. Here the device limits an instance: a worker runs as many batches side by side as it has slots
//! (cores; one on a device of its own), of one variant or of many. Therefore:
//!
//! * The measure is device time: how long batches kept how many slots, over all slots and the wall clock. Throughput
//!   relative to that of a lone session, which a profile has, is 1 when only one slot of sixteen is busy.
//! * The *device* decides. One instance that keeps all slots busy and ten that do so together are in the same
//!   situation: the next query waits, whichever of them it asks. A rule for each instance alone would see nothing in
//!   the second case, because none of the ten is near saturation.
//! * On a full device those instances are overloaded that *take part*: their share is not small relative to the mean of
//!   those with work ([`Thresholds::overload_share`]), or batches of theirs came too late. Moving work away from them
//!   helps. An instance with an occasional query neither fills the device nor suffers from it as long as it starts in
//!   time.
//! * Offline work does not count. A job takes what is free and makes room when online queries come
//!   ([`crate::throttle`]). If it counted as load, queries would avoid the variants that jobs use.
//!
//! An instance is *interfered* when it is not overloaded, but its runs take longer than the profile says because
//! something else contends for caches, memory bandwidth or cores. Entering takes [`Thresholds::enter_windows`] windows
//! in a row and leaving takes [`Thresholds::leave_windows`], with a gap between the two levels. Without these an
//! instance at the edge would flap, and every flap moves load. A window counts if it has [`Thresholds::min_batches`]
//! batches or [`ENOUGH_MS`] of run time: a model whose run takes half a second has at most two batches a second. A
//! window in which a batch runs and none ends says nothing, neither for a change nor against it. For the same reason an
//! overloaded instance stays overloaded while its device is full and it has any work, even if its share becomes small,
//! because that is the effect of moving work away from it.
//!
//! Other modules: [`interference`] decides what is done about an instance that something else slows down, and
//! [`throttle`] decides when an offline job may run.
//!
//! **Invariant:** no clock, no async, no lock, no I/O, no logging. Time is an argument, order never
//! depends on a hash, and the same inputs give the same answer.

pub mod interference;
pub mod throttle;

/// The run time of all batches of a window together from which their ratio counts even if they are few, ms. Random
/// delays of a run take a few milliseconds.
pub const ENOUGH_MS: f64 = 200.0;

/// Levels and numbers of windows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// An instance enters `overloaded` when online work keeps this share of the device's slots busy.
    pub overload_enter: f64,
    /// It leaves that state below this share.
    pub overload_leave: f64,
    /// An instance takes part in its device's overload if its load is at least this share of the mean load of the
    /// device's busy instances.
    pub overload_share: f64,
    /// An instance enters `interfered` at this ratio of measured to profiled latency.
    pub interfere_enter: f64,
    /// It leaves that state below this ratio.
    pub interfere_leave: f64,
    /// With fewer batches in a window the latency ratio does not count, unless they have run for [`ENOUGH_MS`].
    pub min_batches: u64,
    /// Consecutive windows before a state is entered.
    pub enter_windows: u32,
    /// Consecutive windows before a state is left.
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

/// The measurements of one instance in one window.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Window {
    /// Share of the device's slots that online batches of the instance kept busy, 0 to 1.
    pub load: f64,
    /// The same for all instances of the device together, 0 to 1.
    pub device_load: f64,
    /// Instances of the device with online work, including this one if it had any.
    pub busy_instances: u32,
    /// Batches of the instance that could not start in their windows.
    pub late: u64,
    /// Measured over profiled run time, weighted by batches.
    pub slow_down: f64,
    /// Batches that ended in the window.
    pub batches: u64,
    /// The run time of these batches together, ms.
    pub run_ms: f64,
}

/// The present condition of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Condition {
    /// It serves as profiled and has room for more.
    #[default]
    Healthy,
    /// Its device is full, partly with its work.
    Overloaded,
    /// It is slower than profiled, although its device has room.
    Interfered,
}

/// The condition of an instance with its history.
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

    /// Takes in one window. Returns the new condition if it has changed.
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

    /// Whether a batch that has not ended yet ran all the time.
    fn is_open(&self) -> bool {
        self.batches == 0 && self.load > 0.0
    }

    /// Whether the instance is one of those that fill the device or suffer because it is full.
    fn takes_part(&self, share: f64) -> bool {
        let mean = self.device_load / f64::from(self.busy_instances.max(1));
        self.late > 0 || (self.load > 0.0 && self.load >= share * mean)
    }
}
