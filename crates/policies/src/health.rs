//! When an instance counts as overloaded or interfered (INFaaS section 3.2, Figure 3).
//!
//! The paper names the states and not the thresholds. An instance is *overloaded* when it serves
//! at its peak throughput: its share of device time is close to one. It is *interfered* when it is
//! not, and yet its runs take longer than the profile says, because something else contends for
//! caches, memory bandwidth or cores. Entering takes [`Thresholds::enter_windows`] windows in a
//! row, leaving [`Thresholds::leave_windows`], with a gap between the two levels: without that an
//! instance at the edge would flap, and every flap moves load.

/// Levels and patience.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// Enter `overloaded` at this share of peak throughput.
    pub overload_enter: f64,
    /// Leave it below this share.
    pub overload_leave: f64,
    /// Enter `interfered` at this ratio of measured to profiled latency.
    pub interfere_enter: f64,
    /// Leave it below this ratio.
    pub interfere_leave: f64,
    /// Batches in a window below which its latency ratio says nothing.
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
    /// Rows served per second over the profiled saturation throughput.
    pub load: f64,
    /// Measured over profiled run time, weighted by batches.
    pub slow_down: f64,
    /// Batches in the window.
    pub batches: u64,
}

/// Present condition of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Condition {
    /// Serving as profiled, below its peak.
    #[default]
    Healthy,
    /// Serving at its peak.
    Overloaded,
    /// Slower than profiled, below its peak.
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
        let level = |state, enter, leave| {
            if self.condition == state {
                leave
            } else {
                enter
            }
        };
        let overload = level(
            Condition::Overloaded,
            limits.overload_enter,
            limits.overload_leave,
        );
        let interfere = level(
            Condition::Interfered,
            limits.interfere_enter,
            limits.interfere_leave,
        );
        if window.load >= overload {
            Condition::Overloaded
        } else if window.batches >= limits.min_batches && window.slow_down >= interfere {
            Condition::Interfered
        } else {
            Condition::Healthy
        }
    }
}
